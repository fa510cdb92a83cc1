/* Nodes, inside. */
#ifndef LT_DIST_TOPOLOGY_H
#define LT_DIST_TOPOLOGY_H

#include "lather/detail/topology.h"

/* The first node with another number of ranks than node 0, and both numbers; 0: there is none. */
int lt_nodes_uneven(const lt_nodes *nodes, int ranks, int *first, int *other);

/* For tests: as lt_comm_nodes() with 0, for a rank that sees this boot id and host name. Collective. */
LT_MUST_CHECK lt_status lt_comm_nodes_at(lt_nodes *out, lt_comm *comm, const char *boot_id,
                                         const char *host);

#endif
