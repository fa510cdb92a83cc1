/* Building blocks of the closed forms of lather/detail/comm_cost.h. */
#ifndef LT_DIST_COST_PARTS_H
#define LT_DIST_COST_PARTS_H

#include "lather/detail/comm_cost.h"

enum { LT_COST_F32 = 4 };

/* Bytes that a rank sends in a two-level all-reduce of d elements. */
lt_cost_bytes lt_cost_two_level(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);
/* Bytes that a rank sends in a collective of d elements over all ranks. */
lt_cost_bytes lt_cost_allreduce(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);
lt_cost_bytes lt_cost_reducescatter(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                    int rank);
lt_cost_bytes lt_cost_allgather(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);

/* Reduce-scatter, all-gather, or one after the other: an all-reduce. */
typedef enum lt_cost_round { LT_COST_SCATTER, LT_COST_GATHER, LT_COST_REDUCE } lt_cost_round;

/* A stage of rank 0 over all ranks, of these bytes: within the node and to other nodes at once. */
lt_cost_stage lt_cost_over_all(const lt_cost_cluster *c, lt_cost_bytes bytes, lt_cost_round kind);
/* Stages in the node, of d elements; and between ranks with the same index in their nodes, of these bytes. */
lt_cost_stage lt_cost_in_node(const lt_cost_cluster *c, int64_t d, int element_bytes,
                              lt_cost_round kind);
lt_cost_stage lt_cost_between(const lt_cost_cluster *c, double bytes, lt_cost_round kind);
/* Both levels as one stage, so that no other bucket runs in between. */
lt_cost_stage lt_cost_in_levels(const lt_cost_cluster *c, int64_t d, int element_bytes);
lt_cost_stage lt_cost_compute(double seconds);

#endif
