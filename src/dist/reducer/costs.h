/* Cost rows of the library's reducers. */
#ifndef LT_DIST_REDUCER_COSTS_H
#define LT_DIST_REDUCER_COSTS_H

#include "lather/detail/comm_cost.h"

extern const lt_cost_row lt_cost_topk, lt_cost_powersgd;

/* Bytes of top-k's message for a shard: k = ceil(density elements) values, and their places as
 * min(4 k, 2 k + 2 ceil(elements / 4096), ceil(elements / 8)), both filled up to multiples of 4. */
int64_t lt_cost_sparse_bytes(int64_t elements, double density, int value_bytes);

#endif
