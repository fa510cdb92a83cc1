/** For operations with a formula of their own: the elements of views of any strides and dtype. */
#ifndef LATHER_EXT_ELEMENTS_H
#define LATHER_EXT_ELEMENTS_H

#include "lather/ext/op.h"

/** Elements first .. first + count - 1 of a view in host memory, counted in row-major order of logical
 *  indices, as numbers; i64 beyond 2^53 loses digits. */
LT_API void lt_view_read(const lt_view *view, int64_t first, int64_t count, double *values);
/** Sets them, rounding to nearest even; integers: towards zero, saturating, NaN to 0. */
LT_API void lt_view_write(const lt_view *view, int64_t first, int64_t count, const double *values);

/** y[i] = f(x[0][i], x[1][i], ...) for count elements. config: the operation's. Several threads call it
 *  at once, on pieces that may begin anywhere. */
typedef void lt_map_fn(const void *config, int64_t count, const double *const *x, double *y);

enum { LT_MAX_MAPPED = 8 };

/** Fills y element by element, in forward or backward; inputs (count of them, at most LT_MAX_MAPPED)
 *  are broadcast over y. Arithmetic is in double whatever the dtypes are. The memory must be the
 *  host's: on another device, call entries of its backend's table instead.
 *  Errors: LT_E_UNSUPPORTED (a device with memory of its own), LT_E_SHAPE (an input does not fit),
 *  LT_E_ARG (too many inputs). */
LT_API LT_MUST_CHECK lt_status lt_op_map(lt_node *node, lt_map_fn *fn, const lt_view *const *x,
                                         int count, const lt_view *y);

#endif
