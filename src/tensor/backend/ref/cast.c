/* Sets and converts elements. */

#include "ref.h"

/* Copies i64 elements without converting them to f64, which has only 53 bits. */
static void copy_i64(const lt_view *x, const lt_view *y, int dim, int64_t from, int64_t to)
{
    if (dim >= LT_MAX_DIMS || dim == y->shape.ndim) {
        ((int64_t *)y->data)[to] = ((const int64_t *)x->data)[from];
        return;
    }
    for (int64_t i = 0; i < y->shape.dim[dim]; i++)
        copy_i64(x, y, dim + 1, from + i * x->stride[dim], to + i * y->stride[dim]);
}

lt_status lt_ref_cast(void *ctx, const lt_view *x, const lt_view *y)
{
    (void)ctx;
    if (x->dtype == LT_I64 && y->dtype == LT_I64) {
        copy_i64(x, y, 0, 0, 0);
        return LT_OK;
    }
    lt_ref_call call = {0};
    double *values = lt_ref_gather_f64(&call, x);
    LT_TRY(call.status);
    lt_ref_scatter_f64(values, y);
    return lt_ref_finish(&call);
}

lt_status lt_ref_fill(void *ctx, double value, const lt_view *y)
{
    (void)ctx;
    int64_t count = lt_ref_element_count(y);
    double *values = NULL;
    LT_TRY(LT_ALLOC(&values, count));
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
    lt_ref_scatter_f64(values, y);
    lt_free(values);
    return LT_OK;
}
