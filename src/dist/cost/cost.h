/* Parts of the closed forms. */
#ifndef LT_DIST_COST_H
#define LT_DIST_COST_H

#include "lather/comm_cost.h"

enum { LT_COST_F32 = 4 };

/* ceil(density elements). */
int64_t lt_cost_count(int64_t elements, double density);

/* Whether a shard's largest elements are sent, not all: where that is less. */
bool lt_cost_is_sparse(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t shard);

/* In two levels, of d elements: what rank sends. */
lt_cost_bytes lt_cost_two_level(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);
/* Over all ranks, of d elements: what rank sends. */
lt_cost_bytes lt_cost_allreduce(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);
lt_cost_bytes lt_cost_reducescatter(const lt_cost_cluster *c, int64_t d, int element_bytes,
                                    int rank);
lt_cost_bytes lt_cost_allgather(const lt_cost_cluster *c, int64_t d, int element_bytes, int rank);

#endif
