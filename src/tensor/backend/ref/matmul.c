/* Matrix products. Formulas: detail/kernels.h, part 2. */

#include "real.h"
#include "ref.h"

/* y[m,n] += a[m,k] * b[k,n]; sums run over k in order. */
static void multiply_add(const real *a, const real *b, real *y, const int64_t mnk[3])
{
    int64_t rows = mnk[0], columns = mnk[1], depth = mnk[2];
    for (int64_t m = 0; m < rows; m++)
        for (int64_t k = 0; k < depth; k++) {
            real factor = a[m * depth + k];
            for (int64_t n = 0; n < columns; n++)
                y[m * columns + n] += factor * b[k * columns + n];
        }
}

/* An f32 parameter multiplied with 16-bit data counts as rounded to their dtype. */
static real *gather_factor(const lt_view *x, const lt_view *other)
{
    return x->dtype == LT_F32 && x->version ? NAME(gather_rounded)(x, other->dtype)
                                            : NAME(gather)(x);
}

lt_status ENTRY(matmul)(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    IF_F64(y, matmul, ctx, a, b, y);
    (void)ctx;
    lt_status st = LT_E_NOMEM;
    int64_t mnk[3] = {y->shape.dim[1], y->shape.dim[2], a->shape.dim[2]};
    real *u = gather_factor(a, b), *v = gather_factor(b, a);
    real *w = lt_alloc((size_t)lt_ref_count(y), sizeof *w);
    if (u && v && w) {
        for (int64_t i = 0; i < y->shape.dim[0]; i++)
            multiply_add(u + i * mnk[0] * mnk[2], v + i * mnk[2] * mnk[1], w + i * mnk[0] * mnk[1],
                         mnk);
        NAME(scatter)(w, y);
        st = LT_OK;
    }
    lt_free(u);
    lt_free(v);
    lt_free(w);
    return st;
}

lt_status ENTRY(linear)(void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
                        const lt_view *y)
{
    IF_F64(y, linear, ctx, x, w, bias, y);
    (void)ctx;
    lt_status st = LT_E_NOMEM;
    int64_t mnk[3] = {y->shape.dim[0], y->shape.dim[1], x->shape.dim[1]};
    lt_view wt = *w;
    wt.shape.dim[0] = w->shape.dim[1];
    wt.shape.dim[1] = w->shape.dim[0];
    wt.stride[0] = w->stride[1];
    wt.stride[1] = w->stride[0];
    real *u = NAME(gather)(x), *v = NAME(gather_rounded)(&wt, x->dtype);
    real *b = lt_ref_has(bias) ? NAME(gather)(bias) : lt_alloc((size_t)mnk[1], sizeof *b);
    real *out = lt_alloc((size_t)lt_ref_count(y), sizeof *out);
    if (u && v && b && out) {
        for (int64_t i = 0, count = mnk[0] * mnk[1]; i < count; i++)
            out[i] = b[i % mnk[1]];
        multiply_add(u, v, out, mnk);
        NAME(scatter)(out, y);
        st = LT_OK;
    }
    lt_free(u);
    lt_free(v);
    lt_free(b);
    lt_free(out);
    return st;
}
