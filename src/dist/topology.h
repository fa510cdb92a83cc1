/* Nodes by texts that are given, and not found: for tests. */
#ifndef LT_DIST_TOPOLOGY_H
#define LT_DIST_TOPOLOGY_H

#include "lather/topology.h"

/* As lt_comm_nodes() with 0, for a rank that sees this boot id and host name. Collective. */
LT_MUST_CHECK lt_status lt_comm_nodes_at(lt_nodes *out, lt_comm *comm, const char *boot_id,
                                         const char *host);

#endif
