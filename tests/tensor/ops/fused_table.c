/* The fused kernels, composed of ref's. */

#include "fused_table.h"

#include "near.h"

#include "lather/ext/fail.h"

#include <string.h>

calls seen;

static lt_status fake_conv2d_stats(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                                   const lt_view *w, const lt_view *y, const lt_view *stats,
                                   bool *sums)
{
    if (sums)
        *sums = false;
    seen.stats++;
    LT_TRY(lt_backend_ref()->conv2d(ctx, config, x, w, NULL, y));
    return lt_backend_ref()->batchnorm_stats(ctx, y, stats);
}

static lt_status fake_grad_x_sums(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                  const lt_view *w, const lt_batchnorm_before *norm,
                                  const lt_view *dx, const lt_view *sums)
{
    const lt_backend *ref = lt_backend_ref();
    lt_batchnorm_grad in = {.dy = {*dx}, .x = norm->x, .coef = norm->coef, .relu = true};
    double unmasked[FUSED_MOST];
    seen.sums++;
    assert_int_equal(norm->gamma->shape.dim[0], sums->shape.dim[1]);
    assert_int_equal(norm->beta->shape.dim[0], sums->shape.dim[1]);
    in.dy[0].data = unmasked;
    LT_TRY(ref->conv2d_grad_x(ctx, config, dy, w, &in.dy[0]));
    LT_TRY(ref->batchnorm_grad_stats(ctx, &in, dx, sums));
    return seen.spoils ? ref->scale(ctx, 1.001, sums, sums) : LT_OK;
}

/* relu(batchnorm(x)), in memory of the test. */
static lt_view applied(void *ctx, const lt_batchnorm_before *norm, double *memory)
{
    const lt_batchnorm2d_config config = {.relu = true};
    lt_view y = *norm->x;
    y.data = memory;
    assert_ok(lt_backend_ref()->batchnorm_apply(ctx, &config, norm->x, norm->coef, NULL, &y, NULL));
    return y;
}

static lt_status fake_norm_stats(void *ctx, const lt_conv2d_config *config,
                                 const lt_batchnorm_before *norm, const lt_view *w,
                                 const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    double memory[FUSED_MOST];
    how->done = !seen.declines;
    if (!how->done)
        return LT_OK;
    seen.norm_stats++;
    const lt_view x = applied(ctx, norm, memory);
    LT_TRY(lt_backend_ref()->conv2d(ctx, config, &x, w, NULL, y));
    return lt_backend_ref()->batchnorm_stats(ctx, y, stats);
}

static lt_status fake_norm_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                  const lt_batchnorm_before *norm, const lt_view *dw, bool *done)
{
    double memory[FUSED_MOST];
    *done = !seen.declines;
    if (!*done)
        return LT_OK;
    seen.norm_grad_w++;
    const lt_view x = applied(ctx, norm, memory);
    return lt_backend_ref()->conv2d_grad_w(ctx, config, dy, &x, dw);
}

static lt_status fake_add(void *ctx, const lt_batchnorm2d_config *config,
                          const lt_batchnorm_addend term[2], const lt_view *y, const lt_view *mask)
{
    const lt_batchnorm2d_config plain = {0};
    double memory[FUSED_MOST];
    lt_view other = *term[1].x;
    other.data = memory;
    seen.adds++;
    const lt_backend *ref = lt_backend_ref();
    LT_TRY(ref->batchnorm_apply(ctx, &plain, term[1].x, term[1].coef, NULL, &other, NULL));
    return ref->batchnorm_apply(ctx, config, term[0].x, term[0].coef, &other, y, mask);
}

static lt_status fake_pool(void *ctx, const lt_pool2d_config *config,
                           const lt_batchnorm_before *norm, const lt_view *y, const lt_view *index)
{
    double memory[FUSED_MOST];
    seen.pools++;
    const lt_view x = applied(ctx, norm, memory);
    return lt_backend_ref()->maxpool2d(ctx, config, &x, y, index);
}

static lt_status finish_along(void *ctx, lt_batchnorm_grad in, const lt_batchnorm_fused_grad *norm)
{
    in.x = norm->x;
    in.coef = norm->coef;
    memcpy(in.affine, norm->affine, sizeof in.affine);
    return lt_backend_ref()->batchnorm_grad_x(ctx, &in, norm->sums, norm->count, norm->dx);
}

static lt_status fake_add_grad(void *ctx, const lt_batchnorm_grad *in,
                               const lt_batchnorm_fused_grad norm[2])
{
    const lt_backend *ref = lt_backend_ref();
    double memory[FUSED_MOST];
    lt_batchnorm_grad masked = {.dy = {*in->x}};
    masked.dy[0].data = memory;
    seen.add_grads++;
    LT_TRY(ref->batchnorm_grad_stats(ctx, in, &masked.dy[0], norm[0].sums));
    masked.x = norm[1].x;
    masked.coef = norm[1].coef;
    LT_TRY(ref->batchnorm_grad_stats(ctx, &masked, NULL, norm[1].sums));
    LT_TRY(finish_along(ctx, masked, &norm[0]));
    return finish_along(ctx, masked, &norm[1]);
}

static lt_status fake_pool_grad(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                                const lt_view *index, const lt_batchnorm_fused_grad *norm)
{
    double memory[FUSED_MOST];
    lt_batchnorm_grad in = {.dy = {*norm->x}, .x = norm->x, .coef = norm->coef, .relu = true};
    in.dy[0].data = memory;
    seen.pool_grads++;
    LT_TRY(lt_backend_ref()->maxpool2d_grad(ctx, config, dy, index, &in.dy[0]));
    LT_TRY(lt_backend_ref()->batchnorm_grad_stats(ctx, &in, NULL, norm->sums));
    return finish_along(ctx, in, norm);
}

static lt_status count_apply(void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
                             const lt_view *coef, const lt_view *residual, const lt_view *y,
                             const lt_view *mask)
{
    seen.applies++;
    if (seen.refuses)
        return lt_fail(LT_E_DEVICE, "fake: rejected");
    return lt_backend_ref()->batchnorm_apply(ctx, config, x, coef, residual, y, mask);
}

static lt_status count_stats(void *ctx, const lt_view *x, const lt_view *stats)
{
    seen.batchnorm_stats++;
    return lt_backend_ref()->batchnorm_stats(ctx, x, stats);
}

static lt_status count_grad_stats(void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
                                  const lt_view *sums)
{
    seen.batchnorm_grad_stats++;
    return lt_backend_ref()->batchnorm_grad_stats(ctx, in, g, sums);
}

lt_device *open_device(lt_backend *table, level fused)
{
    lt_device *d = NULL;
    assert_ok(lt_device_open(&d, "ref", &(lt_device_config){.f64 = true}));
    *table = *lt_backend_ref();
    table->batchnorm_stats = count_stats;
    table->batchnorm_grad_stats = count_grad_stats;
    table->batchnorm_apply = count_apply;
    if (fused == UNWRITTEN) {
        table->conv2d_norm_stats = fake_norm_stats;
        table->conv2d_norm_grad_w = fake_norm_grad_w;
        table->batchnorm_add = fake_add;
        table->maxpool2d_norm = fake_pool;
        table->batchnorm_add_grad = fake_add_grad;
        table->maxpool2d_norm_grad = fake_pool_grad;
    }
    if (fused) {
        table->conv2d_stats = fake_conv2d_stats;
        table->conv2d_grad_x_sums = fake_grad_x_sums;
    }
    d->backend = table;
    return d;
}
