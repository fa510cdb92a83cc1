/* Exact selection of the k elements of largest magnitude. */
#ifndef LT_BACKEND_SELECT_H
#define LT_BACKEND_SELECT_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/* Returns the bytes of workspace for n elements, aligned to 8. */
size_t lt_select_workspace(int64_t n);

/* Writes the positions of the count largest |x| of x[n] to index, ascending; of equal values the lower
 * position is taken. NaN counts as larger than infinity. 1 <= count <= n < 2^32. Runs on the calling
 * thread's team; the result is the same for any number of threads. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_select_topk(const float *x, int64_t n, int64_t count, uint32_t *index,
                                       void *workspace);
/* lt_select_topk() for doubles, by sorting all of them: slow, for tests. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_select_topk_f64(const double *x, int64_t n, int64_t count,
                                           uint32_t *index);

#endif
