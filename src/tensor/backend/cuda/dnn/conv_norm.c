/* Convolutions whose input is computed when it is read, and not written.
 *
 * relu(batchnorm(x)): cuDNN's kernels scale, shift and clamp x as they read it. They exist for the weight's gradient
 * too only in f16 (tests/cuda/planning.c), with scale and shift in f16, whose rounding adds to an element's error.
 *
 * normalize(x), in the first convolution: its blocks of pixels (space_to_depth.h) are computed from x, once for forward and
 * gradient, bitwise identical to those of a normalized input.
 *
 * The alternative is to write the input, which only the caller can do. During autotuning it is written to temporary
 * memory. */

#include "conv_plan.h"
#include "tensor/backend/cuda/kernels.h"
#include "tensor/backend/cuda/kernels/space_to_depth.h"
#include "tensor/backend/cuda/norm_sums.h"
#include "tensor/backend/cuda/strided_iter.h"

typedef struct norm_call {
    const lt_batchnorm_before *norm; /* NULL: the input is pixels */
    const lt_view *stats;            /* NULL: the gradient of the weight */
    bool *sums, *done;
    void **written; /* the input, during autotuning */
} norm_call;

static size_t view_bytes(const lt_view *x)
{
    return (size_t)lt_shape_count(x->shape) * lt_dtype_size(x->dtype);
}

static lt_status write_input(lt_cuda *c, const lt_conv_call *call, const lt_batchnorm_before *norm,
                             const lt_view *x)
{
    const lt_backend *be = lt_cuda_table();
    const lt_batchnorm2d_config config = {.relu = true};
    return norm ? be->batchnorm_apply(c, &config, norm->x, norm->coef, NULL, x, NULL)
                : be->normalize(c, call->pixels->config, call->pixels->x, x);
}

static lt_status write_and_run(lt_cuda *c, const lt_conv_call *call, const norm_call *n)
{
    const lt_backend *be = lt_cuda_table();
    lt_view x = *call->x;
    bool sums;
    if (!*n->written)
        LT_TRY(lt_cuda_alloc(c, view_bytes(&x), n->written));
    x.data = *n->written;
    LT_TRY(write_input(c, call, n->norm, &x));
    return n->stats ? be->conv2d_stats(c, call->config, &x, call->w, call->y, n->stats,
                                       n->sums ? &sums : NULL)
                    : be->conv2d_grad_w(c, call->config, call->y, &x, call->w);
}

static lt_status run_unfused(lt_cuda *c, const lt_conv_call *call)
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
    return lt_conv_finish_sums(c, call, n->norm ? LT_CONV_NORM_SUM : LT_CONV_SUM, n->stats,
                               n->sums);
}

static lt_status run_fused(lt_cuda *c, const char *operation, lt_conv_call *call, norm_call context)
{
    void *written = NULL;
    lt_view sum[2];
    context.written = &written;
    *context.done = true;
    call->context = &context;
    call->fused = true;
    call->after = context.stats ? finish_stats : call->after;
    call->other = run_unfused;
    for (int i = 0; context.stats && i < 2; i++)
        sum[i] = lt_conv_row_view(context.stats, 1 + i);
    if (context.stats)
        lt_conv_set_sums_memory(call, context.norm ? LT_CONV_NORM_SUM : LT_CONV_SUM,
                                context.sums ? sum : NULL);
    LT_TRY(lt_cuda_begin(c, operation));
    lt_status st = lt_conv_run(c, call);
    if (written)
        lt_cuda_free(c, written, view_bytes(call->x));
    return st ? st : lt_cuda_end(c);
}

static bool may_fuse_norm(const lt_conv_problem *p, const lt_batchnorm_before *norm)
{
    return p->dtype == LT_F16 && norm->x->dtype == LT_F16 && lt_conv_may_fuse(p) && norm->rounded
           && lt_view_is_channels_last(norm->x);
}

static lt_status run_fused_norm(lt_cuda *c, const char *operation, lt_conv_call *call,
                                norm_call context)
{
    const lt_batchnorm_before *norm = context.norm;
    *context.done = false;
    if (!may_fuse_norm(&call->problem, norm))
        return LT_OK;
    const lt_view part[] = {lt_conv_row_view(norm->rounded, 0), lt_conv_row_view(norm->rounded, 1)};
    for (int i = 0; i < 2; i++)
        call->operand[LT_CONV_SCALE + i] = lt_conv_vector_operand(&part[i], LT_F16, false);
    return run_fused(c, operation, call, context);
}

static lt_status conv2d_norm_stats(void *ctx, const lt_conv2d_config *config,
                                   const lt_batchnorm_before *norm, const lt_view *w,
                                   const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    lt_conv_call call = lt_conv_make_call(LT_CONV_NORM_STATS, config, norm->x, w, y);
    return run_fused_norm(ctx, "conv2d_norm_stats", &call,
                          (norm_call){.norm = norm,
                                      .stats = stats,
                                      .sums = how->moments ? NULL : &how->sums,
                                      .done = &how->done});
}

static lt_status conv2d_norm_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_batchnorm_before *norm, const lt_view *dw, bool *done)
{
    lt_conv_call call = lt_conv_make_call(LT_CONV_NORM_GRAD_W, config, norm->x, dw, dy);
    return run_fused_norm(ctx, "conv2d_norm_grad_w", &call,
                          (norm_call){.norm = norm, .done = done});
}

/* Returns a view of the normalized pixels, without data. */
static lt_view normalized_view(const lt_view *pixels, lt_dtype dtype)
{
    lt_view v = {.dtype = dtype, .shape = pixels->shape};
    lt_view_set_dense_strides(&v);
    return v;
}

/* Returns the shape of the blocks that are kept of x, or a scalar if it is not the first convolution. */
static lt_shape blocks_shape(const lt_conv2d_config *config, const lt_view *x, const lt_view *w,
                             const lt_view *y)
{
    const lt_view b = lt_space_to_depth_blocks(x, y);
    const bool fits = lt_space_to_depth_fits(config, x, w, y);
    return fits ? LT_SHAPE(b.shape.dim[0], b.shape.dim[2], b.shape.dim[3], b.shape.dim[1])
                : LT_SCALAR;
}

static lt_status conv2d_pixels_stats(void *ctx, const lt_conv2d_config *config,
                                     const lt_conv_pixels *pixels, const lt_view *w,
                                     const lt_view *y, const lt_view *stats, lt_norm_conv *how)
{
    const lt_view x = normalized_view(pixels->x, y->dtype);
    lt_view blocks;
    how->done = false;
    pixels->folded->shape = blocks_shape(config, &x, w, y);
    if (!pixels->folded->data)
        return LT_OK;
    lt_conv_call call = lt_conv_make_call(LT_CONV_STATS, config, &x, w, y);
    lt_conv_use_pixels(&call, &blocks, pixels);
    return run_fused(
        ctx, "conv2d_pixels_stats", &call,
        (norm_call){.stats = stats, .sums = how->moments ? NULL : &how->sums, .done = &how->done});
}

static lt_status conv2d_pixels_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                      const lt_conv_pixels *pixels, const lt_view *dw, bool *done)
{
    const lt_view x = normalized_view(pixels->x, dy->dtype);
    lt_view blocks;
    lt_conv_call call = lt_conv_make_call(LT_CONV_GRAD_W, config, &x, dw, dy);
    lt_conv_use_pixels(&call, &blocks, pixels);
    return run_fused(ctx, "conv2d_pixels_grad_w", &call, (norm_call){.done = done});
}

void lt_cuda_install_norm_convs(lt_backend *be)
{
    be->conv2d_norm_stats = conv2d_norm_stats;
    be->conv2d_norm_grad_w = conv2d_norm_grad_w;
    be->conv2d_pixels_stats = conv2d_pixels_stats;
    be->conv2d_pixels_grad_w = conv2d_pixels_grad_w;
}
