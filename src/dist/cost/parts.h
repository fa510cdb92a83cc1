/* Building blocks of the closed forms of lather/detail/comm_cost.h. */
#ifndef LT_DIST_COST_PARTS_H
#define LT_DIST_COST_PARTS_H

#include "lather/detail/comm_cost.h"

enum { LT_COST_F32 = 4 };

/* Rounds of a collective: reduce-scatter, all-gather, or one after the other: an all-reduce. */
typedef enum lt_cost_round { LT_COST_SCATTER, LT_COST_GATHER, LT_COST_REDUCE } lt_cost_round;

/* Return the stage of a collective of d elements at a rank: over all ranks, within and between nodes at once; or over
 * the ranks of its node. */
lt_cost_stage lt_cost_all_ranks_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                      lt_cost_round kind, int rank);
lt_cost_stage lt_cost_in_node_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                    lt_cost_round kind, int rank);
/* Stages between ranks with the same index in their nodes: each sends `bytes`; or they all-reduce their shard of d
 * elements. */
lt_cost_stage lt_cost_between_stage(const lt_cost_cluster *c, double bytes, lt_cost_round kind);
lt_cost_stage lt_cost_shard_allreduce_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                            int rank);
/* Returns a two-level all-reduce as one stage, so that no other bucket runs in between. */
lt_cost_stage lt_cost_two_level_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                      int rank);
/* Returns an all-gather over all ranks in two levels: a rank sends its chunk to the ranks with the same index in their
 * nodes, and these ranks' chunks to those of its node. */
lt_cost_stage lt_cost_two_level_gather_stage(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                             int rank);
lt_cost_stage lt_cost_compute_stage(double seconds);

#endif
