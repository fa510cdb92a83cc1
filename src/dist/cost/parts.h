/* Parts of the closed forms. */
#ifndef LT_DIST_COST_PARTS_H
#define LT_DIST_COST_PARTS_H

#include "lather/detail/comm_cost.h"

enum { LT_COST_F32 = 4 };

/* In two levels, of d elements: what rank sends. */
lt_cost_bytes lt_cost_two_level(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);
/* Over all ranks, of d elements: what rank sends. */
lt_cost_bytes lt_cost_allreduce(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);
lt_cost_bytes lt_cost_reducescatter(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                    int rank);
lt_cost_bytes lt_cost_allgather(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);

/* An exchange that is one way of a mean, or both, the one, then the other. */
typedef enum lt_cost_round { LT_COST_SCATTER, LT_COST_GATHER, LT_COST_REDUCE } lt_cost_round;

/* Rank 0's stage over all ranks, of so many bytes: inside the node and to others at once. */
lt_cost_stage lt_cost_over_all(const lt_cost_cluster *c, lt_cost_bytes bytes, lt_cost_round kind);
/* In the node, of d elements; to the ranks of equal places in other nodes, of so many bytes. */
lt_cost_stage lt_cost_in_node(const lt_cost_cluster *c, int64_t d, int element_bytes,
                              lt_cost_round kind);
lt_cost_stage lt_cost_between(const lt_cost_cluster *c, double bytes, lt_cost_round kind);
/* Two levels without other buckets in between. */
lt_cost_stage lt_cost_in_levels(const lt_cost_cluster *c, int64_t d, int element_bytes);
lt_cost_stage lt_cost_compute(double seconds);

#endif
