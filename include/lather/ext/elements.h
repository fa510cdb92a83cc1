/** Element access for operations with their own formula: views of any strides and dtype. */
#ifndef LATHER_EXT_ELEMENTS_H
#define LATHER_EXT_ELEMENTS_H

#include "lather/ext/op.h"

/** Reads elements first to first + count - 1 of a view in host memory, in row-major order of
 *  logical indices, as doubles; i64 beyond 2^53 loses digits. */
LT_API void lt_view_read(const lt_view *view, int64_t first, int64_t count, double *values);
/** Writes them, rounded to nearest even; to integers: towards zero, saturating, NaN to 0. */
LT_API void lt_view_write(const lt_view *view, int64_t first, int64_t count, const double *values);

/** Computes y[i] = f(x[0][i], x[1][i], ...) for count elements. config: the operation's. Several
 *  threads call it at once, on blocks that may begin anywhere. */
typedef void lt_map_fn(const void *config, int64_t count, const double *const *x, double *y);

enum { LT_MAX_MAPPED = 8 };

/** Fills y element by element, in forward or backward; the `count` inputs (at most
 *  LT_MAX_MAPPED) are broadcast to y. Arithmetic is in double for all dtypes. For host memory
 *  only: on other devices call the backend's kernels instead. Errors: LT_E_UNSUPPORTED (device
 *  memory), LT_E_SHAPE (an input does not fit), LT_E_ARG (too many inputs). */
LT_API LT_MUST_CHECK lt_status lt_op_map(lt_node *node, lt_map_fn *fn, const lt_view *const *x,
                                         int count, const lt_view *y);

#endif
