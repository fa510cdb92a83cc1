/* Convolutions with parts of batch norm, on blocks of pixels in the cache: the fused entries of
 * ext/kernels.h. Where own kernels are not to be taken they are composed of the basic ones. */

#include "tensor/backend/cpu/batchnorm.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/moved.h"
#include "tensor/backend/cpu/own_conv.h"
#include "tensor/backend/cpu/wgrad.h"

static bool is_fused(const lt_cpu *cpu, const lt_own_conv *c, const lt_view *sums)
{
    if (cpu->fused == LT_FUSED_OFF || sums->dtype != LT_F32)
        return false;
    const bool always = cpu->fused == LT_FUSED_ON && cpu->choice != LT_KERNELS_ONEDNN;
    return always ? lt_own_conv_can(cpu, c) : lt_own_conv_wanted(cpu, c);
}

static lt_status run_with_stats(lt_cpu *cpu, lt_own_conv *c, const lt_view *stats)
{
    lt_cpu_moments m;
    LT_CPU_MOVED(c->from, c->w, c->to);
    LT_TRY(lt_cpu_moments_begin(cpu, c->to, lt_own_conv_block(c), &m));
    c->after = lt_cpu_moments_chunk;
    c->context = &m;
    LT_TRY(lt_own_conv_run(cpu, c));
    lt_cpu_moments_end(&m, stats->data);
    return LT_OK;
}

lt_status lt_cpu_conv2d_stats(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                              const lt_view *w, const lt_view *y, const lt_view *stats, bool *sums)
{
    lt_own_conv c = {.config = config, .from = x, .w = w, .to = y};
    if (sums)
        *sums = false;
    if (is_fused(ctx, &c, stats))
        return run_with_stats(ctx, &c, stats);
    LT_TRY(lt_backend_cpu()->conv2d(ctx, config, x, w, NULL, y));
    return lt_cpu_batchnorm_stats(ctx, y, stats);
}

lt_status lt_cpu_conv2d_norm_stats(void *ctx, const lt_conv2d_config *config,
                                   const lt_batchnorm_before *norm, const lt_view *w,
                                   const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    lt_own_conv c = {.config = config, .from = norm->x, .w = w, .to = y};
    how->sums = false;
    how->done = norm->coef->dtype == LT_F32 && is_fused(ctx, &c, stats);
    if (!how->done)
        return LT_OK;
    const lt_bn_apply before = lt_cpu_norm_before(norm);
    c.before = &before;
    return run_with_stats(ctx, &c, stats);
}

lt_status lt_cpu_conv2d_grad_x_sums(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_view *w, const lt_batchnorm_before *norm,
                                    const lt_view *dx, const lt_view *sums)
{
    lt_own_conv c = {.config = config, .from = dy, .w = w, .to = dx, .backward = true};
    const lt_batchnorm_grad in = {.dy = {*dx}, .x = norm->x, .coef = norm->coef, .relu = true};
    if (!is_fused(ctx, &c, sums) || norm->coef->dtype != LT_F32 || !lt_cpu_same_dense(dx, norm->x)
        || norm->x->dtype != dx->dtype) {
        LT_TRY(lt_backend_cpu()->conv2d_grad_x(ctx, config, dy, w, dx));
        return lt_cpu_batchnorm_grad_stats(ctx, &in, NULL, sums);
    }
    LT_CPU_MOVED(dy, w, norm->x, dx);
    lt_cpu_grad_sums s;
    LT_TRY(lt_cpu_grad_sums_begin(ctx, &in, NULL, lt_own_conv_block(&c), &s));
    c.after = lt_cpu_grad_sums_chunk;
    c.context = &s;
    LT_TRY(lt_own_conv_run(ctx, &c));
    lt_cpu_grad_sums_end(&s, sums->data);
    return LT_OK;
}
