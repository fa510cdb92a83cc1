/* Softmax of rows and its gradient, in double. Formulas: detail/kernels.h. */

#include "ref.h"

#include "lather/ext/elementary.h"

/* Replaces a row by its softmax, shifted by the maximum so that exp() cannot overflow. */
static void softmax_row(double *z, int64_t count)
{
    double top = z[0], sum = 0;
    for (int64_t k = 1; k < count; k++)
        top = z[k] > top ? z[k] : top;
    for (int64_t k = 0; k < count; k++)
        sum += z[k] = lt_f64_exp(z[k] - top);
    for (int64_t k = 0; k < count; k++)
        z[k] /= sum;
}

lt_status lt_ref_softmax(void *ctx, const lt_view *x, const lt_view *y)
{
    (void)ctx;
    const int64_t rows = x->shape.dim[0], count = x->shape.dim[1];
    lt_ref_call call = {0};
    double *z = lt_ref_gather_f64(&call, x);
    LT_TRY(call.status);
    for (int64_t n = 0; n < rows; n++)
        softmax_row(z + n * count, count);
    lt_ref_scatter_f64(z, y);
    return lt_ref_finish(&call);
}

static void gradient_row(const double *y, double *d, int64_t count)
{
    double sum = 0;
    for (int64_t k = 0; k < count; k++)
        sum += d[k] * y[k];
    for (int64_t k = 0; k < count; k++)
        d[k] = y[k] * (d[k] - sum);
}

lt_status lt_ref_softmax_grad(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    (void)ctx;
    const int64_t rows = y->shape.dim[0], count = y->shape.dim[1];
    lt_ref_call call = {0};
    double *d = lt_ref_gather_f64(&call, dy), *values = lt_ref_gather_f64(&call, y);
    for (int64_t n = 0; !call.status && n < rows; n++)
        gradient_row(values + n * count, d + n * count, count);
    if (!call.status)
        lt_ref_scatter_f64(d, dx);
    return lt_ref_finish(&call);
}
