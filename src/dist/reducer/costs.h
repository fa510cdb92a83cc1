/* Cost model rows of the library's reducers. */
#ifndef LT_DIST_REDUCER_COSTS_H
#define LT_DIST_REDUCER_COSTS_H

#include "lather/detail/comm_cost.h"

extern const lt_cost_row lt_cost_topk, lt_cost_powersgd;

/* Returns the bytes of top-k's message for a shard; value_bytes: 2 or 4. See lt_sparse_layout(). */
int64_t lt_cost_sparse_bytes(int64_t elements, double density, int value_bytes);

#endif
