/* Tensor contractions of Shampoo, in double: Gupta, Koren & Singer, "Shampoo: preconditioned stochastic
 * tensor optimization", ICML 2018, algorithm 2. */

#include "ref.h"

#include <math.h>

/* A tensor unfolded along one of its dimensions: [outer, n, inner]. */
typedef struct unfolding {
    int64_t outer, n, inner;
} unfolding;

static unfolding unfold(const lt_view *g, int dim)
{
    unfolding s = {1, g->shape.dim[dim], 1};
    for (int d = 0; d < g->shape.ndim; d++) {
        if (d < dim)
            s.outer *= g->shape.dim[d];
        if (d > dim)
            s.inner *= g->shape.dim[d];
    }
    return s;
}

static double slice_dot_product(const double *g, unfolding s, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t o = 0; o < s.outer; o++) {
        const double *a = g + (o * s.n + i) * s.inner, *b = g + (o * s.n + j) * s.inner;
        for (int64_t k = 0; k < s.inner; k++)
            sum += a[k] * b[k];
    }
    return sum;
}

static lt_status run_gram_job(const lt_gram_job *job)
{
    lt_ref_call call = {0};
    unfolding s = unfold(&job->g, job->dim);
    double *g = lt_ref_gather_f64(&call, &job->g), *f = lt_ref_gather_f64(&call, &job->f);
    if (!call.status) {
        for (int64_t i = 0; i < s.n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double kept = job->beta == 0 ? 0 : job->beta * f[i * s.n + j];
                f[i * s.n + j] = f[j * s.n + i] = kept + job->alpha * slice_dot_product(g, s, i, j);
            }
        lt_ref_scatter_f64(f, &job->f);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_gram(void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars)
{
    (void)ctx;
    for (size_t i = 0; (!scalars || scalars->finite) && i < count; i++)
        LT_TRY(run_gram_job(&job[i]));
    return LT_OK;
}

/* y[o,i,k] += sum over j of m(i,j) * g[o,j,k]. */
static void mode_multiply(const double *m, bool transpose, const double *g, double *y, unfolding s)
{
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t ij = 0; ij < s.n * s.n; ij++) {
            int64_t i = ij / s.n, j = ij % s.n;
            double factor = m[transpose ? j * s.n + i : ij];
            const double *from = g + (o * s.n + j) * s.inner;
            double *to = y + (o * s.n + i) * s.inner;
            for (int64_t k = 0; k < s.inner; k++)
                to[k] += factor * from[k];
        }
}

static lt_status run_mode_product_job(const lt_mode_product_job *job)
{
    lt_ref_call call = {0};
    unfolding s = unfold(&job->g, job->dim);
    double *g = lt_ref_gather_f64(&call, &job->g), *m = lt_ref_gather_f64(&call, &job->m);
    double *y = lt_ref_array(&call, lt_ref_element_count(&job->y), sizeof *y);
    if (!call.status) {
        mode_multiply(m, job->transpose, g, y, s);
        lt_ref_scatter_f64(y, &job->y);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_mode_product(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    (void)ctx;
    for (size_t i = 0; (!scalars || scalars->finite) && i < count; i++)
        LT_TRY(run_mode_product_job(&job[i]));
    return LT_OK;
}

lt_status lt_ref_frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    double *norm = out->data;
    (void)ctx;
    for (size_t i = 0; i < count; i++) {
        lt_ref_call call = {0};
        double *values = lt_ref_gather_f64(&call, &x[i]), square = 0;
        LT_TRY(call.status);
        for (int64_t j = 0, elements = lt_ref_element_count(&x[i]); j < elements; j++)
            square += values[j] * values[j];
        norm[i * (size_t)out->stride[0]] = sqrt(square);
        LT_TRY(lt_ref_finish(&call));
    }
    return LT_OK;
}
