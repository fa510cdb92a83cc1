/* Assignment of parts of different cost to ranks. */
#ifndef LT_OPTIM_ASSIGN_H
#define LT_OPTIM_ASSIGN_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/* Functions on integer costs of parts, so that every rank computes the same assignment. */

/* Sets owner[i], 0 to ranks-1, of count parts: most expensive first (of equals, the first), each to the least
 * loaded rank (the lowest). Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_assign(const int64_t *cost, size_t count, int ranks, int *owner);

/* Moves parts from the most loaded rank to others, or exchanges them for cheaper ones, until its load exceeds the
 * mean by at most 1 %, or it has only the most expensive part, or no change helps. */
LT_MUST_CHECK lt_status lt_assign_improve(const int64_t *cost, size_t count, int ranks, int *owner);

/* Exchanges owners of parts of equal cost as long as that places more elements on their owners: rank r holds
 * local[i * ranks + r] elements of part i. Loads are unchanged. */
void lt_assign_prefer_local(const int64_t *cost, const int64_t *local, size_t count, int ranks,
                            int *owner);

/* Sets load[r] to the total cost of the parts that rank r owns. */
void lt_assign_compute_loads(const int64_t *cost, size_t count, int ranks, const int *owner,
                             int64_t *load);

#endif
