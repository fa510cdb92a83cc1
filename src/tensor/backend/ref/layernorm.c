/* Layer and RMS normalisation of rows: moments in two passes, sums in double. Ba, Kiros & Hinton, "Layer
 * Normalization", 2016, and the chain rule. Formulas: detail/norm_kernels.h. */

#include "real.h"
#include "ref.h"

#include <math.h>

/* Computes mean and 1/sqrt(var + eps) of a row; with rms the mean is 0. */
static void row_moments(const real *x, int64_t count, const lt_layernorm_config *config,
                        double *mean, double *rstd)
{
    double sum = 0, square = 0;
    for (int64_t c = 0; c < count && !config->rms; c++)
        sum += (double)x[c];
    *mean = sum / (double)count;
    for (int64_t c = 0; c < count; c++)
        square += ((double)x[c] - *mean) * ((double)x[c] - *mean);
    *rstd = 1 / sqrt(square / (double)count + config->eps);
}

static real channel_value_or(const real *values, int64_t c, real otherwise)
{
    return values ? values[c] : otherwise;
}

lt_status ENTRY(layernorm)(void *ctx, const lt_layernorm_config *config, const lt_view *x,
                           const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                           const lt_view *y)
{
    IF_F64(y, layernorm, ctx, config, x, gamma, beta, stats, y);
    (void)ctx;
    const int64_t rows = x->shape.dim[0], count = x->shape.dim[1];
    lt_status st = LT_E_NOMEM;
    real *u = NAME(gather)(x), *g = gamma ? NAME(gather)(gamma) : NULL;
    real *b = beta ? NAME(gather)(beta) : NULL;
    double *s = lt_alloc(2 * (size_t)rows + 1, sizeof *s);
    if (u && s && !gamma == !g && !beta == !b) {
        for (int64_t n = 0; n < rows; n++) {
            real *row = u + n * count;
            row_moments(row, count, config, &s[n], &s[rows + n]);
            for (int64_t c = 0; c < count; c++)
                row[c] = (real)(((double)row[c] - s[n]) * s[rows + n]) * channel_value_or(g, c, 1)
                         + channel_value_or(b, c, 0);
        }
        lt_ref_scatter_f64(s, stats);
        NAME(scatter)(u, y);
        st = LT_OK;
    }
    lt_free(u);
    lt_free(g);
    lt_free(b);
    lt_free(s);
    return st;
}

/* Gathered inputs of the gradient. */
typedef struct parts {
    int64_t rows, count;
    real *dy, *x, *gamma;
    double *stats;
} parts;

static double normalized_value(const parts *p, int64_t n, int64_t c)
{
    return ((double)p->x[n * p->count + c] - p->stats[n]) * p->stats[p->rows + n];
}

/* dx = rstd * (h - mean(h) - xhat * mean(h * xhat)), h = gamma * dy; with rms without mean(h). */
static void compute_row_dx(const parts *p, bool rms, int64_t n, real *dx)
{
    const double rstd = p->stats[p->rows + n], count = (double)p->count;
    const real *dy = p->dy + n * p->count;
    double sum = 0, product = 0;
    for (int64_t c = 0; c < p->count; c++) {
        const double h = (double)dy[c] * (double)channel_value_or(p->gamma, c, 1);
        sum += rms ? 0 : h;
        product += h * normalized_value(p, n, c);
    }
    for (int64_t c = 0; c < p->count; c++) {
        const double h = (double)dy[c] * (double)channel_value_or(p->gamma, c, 1);
        dx[n * p->count + c] =
            (real)(rstd * (h - sum / count - normalized_value(p, n, c) * product / count));
    }
}

/* Sums dy, or dy times the normalised x, over the rows. */
static void compute_affine_grad(const parts *p, bool of_product, const lt_view *out, double *sums)
{
    for (int64_t c = 0; c < p->count; c++) {
        sums[c] = 0;
        for (int64_t n = 0; n < p->rows; n++)
            sums[c] +=
                (double)p->dy[n * p->count + c] * (of_product ? normalized_value(p, n, c) : 1);
    }
    lt_ref_scatter_f64(sums, out);
}

static void compute_and_write_grads(const parts *p, bool rms, const lt_layernorm_grad *g, real *dx,
                                    double *sums)
{
    if (g->dgamma)
        compute_affine_grad(p, true, g->dgamma, sums);
    if (g->dbeta)
        compute_affine_grad(p, false, g->dbeta, sums);
    for (int64_t n = 0; g->dx && n < p->rows; n++)
        compute_row_dx(p, rms, n, dx);
    if (g->dx)
        NAME(scatter)(dx, g->dx);
}

lt_status ENTRY(layernorm_grad)(void *ctx, const lt_layernorm_config *config,
                                const lt_layernorm_grad *g)
{
    IF_F64(g->x, layernorm_grad, ctx, config, g);
    (void)ctx;
    lt_status st = LT_E_NOMEM;
    parts p = {g->x->shape.dim[0],
               g->x->shape.dim[1],
               NAME(gather)(g->dy),
               NAME(gather)(g->x),
               g->gamma ? NAME(gather)(g->gamma) : NULL,
               lt_ref_gather_f64(g->stats)};
    real *dx = lt_alloc((size_t)(p.rows * p.count) + 1, sizeof *dx);
    double *sums = lt_alloc((size_t)p.count, sizeof *sums);
    if (p.dy && p.x && !g->gamma == !p.gamma && p.stats && dx && sums) {
        compute_and_write_grads(&p, config->rms, g, dx, sums);
        st = LT_OK;
    }
    lt_free(p.dy);
    lt_free(p.x);
    lt_free(p.gamma);
    lt_free(p.stats);
    lt_free(dx);
    lt_free(sums);
    return st;
}
