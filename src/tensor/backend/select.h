/* The largest magnitudes of an array, exactly. */
#ifndef LT_BACKEND_SELECT_H
#define LT_BACKEND_SELECT_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of work memory for n elements, aligned to 8. */
size_t lt_select_workspace(int64_t n);

/* index: the places of the count largest |x| of x[n], ascending; of equal ones the lower place. A NaN
 * counts as larger than infinity. 1 <= count <= n < 2^32. On the calling thread's team, the same answer for
 * any number of threads. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_select_topk(const float *x, int64_t n, int64_t count, uint32_t *index,
                                       void *workspace);

#endif
