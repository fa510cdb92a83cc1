/* Dealing parts of different cost out to ranks: arithmetic on arrays. */
#ifndef LT_OPTIM_ASSIGN_H
#define LT_OPTIM_ASSIGN_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/* Costs are integers, so that every rank comes to the same answer. */

/* owner[i], 0 .. ranks-1, of count parts: largest first (of equals, the first), each to the least
 * loaded rank (the lowest). Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_assign(const int64_t *cost, size_t count, int ranks, int *owner);

/* Moves parts away from the most loaded rank, or exchanges them for smaller ones, while that makes
 * it better, until it has at most 1 % more than the mean, or nothing but the largest part. */
LT_MUST_CHECK lt_status lt_assign_improve(const int64_t *cost, size_t count, int ranks, int *owner);

/* Exchanges owners of parts of equal cost while more elements are then where their parts are: local[i * ranks
 * + r] of part i are on rank r. Loads stay what they are. */
void lt_assign_local(const int64_t *cost, const int64_t *local, size_t count, int ranks,
                     int *owner);

/* load[r]: sum of what r owns. */
void lt_assign_loads(const int64_t *cost, size_t count, int ranks, const int *owner, int64_t *load);

#endif
