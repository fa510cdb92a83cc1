/* Group normalisation: moments of each group of each image in two passes, sums in double. Wu & He, "Group
 * Normalization", ECCV 2018, and the chain rule. Formulas: detail/norm_kernels.h. */

#include "real.h"
#include "ref.h"

#include <math.h>

typedef struct sizes {
    int64_t n, c, pixels, groups, size; /* size: values in a group of an image */
} sizes;

static sizes get_sizes(const lt_view *x, const lt_group_norm_config *config)
{
    const int64_t c = x->shape.dim[1], pixels = x->shape.dim[2] * x->shape.dim[3];
    return (sizes){x->shape.dim[0], c, pixels, config->groups, c / config->groups * pixels};
}

/* Computes mean and variance of a group of an image, which is contiguous in row-major memory. */
static void group_moments(const real *x, int64_t count, double *mean, double *var)
{
    double sum = 0, square = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i];
    *mean = sum / (double)count;
    for (int64_t i = 0; i < count; i++)
        square += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *var = square / (double)count;
}

/* Returns the channel's value for row-major element i, or `otherwise` without values. */
static real channel_value_or(const real *values, sizes e, int64_t i, real otherwise)
{
    return values ? values[i / e.pixels % e.c] : otherwise;
}

lt_status ENTRY(group_norm)(void *ctx, const lt_group_norm_config *config, const lt_view *x,
                            const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                            const lt_view *y)
{
    IF_F64(y, group_norm, ctx, config, x, gamma, beta, stats, y);
    (void)ctx;
    const sizes e = get_sizes(x, config);
    const int64_t all = e.n * e.groups;
    lt_status st = LT_E_NOMEM;
    real *u = NAME(gather)(x), *g = gamma ? NAME(gather)(gamma) : NULL;
    real *b = beta ? NAME(gather)(beta) : NULL;
    double *s = lt_alloc(2 * (size_t)all, sizeof *s);
    if (u && s && !gamma == !g && !beta == !b) {
        for (int64_t k = 0; k < all; k++) {
            double var;
            group_moments(u + k * e.size, e.size, &s[k], &var);
            s[all + k] = 1 / sqrt(var + config->eps);
        }
        for (int64_t i = 0; i < all * e.size; i++) {
            const double *mean = &s[i / e.size], hat = ((double)u[i] - *mean) * mean[all];
            u[i] = (real)hat * channel_value_or(g, e, i, 1) + channel_value_or(b, e, i, 0);
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
    sizes e;
    real *dy, *x, *gamma;
    double *stats;
} parts;

static double normalized_value(const parts *p, int64_t i)
{
    const double *mean = &p->stats[i / p->e.size];
    return ((double)p->x[i] - mean[0]) * mean[p->e.n * p->e.groups];
}

/* dx = rstd * (h - mean(h) - xhat * mean(h * xhat)), h = gamma * dy, means over the group. */
static void compute_group_dx(const parts *p, int64_t group, real *dx)
{
    const sizes e = p->e;
    const double rstd = p->stats[e.n * e.groups + group];
    double sum = 0, product = 0;
    for (int64_t i = group * e.size; i < (group + 1) * e.size; i++) {
        const double h = (double)p->dy[i] * (double)channel_value_or(p->gamma, e, i, 1);
        sum += h;
        product += h * normalized_value(p, i);
    }
    for (int64_t i = group * e.size; i < (group + 1) * e.size; i++) {
        const double h = (double)p->dy[i] * (double)channel_value_or(p->gamma, e, i, 1);
        const double away = (sum + normalized_value(p, i) * product) / (double)e.size;
        dx[i] = (real)(rstd * (h - away));
    }
}

/* dgamma[c] = sum of dy * xhat, dbeta[c] = sum of dy, over images and pixels. sums: [2,C]. */
static void sum_affine_grads(const parts *p, double *sums)
{
    for (int64_t i = 0; i < p->e.n * p->e.c * p->e.pixels; i++) {
        const int64_t c = i / p->e.pixels % p->e.c;
        sums[c] += (double)p->dy[i] * normalized_value(p, i);
        sums[p->e.c + c] += (double)p->dy[i];
    }
}

static void compute_and_write_grads(const parts *p, const lt_group_norm_grad *g, real *dx,
                                    double *sums)
{
    if (g->dx) {
        for (int64_t k = 0; k < p->e.n * p->e.groups; k++)
            compute_group_dx(p, k, dx);
        NAME(scatter)(dx, g->dx);
    }
    sum_affine_grads(p, sums);
    if (g->dgamma)
        lt_ref_scatter_f64(sums, g->dgamma);
    if (g->dbeta)
        lt_ref_scatter_f64(sums + p->e.c, g->dbeta);
}

lt_status ENTRY(group_norm_grad)(void *ctx, const lt_group_norm_config *config,
                                 const lt_group_norm_grad *g)
{
    IF_F64(g->x, group_norm_grad, ctx, config, g);
    (void)ctx;
    lt_status st = LT_E_NOMEM;
    parts p = {get_sizes(g->x, config), NAME(gather)(g->dy), NAME(gather)(g->x),
               g->gamma ? NAME(gather)(g->gamma) : NULL, lt_ref_gather_f64(g->stats)};
    real *dx = lt_alloc((size_t)lt_ref_element_count(g->x), sizeof *dx);
    double *sums = lt_alloc(2 * (size_t)p.e.c, sizeof *sums);
    if (p.dy && p.x && !g->gamma == !p.gamma && p.stats && dx && sums) {
        compute_and_write_grads(&p, g, dx, sums);
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
