/* Views of a reduction's operands as rows. */
#ifndef LT_TENSOR_BACKEND_REDUCED_ROWS_H
#define LT_TENSOR_BACKEND_REDUCED_ROWS_H

#include "lather/detail/view.h"

/* Returns x with the reduced dimensions, in which y has size 1, last; *count gets the number of elements of a
 * row. Row r, the elements from r * count on, belongs to element r of y, in row-major order. */
static inline lt_view lt_reduced_rows(const lt_view *x, const lt_view *y, int64_t *count)
{
    lt_view v = *x;
    int to = 0;
    *count = 1;
    for (int reduced = 0; reduced < 2; reduced++)
        for (int d = 0; d < x->shape.ndim; d++) {
            if ((y->shape.dim[d] == 1) != reduced)
                continue;
            v.shape.dim[to] = x->shape.dim[d];
            v.stride[to++] = x->stride[d];
            *count *= reduced ? x->shape.dim[d] : 1;
        }
    return v;
}

#endif
