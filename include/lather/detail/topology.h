/** Which ranks share a node, and the groups that this makes: the ranks of a node, whose messages are fast, and
 *  the ranks with the same place in each node, whose messages cross the network. */
#ifndef LATHER_DETAIL_TOPOLOGY_H
#define LATHER_DETAIL_TOPOLOGY_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"

/** Nodes are numbered by their lowest rank; in a node ranks keep their order. */
typedef struct lt_nodes {
    int count, index;   /**< nodes; which of them this rank is in */
    int local, locals;  /**< this rank's place in its node; ranks of its node */
    int ranks_per_node; /**< of every node; 0: they differ */
    bool contiguous;    /**< the ranks of each node are neighbours */
    int *of;            /**< [ranks] node of each rank; owned */
} lt_nodes;

/** One rank in a node of its own, without a list. */
#define LT_NODES_ALONE \
    ((lt_nodes){.count = 1, .locals = 1, .ranks_per_node = 1, .contiguous = true})

/**
 * The nodes of all ranks of comm. Ranks are in one node if they see the same boot id (of the kernel) and the
 * same host name, compared as texts: two machines that are both called "localhost" are two nodes, as two
 * containers with names of their own are. ranks_per_node k > 0 decides instead: ranks k*i .. k*i+k-1 are node i.
 * Collective.
 *
 * Owns    *out is yours: lt_nodes_clear()
 * Errors  LT_E_ARG (the ranks are no multiple of ranks_per_node, or ranks give different ones), on every rank;
 *         LT_E_NOMEM, LT_E_COMM
 */
LT_API LT_MUST_CHECK lt_status lt_comm_nodes(lt_nodes *out, lt_comm *comm, int ranks_per_node);
/** Frees the list; the rest is zeroed. */
LT_API void lt_nodes_clear(lt_nodes *nodes);

/** The group of this node's ranks, in rank order: rank nodes->local of nodes->locals. nodes are those of comm.
 *  Collective, as lt_comm_split(). Owns: you; close it before comm. */
LT_API LT_MUST_CHECK lt_status lt_nodes_open_node(const lt_nodes *nodes, lt_comm *comm,
                                                  lt_comm **out);
/** The group of the ranks with this one's place in their nodes, in the order of nodes; where nodes differ in size
 *  it lacks those that have no such place. Collective, as lt_comm_split(). Owns: you; close it before comm. */
LT_API LT_MUST_CHECK lt_status lt_nodes_open_peers(const lt_nodes *nodes, lt_comm *comm,
                                                   lt_comm **out);

#endif
