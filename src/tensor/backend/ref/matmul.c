/* Matrix products. Formulas: detail/kernels.h, part 2. */

#include "real.h"
#include "ref.h"

#include <string.h>

/* y[n] += a[k] * b[k,n], a row of a product; sums run over k in order. */
static void multiply_add(const real *a, const real *b, real *y, int64_t columns, int64_t depth)
{
    for (int64_t k = 0; k < depth; k++)
        for (int64_t n = 0; n < columns; n++)
            y[n] += a[k] * b[k * columns + n];
}

/* Gathers an operand. An f32 parameter is rounded to the other operand's dtype if that has 16 bits. */
static real *gather_operand(lt_ref_call *call, const lt_view *x, const lt_view *other)
{
    return x->dtype == LT_F32 && x->version ? NAME(gather_rounded)(call, x, other->dtype)
                                            : NAME(gather)(call, x);
}

lt_status ENTRY(matmul)(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    IF_F64(y, matmul, ctx, a, b, y);
    lt_ref_call call = {0};
    int64_t rows = y->shape.dim[1], columns = y->shape.dim[2], depth = a->shape.dim[2];
    real *u = gather_operand(&call, a, b), *v = gather_operand(&call, b, a);
    real *w = lt_ref_array(&call, columns, sizeof *w);
    if (!call.status) {
        for (int64_t i = 0; i < y->shape.dim[0] * rows; i++) {
            memset(w, 0, (size_t)columns * sizeof *w);
            multiply_add(u + i * depth, v + i / rows * depth * columns, w, columns, depth);
            NAME(store)(y, i * columns, columns, w);
        }
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(linear)(void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
                        const lt_view *y)
{
    IF_F64(y, linear, ctx, x, w, bias, y);
    lt_ref_call call = {0};
    int64_t columns = y->shape.dim[1], depth = x->shape.dim[1];
    lt_view wt = *w;
    wt.shape.dim[0] = w->shape.dim[1];
    wt.shape.dim[1] = w->shape.dim[0];
    wt.stride[0] = w->stride[1];
    wt.stride[1] = w->stride[0];
    real *v = NAME(gather_rounded)(&call, &wt, x->dtype);
    real *b =
        lt_ref_has_data(bias) ? NAME(gather)(&call, bias) : lt_ref_array(&call, columns, sizeof *b);
    real *u = lt_ref_array(&call, depth, sizeof *u);
    real *out = lt_ref_array(&call, columns, sizeof *out);
    if (!call.status) {
        for (int64_t i = 0; i < y->shape.dim[0]; i++) {
            NAME(load)(x, i * depth, depth, u);
            memcpy(out, b, (size_t)columns * sizeof *out);
            multiply_add(u, v, out, columns, depth);
            NAME(store)(y, i * columns, columns, out);
        }
    }
    return lt_ref_finish(&call);
}
