/** Topology: the nodes (machines) of the ranks, and two groups per rank: the ranks of its node, whose messages are fast,
 *  and its peers, the ranks with the same local rank in other nodes, whose messages cross the network. */
#ifndef LATHER_DETAIL_TOPOLOGY_H
#define LATHER_DETAIL_TOPOLOGY_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"

/** Nodes are numbered by their lowest rank; in a node ranks keep their order. */
typedef struct lt_nodes {
    int count, index;   /**< number of nodes; this rank's node */
    int local, locals;  /**< local rank; number of ranks in its node */
    int ranks_per_node; /**< number of ranks in every node; 0 if they differ */
    bool contiguous;    /**< the ranks of each node are consecutive */
    int *of;            /**< [ranks] node of each rank; owned */
} lt_nodes;

/** A single rank on one node, without a list. */
#define LT_NODES_ALONE \
    ((lt_nodes){.count = 1, .locals = 1, .ranks_per_node = 1, .contiguous = true})

/**
 * Finds the nodes of all ranks of comm. Ranks are on one node if the kernel's boot id and the host name are equal: two
 * machines both called "localhost" are two nodes, and so are two containers with different names. ranks_per_node k > 0
 * decides instead: ranks k*i to k*i+k-1 are node i. Collective.
 *
 * Owns    *out is yours: lt_nodes_clear()
 * Errors  LT_E_ARG on every rank (the number of ranks is not a multiple of ranks_per_node, or ranks disagree on it);
 *         LT_E_NOMEM, LT_E_COMM
 */
LT_API LT_MUST_CHECK lt_status lt_comm_nodes(lt_nodes *out, lt_comm *comm, int ranks_per_node);
/** Frees the list and zeroes the struct. */
LT_API void lt_nodes_clear(lt_nodes *nodes);

/** Splits off this node's ranks, in rank order: rank nodes->local of nodes->locals. nodes are those of comm. Collective,
 *  as lt_comm_split(). Close *out before comm. */
LT_API LT_MUST_CHECK lt_status lt_nodes_open_node(const lt_nodes *nodes, lt_comm *comm,
                                                  lt_comm **out);
/** Splits off this rank's peers, in the order of nodes; nodes without this local rank are left out. Collective, as
 *  lt_comm_split(). Close *out before comm. */
LT_API LT_MUST_CHECK lt_status lt_nodes_open_peers(const lt_nodes *nodes, lt_comm *comm,
                                                   lt_comm **out);

#endif
