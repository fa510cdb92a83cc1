/* Private declarations of lather/detail/topology.h. */
#ifndef LT_DIST_TOPOLOGY_H
#define LT_DIST_TOPOLOGY_H

#include "lather/detail/topology.h"

/* Returns the first node whose number of ranks differs from node 0's, and both numbers; 0 if all are equal. */
int lt_nodes_find_uneven(const lt_nodes *nodes, int ranks, int *first, int *other);

/* lt_comm_nodes() with the given boot id and host name instead of this machine's, for tests. Collective. */
LT_MUST_CHECK lt_status lt_comm_nodes_on_host(lt_nodes *out, lt_comm *comm, const char *boot_id,
                                              const char *host);

#endif
