/* Convolutions of relu(batchnorm(x)) that was never written: cuDNN's kernels scale, shift and mask x as
 * they read it. Only f16 has them for the weight's gradient too (tests/cuda/planning.c), and they take scale and
 * shift in f16: an element errs by that rounding once more than one that was written.
 *
 * The other way is to write it, which only the caller can do. While ways are timed it is written to memory
 * that lives as long as the trial. */

#include "conv_plan.h"
#include "kernels.h"
#include "norm_sums.h"

typedef struct norm_call {
    const lt_batchnorm_before *norm;
    const lt_view *stats; /* NULL: the gradient of the weight */
    bool *sums, *done;
    void **written; /* of a trial */
} norm_call;

static size_t bytes_of(const lt_view *x)
{
    return (size_t)lt_shape_count(x->shape) * lt_dtype_size(x->dtype);
}

static lt_status write_and_run(lt_cuda *c, const lt_conv_call *call, const norm_call *n)
{
    const lt_backend *be = lt_cuda_table();
    const lt_batchnorm2d_config config = {.relu = true};
    lt_view x = *n->norm->x;
    bool sums;
    if (!*n->written)
        LT_TRY(lt_cuda_alloc(c, bytes_of(&x), n->written));
    x.data = *n->written;
    LT_TRY(be->batchnorm_apply(c, &config, n->norm->x, n->norm->coef, NULL, &x, NULL));
    return n->stats ? be->conv2d_stats(c, call->config, &x, call->w, call->y, n->stats,
                                       n->sums ? &sums : NULL)
                    : be->conv2d_grad_w(c, call->config, call->y, &x, call->w);
}

static lt_status other(lt_cuda *c, const lt_conv_call *call)
{
    const norm_call *n = call->context;
    if (call->trying)
        return write_and_run(c, call, n);
    *n->done = false;
    return LT_OK;
}

static lt_status finish_stats(lt_cuda *c, const lt_conv_call *call)
{
    const norm_call *n = call->context;
    return lt_conv_take_sums(c, call, LT_CONV_NORM_SUM, n->stats, n->sums);
}

static bool may_fuse(const lt_conv_problem *p, const lt_batchnorm_before *norm)
{
    return p->dtype == LT_F16 && norm->x->dtype == LT_F16 && lt_conv_may_fuse(p) && norm->rounded
           && lt_view_is_channels_last(norm->x);
}

static lt_status run(lt_cuda *c, const char *operation, lt_conv_call *call, norm_call context)
{
    void *written = NULL;
    const lt_batchnorm_before *norm = context.norm;
    const lt_view *stats = context.stats;
    *context.done = false;
    if (!may_fuse(&call->problem, norm))
        return LT_OK;
    const lt_view part[] = {lt_conv_row(norm->rounded, 0), lt_conv_row(norm->rounded, 1)};
    lt_view sum[2];
    context.written = &written;
    *context.done = true;
    call->context = &context;
    call->fused = true;
    call->after = stats ? finish_stats : NULL;
    call->other = other;
    for (int i = 0; i < 2; i++)
        call->operand[LT_CONV_SCALE + i] = lt_conv_vector(&part[i], LT_F16, false);
    for (int i = 0; stats && i < 2; i++)
        sum[i] = lt_conv_row(stats, 1 + i);
    if (stats)
        lt_conv_place_sums(call, LT_CONV_NORM_SUM, context.sums ? sum : NULL);
    LT_TRY(lt_cuda_begin(c, operation));
    lt_status st = lt_conv_run(c, call);
    if (written)
        lt_cuda_free(c, written, bytes_of(norm->x));
    return st ? st : lt_cuda_end(c);
}

static lt_status conv2d_norm_stats(void *ctx, const lt_conv2d_config *config,
                                   const lt_batchnorm_before *norm, const lt_view *w,
                                   const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    lt_conv_call call = lt_conv_call_of(LT_CONV_NORM_STATS, config, norm->x, w, y);
    return run(ctx, "conv2d_norm_stats", &call,
               (norm_call){.norm = norm,
                           .stats = stats,
                           .sums = how->moments ? NULL : &how->sums,
                           .done = &how->done});
}

static lt_status conv2d_norm_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_batchnorm_before *norm, const lt_view *dw, bool *done)
{
    lt_conv_call call = lt_conv_call_of(LT_CONV_NORM_GRAD_W, config, norm->x, dw, dy);
    return run(ctx, "conv2d_norm_grad_w", &call, (norm_call){.norm = norm, .done = done});
}

void lt_cuda_install_norm_convs(lt_backend *be)
{
    be->conv2d_norm_stats = conv2d_norm_stats;
    be->conv2d_norm_grad_w = conv2d_norm_grad_w;
}
