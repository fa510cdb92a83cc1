/* Group, layer and RMS normalisation: moments of each group of each image in two passes, sums in double. Layer
 * normalisation of rows [N,C] is one group of images of one pixel. Wu & He, "Group Normalization", ECCV 2018; Ba, Kiros &
 * Hinton, "Layer Normalization", 2016; and the chain rule. Formulas: detail/norm_kernels.h. */

#include "real.h"
#include "ref.h"

#include <math.h>

typedef struct sizes {
    int64_t n, c, pixels, groups, size; /* size: values in a group of an image */
    double eps;
    bool rms; /* the mean is 0 */
} sizes;

static sizes sizes_of_images(const lt_view *x, const lt_group_norm_config *config)
{
    const int64_t c = x->shape.dim[1], pixels = x->shape.dim[2] * x->shape.dim[3];
    return (sizes){x->shape.dim[0], c,    pixels, config->groups, c / config->groups * pixels,
                   config->eps,     false};
}

static sizes sizes_of_rows(const lt_view *x, const lt_layernorm_config *config)
{
    const int64_t c = x->shape.dim[1];
    return (sizes){x->shape.dim[0], c, 1, 1, c, config->eps, config->rms};
}

/* Computes mean and 1/sqrt(var + eps) of a group of an image, which is contiguous in row-major memory. */
static void group_moments(sizes e, const real *x, double *mean, double *rstd)
{
    double sum = 0, square = 0;
    for (int64_t i = 0; i < e.size && !e.rms; i++)
        sum += (double)x[i];
    *mean = sum / (double)e.size;
    for (int64_t i = 0; i < e.size; i++)
        square += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *rstd = 1 / sqrt(square / (double)e.size + e.eps);
}

/* Returns the channel's value for row-major element i, or `otherwise` without values. */
static real channel_value_or(const real *values, sizes e, int64_t i, real otherwise)
{
    return values ? values[i / e.pixels % e.c] : otherwise;
}

static lt_status normalize(sizes e, const lt_view *x, const lt_view *gamma, const lt_view *beta,
                           const lt_view *stats, const lt_view *y)
{
    const int64_t all = e.n * e.groups;
    lt_ref_call call = {0};
    real *u = NAME(gather)(&call, x), *g = NAME(gather)(&call, gamma);
    real *b = NAME(gather)(&call, beta);
    double *s = lt_ref_array(&call, 2 * all, sizeof *s);
    if (!call.status) {
        for (int64_t k = 0; k < all; k++)
            group_moments(e, u + k * e.size, &s[k], &s[all + k]);
        for (int64_t i = 0; i < all * e.size; i++) {
            const double *mean = &s[i / e.size], hat = ((double)u[i] - *mean) * mean[all];
            u[i] = (real)hat * channel_value_or(g, e, i, 1) + channel_value_or(b, e, i, 0);
        }
        lt_ref_scatter_f64(s, stats);
        NAME(scatter)(u, y);
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(group_norm)(void *ctx, const lt_group_norm_config *config, const lt_view *x,
                            const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                            const lt_view *y)
{
    IF_F64(y, group_norm, ctx, config, x, gamma, beta, stats, y);
    return normalize(sizes_of_images(x, config), x, gamma, beta, stats, y);
}

lt_status ENTRY(layernorm)(void *ctx, const lt_layernorm_config *config, const lt_view *x,
                           const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                           const lt_view *y)
{
    IF_F64(y, layernorm, ctx, config, x, gamma, beta, stats, y);
    return normalize(sizes_of_rows(x, config), x, gamma, beta, stats, y);
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

/* dx = rstd * (h - mean(h) - xhat * mean(h * xhat)), h = gamma * dy, means over the group; with rms without mean(h). */
static void compute_group_dx(const parts *p, int64_t group, real *dx)
{
    const sizes e = p->e;
    const double rstd = p->stats[e.n * e.groups + group];
    double sum = 0, product = 0;
    for (int64_t i = group * e.size; i < (group + 1) * e.size; i++) {
        const double h = (double)p->dy[i] * (double)channel_value_or(p->gamma, e, i, 1);
        sum += e.rms ? 0 : h;
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

static lt_status normalize_grad(sizes e, const lt_group_norm_grad *g)
{
    lt_ref_call call = {0};
    const parts p = {e, NAME(gather)(&call, g->dy), NAME(gather)(&call, g->x),
                     NAME(gather)(&call, g->gamma), lt_ref_gather_f64(&call, g->stats)};
    real *dx = lt_ref_array(&call, lt_ref_element_count(g->x), sizeof *dx);
    double *sums = lt_ref_array(&call, 2 * e.c, sizeof *sums);
    if (!call.status)
        compute_and_write_grads(&p, g, dx, sums);
    return lt_ref_finish(&call);
}

lt_status ENTRY(group_norm_grad)(void *ctx, const lt_group_norm_config *config,
                                 const lt_group_norm_grad *g)
{
    IF_F64(g->x, group_norm_grad, ctx, config, g);
    return normalize_grad(sizes_of_images(g->x, config), g);
}

lt_status ENTRY(layernorm_grad)(void *ctx, const lt_layernorm_config *config,
                                const lt_layernorm_grad *g)
{
    IF_F64(g->x, layernorm_grad, ctx, config, g);
    return normalize_grad(
        sizes_of_rows(g->x, config),
        &(lt_group_norm_grad){g->dy, g->x, g->gamma, g->stats, g->dx, g->dgamma, g->dbeta});
}
