/* 2-D cross-correlation. Dumoulin & Visin, "A guide to convolution arithmetic", 2018. */

#include "tensor/ops/fuse.h"
#include "tensor/ops/ops.h"
#include "tensor/tape.h"
#include "tensor/tensor.h"

#include "lather/ops/conv.h"

/* floor((size + 2*pad - dilation*(taps-1) - 1) / stride) + 1; below 1 if the filter does not fit. */
static int64_t output_size(int64_t size, int64_t taps, int stride, int pad, int dilation)
{
    int64_t steps = size + 2 * (int64_t)pad - dilation * (taps - 1) - 1;
    return steps < 0 ? 0 : steps / stride + 1;
}

lt_status lt_op_check_conv(const char *name, const lt_conv2d_config *c)
{
    if (c->stride_h < 1 || c->stride_w < 1 || c->dilation_h < 1 || c->dilation_w < 1
        || c->groups < 1 || c->pad_h < 0 || c->pad_w < 0)
        return lt_fail(
            LT_E_ARG,
            "%s: stride %dx%d, padding %dx%d, dilation %dx%d, groups %d: want padding >= 0, "
            "the others >= 1",
            name, c->stride_h, c->stride_w, c->pad_h, c->pad_w, c->dilation_h, c->dilation_w,
            c->groups);
    return LT_OK;
}

static lt_status check_shapes(const lt_node *node)
{
    const lt_conv2d_config *c = node->config;
    char x[LT_SHAPE_TEXT], w[LT_SHAPE_TEXT];
    lt_shape xs = node->in[LT_CONV_X]->shape,
             ws = node->in[LT_CONV_W] ? node->in[LT_CONV_W]->shape : LT_SCALAR;
    if (xs.ndim != 4 || ws.ndim != 4)
        return lt_fail(LT_E_SHAPE, "conv2d: x %s and w %s, want 4 dimensions each",
                       lt_shape_text(xs, x), lt_shape_text(ws, w));
    if (xs.dim[1] != ws.dim[1] * c->groups)
        return lt_fail(LT_E_SHAPE, "conv2d: x %s has %lld channels, w %s needs %lld",
                       lt_shape_text(xs, x), (long long)xs.dim[1], lt_shape_text(ws, w),
                       (long long)ws.dim[1] * c->groups);
    if (ws.dim[0] % c->groups)
        return lt_fail(LT_E_SHAPE, "conv2d: the outputs of w %s do not divide into %d groups",
                       lt_shape_text(ws, w), c->groups);
    if (node->in[LT_CONV_B] && !lt_shape_equal(node->in[LT_CONV_B]->shape, LT_SHAPE(ws.dim[0])))
        return lt_fail(LT_E_SHAPE, "conv2d: b %s, want [%lld]",
                       lt_shape_text(node->in[LT_CONV_B]->shape, x), (long long)ws.dim[0]);
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_conv2d_config *c = node->config;
    LT_TRY(lt_op_check_conv("conv2d", c));
    LT_TRY(check_shapes(node));
    char x[LT_SHAPE_TEXT], w[LT_SHAPE_TEXT];
    lt_shape xs = node->in[LT_CONV_X]->shape, ws = node->in[LT_CONV_W]->shape;
    int64_t p = output_size(xs.dim[2], ws.dim[2], c->stride_h, c->pad_h, c->dilation_h);
    int64_t q = output_size(xs.dim[3], ws.dim[3], c->stride_w, c->pad_w, c->dilation_w);
    if (p < 1 || q < 1)
        return lt_fail(LT_E_SHAPE, "conv2d: the filter of w %s is larger than x %s with padding",
                       lt_shape_text(ws, w), lt_shape_text(xs, x));
    *out = (lt_desc){.dtype = node->in[LT_CONV_X]->dtype,
                     .shape = LT_SHAPE(xs.dim[0], ws.dim[0], p, q),
                     .format = LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}

/* Convolves a batch norm's deferred output, if the backend can; how->done: it did. */
static lt_status forward_fused_norm(lt_node *node, const lt_view *w, const lt_view *y,
                                    const lt_view *stats, lt_norm_conv *how)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_node *norm = lt_fuse_find_producer(node, LT_FUSE_APPLY);
    lt_fuse_views v;
    lt_batchnorm_before before;
    if (!norm)
        return LT_OK;
    LT_TRY(lt_batchnorm2d_get_views(norm, &v, &before));
    return be->conv2d_norm_stats(ctx, node->config, &before, w, y, stats, how);
}

/* Returns the pixels whose normalised values were not written; out->x remains NULL if all were. */
static lt_status get_fused_pixels(lt_node *node, lt_view *x, lt_view *folded, lt_conv_pixels *out)
{
    lt_node *normalize = lt_fuse_find_producer(node, LT_FUSE_PIXELS);
    *out = (lt_conv_pixels){NULL, NULL, folded};
    if (!normalize)
        return LT_OK;
    out->x = x;
    out->config = normalize->config;
    return lt_node_in(normalize, 0, x);
}

/* Convolves pixels and normalises them in the kernel, if the backend can; how->done: it did. */
static lt_status forward_fused_pixels(lt_node *node, const lt_view *w, const lt_view *y,
                                      const lt_view *stats, lt_norm_conv *how)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, folded = {0};
    lt_conv_pixels pixels;
    LT_TRY(get_fused_pixels(node, &x, &folded, &pixels));
    if (pixels.x)
        LT_TRY(be->conv2d_pixels_stats(ctx, node->config, &pixels, w, y, stats, how));
    if (!folded.shape.ndim)
        return LT_OK;
    LT_TRY(lt_node_save(node, LT_CONV_FOLDED, y->dtype, folded.shape, &folded));
    LT_TRY(be->conv2d_pixels_stats(ctx, node->config, &pixels, w, y, stats, how));
    if (!how->done) {
        lt_handle_free(node->saved[LT_CONV_FOLDED]);
        node->saved[LT_CONV_FOLDED] = NULL;
    }
    return LT_OK;
}

/* Computes the convolution with its statistics, or their sums. */
static lt_status convolve_with_stats(lt_node *node, const lt_view *w, const lt_view *y,
                                     const lt_view *stats, bool *sums)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x;
    lt_norm_conv how = {.moments = !sums};
    LT_TRY(forward_fused_norm(node, w, y, stats, &how));
    if (!how.done)
        LT_TRY(forward_fused_pixels(node, w, y, stats, &how));
    if (how.done && sums)
        *sums = how.sums;
    if (how.done)
        return LT_OK;
    LT_TRY(lt_node_in(node, LT_CONV_X, &x));
    return be->conv2d_stats(ctx, node->config, &x, w, y, stats, sums);
}

/* Convolves with statistics for the following batch norm; moments if ranks merge them. */
static lt_status forward_with_stats(lt_node *node, const lt_view *w, const lt_view *y)
{
    lt_view stats;
    bool sums = false;
    LT_TRY(lt_node_save(node, LT_CONV_STATS, lt_device_master_dtype(lt_tape_device(node->tape)),
                        LT_SHAPE(3, y->shape.dim[1]), &stats));
    LT_TRY(convolve_with_stats(node, w, y, &stats, node->tape->norm_reduce ? NULL : &sums));
    if (sums) {
        node->saved[LT_CONV_SUMS] = node->saved[LT_CONV_STATS];
        node->saved[LT_CONV_STATS] = NULL;
    }
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, w, y, b = {0};
    LT_TRY(LT_HAS_ENTRY(node, be, conv2d));
    if (!lt_node_is_replay(node) && lt_fuse_can_produce(node, LT_FUSE_AFFINE)) {
        lt_node_defer_output(node);
        return LT_OK;
    }
    LT_TRY(lt_node_in(node, LT_CONV_W, &w));
    LT_TRY(lt_node_out(node, &y));
    if (lt_fuse_can_produce(node, LT_FUSE_STATS))
        return forward_with_stats(node, &w, &y);
    LT_TRY(lt_node_in(node, LT_CONV_X, &x));
    if (node->in[LT_CONV_B])
        LT_TRY(lt_node_in(node, LT_CONV_B, &b));
    return be->conv2d(ctx, node->config, &x, &w, b.data ? &b : NULL, &y);
}

/* Computes the weight's gradient for a deferred batch norm's output, if the backend can; sets *done if it
 * did. */
static lt_status backward_w_fused_norm(lt_node *node, const lt_view *dy, const lt_view *dw,
                                       bool *done)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_node *norm = lt_fuse_find_producer(node, LT_FUSE_APPLY_GRAD_W);
    lt_fuse_views v;
    lt_batchnorm_before before;
    *done = false;
    if (!norm)
        return LT_OK;
    LT_TRY(lt_batchnorm2d_get_views(norm, &v, &before));
    return be->conv2d_norm_grad_w(ctx, node->config, dy, &before, dw, done);
}

/* Computes the weight's gradient from the pixels that forward saved, if any. */
static lt_status backward_w_fused_pixels(lt_node *node, const lt_view *dy, const lt_view *dw,
                                         bool *done)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, folded;
    lt_conv_pixels pixels;
    if (!node->saved[LT_CONV_FOLDED])
        return LT_OK;
    LT_TRY(lt_node_saved(node, LT_CONV_FOLDED, &folded));
    LT_TRY(get_fused_pixels(node, &x, &folded, &pixels));
    return pixels.x ? be->conv2d_pixels_grad_w(ctx, node->config, dy, &pixels, dw, done) : LT_OK;
}

static lt_status backward_w(lt_node *node, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, dw;
    bool done;
    LT_TRY(LT_HAS_ENTRY(node, be, conv2d_grad_w));
    LT_TRY(lt_node_grad_out_rounded(node, LT_CONV_W, dy->dtype, &dw));
    LT_TRY(backward_w_fused_norm(node, dy, &dw, &done));
    if (!done)
        LT_TRY(backward_w_fused_pixels(node, dy, &dw, &done));
    if (done)
        return LT_OK;
    LT_TRY(lt_node_in(node, LT_CONV_X, &x));
    return be->conv2d_grad_w(ctx, node->config, dy, &x, &dw);
}

/* Computes the input's gradient with the first half of the preceding batch norm's backward, whose sums it
 * saves. */
static lt_status backward_x_with_norm_sums(lt_node *node, lt_node *norm, const lt_view *dy,
                                           const lt_view *w, const lt_view *dx)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_fuse_views v;
    lt_batchnorm_before before;
    lt_view sums;
    LT_TRY(lt_batchnorm2d_get_views(norm, &v, &before));
    LT_TRY(lt_batchnorm2d_alloc_grad_sums(norm, &sums));
    return be->conv2d_grad_x_sums(ctx, node->config, dy, w, &before, dx, &sums);
}

static lt_status backward_x(lt_node *node, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view w, dx;
    LT_TRY(LT_HAS_ENTRY(node, be, conv2d_grad_x));
    LT_TRY(lt_node_in(node, LT_CONV_W, &w));
    lt_node *norm = lt_fuse_find_producer(node, LT_FUSE_GRAD_SUMS);
    LT_TRY(lt_node_grad_out(node, LT_CONV_X, &dx));
    if (norm)
        return backward_x_with_norm_sums(node, norm, dy, &w, &dx);
    return be->conv2d_grad_x(ctx, node->config, dy, &w, &dx);
}

/* db[k] = sum of dy over n, p, q. */
static lt_status backward_b(lt_node *node, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view db;
    LT_TRY(lt_node_grad_out(node, LT_CONV_B, &db));
    lt_view wide = db;
    wide.shape = LT_SHAPE(1, db.shape.dim[0], 1, 1);
    wide.stride[1] = db.stride[0];
    return be->sum(ctx, 1, dy, &wide);
}

static lt_status backward(lt_node *node)
{
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    if (lt_node_needs_grad(node, LT_CONV_W))
        LT_TRY(backward_w(node, &dy));
    if (lt_node_needs_grad(node, LT_CONV_B))
        LT_TRY(backward_b(node, &dy));
    return lt_node_needs_grad(node, LT_CONV_X) ? backward_x(node, &dy) : LT_OK;
}

const lt_op lt_op_conv2d = {
    .name = lt_name_conv2d,
    .config_bytes = sizeof(lt_conv2d_config),
    .backward_ignores = LT_IGNORES_IN(LT_CONV_B) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_conv2d_config lt_op_conv_defaults(lt_conv2d_config c)
{
    int *const ones[] = {&c.stride_h, &c.stride_w, &c.dilation_h, &c.dilation_w, &c.groups};
    for (int i = 0; i < 5; i++)
        *ones[i] = *ones[i] ? *ones[i] : 1;
    return c;
}

lt_tensor *lt_conv2d(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                     lt_conv2d_config config)
{
    config = lt_op_conv_defaults(config);
    x = lt_op_to_channels_last(tape, x);
    return lt_op_run(tape, &lt_op_conv2d, (lt_tensor *[]){x, w, b}, 3, &config);
}
