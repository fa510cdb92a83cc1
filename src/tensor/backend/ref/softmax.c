/* Softmax of rows and its gradient, in double. Formulas: detail/kernels.h. */

#include "ref.h"

#include "lather/ext/elementary.h"

#include <math.h>

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
    double *z = lt_ref_gather_f64(x);
    if (!z)
        return LT_E_NOMEM;
    for (int64_t n = 0; n < rows; n++)
        softmax_row(z + n * count, count);
    lt_ref_scatter_f64(z, y);
    lt_free(z);
    return LT_OK;
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
    double *d = lt_ref_gather_f64(dy), *values = lt_ref_gather_f64(y);
    const lt_status st = d && values ? LT_OK : LT_E_NOMEM;
    for (int64_t n = 0; !st && n < rows; n++)
        gradient_row(values + n * count, d + n * count, count);
    if (!st)
        lt_ref_scatter_f64(d, dx);
    lt_free(d);
    lt_free(values);
    return st;
}
