/* Pooling: the maximum of each window, whose position is saved for backward, or the mean, with padding as
 * zeros. */

#include "tensor/ops/fuse.h"
#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/pool.h"

static int64_t output_size(int64_t size, int kernel, int stride, int pad)
{
    int64_t steps = size + 2 * (int64_t)pad - kernel;
    return steps < 0 ? 0 : steps / stride + 1;
}

/* Infers the output's shape and checks the config, whose zeros have been replaced by defaults. */
static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_pool2d_config *c = node->config;
    const char *name = node->op->name;
    char text[LT_SHAPE_TEXT];
    lt_shape x = node->in[0]->shape;
    if (x.ndim != 4)
        return lt_fail(LT_E_SHAPE, "%s: x %s, want 4 dimensions", name, lt_shape_text(x, text));
    if (c->kernel_h < 1 || c->kernel_w < 1 || c->stride_h < 1 || c->stride_w < 1 || c->pad_h < 0
        || c->pad_w < 0 || 2 * c->pad_h > c->kernel_h || 2 * c->pad_w > c->kernel_w)
        return lt_fail(
            LT_E_ARG, "%s: kernel %dx%d, stride %dx%d, padding %dx%d; want padding <= kernel/2",
            name, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_h, c->pad_w);
    int64_t p = output_size(x.dim[2], c->kernel_h, c->stride_h, c->pad_h);
    int64_t q = output_size(x.dim[3], c->kernel_w, c->stride_w, c->pad_w);
    if (p < 1 || q < 1)
        return lt_fail(LT_E_SHAPE, "%s: the kernel %dx%d is larger than x %s with padding", name,
                       c->kernel_h, c->kernel_w, lt_shape_text(x, text));
    *out = (lt_desc){.dtype = node->in[0]->dtype,
                     .shape = LT_SHAPE(x.dim[0], x.dim[1], p, q),
                     .format = LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}

enum { INDEX, MAX_WINDOW = 256 };

static lt_status max_infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_pool2d_config *c = node->config;
    LT_TRY(infer_shape(node, out));
    if (c->kernel_h > MAX_WINDOW / c->kernel_w)
        return lt_fail(LT_E_ARG, "maxpool2d: kernel %dx%d has more than %d elements", c->kernel_h,
                       c->kernel_w, MAX_WINDOW);
    return LT_OK;
}

/* Max-pools the deferred output of a batch norm, which the kernel applies itself. */
static lt_status max_pool_fused_norm(lt_node *node, lt_node *norm, const lt_view *y,
                                     const lt_view *index)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_fuse_views v;
    lt_batchnorm_before before;
    LT_TRY(lt_batchnorm2d_get_views(norm, &v, &before));
    return be->maxpool2d_norm(ctx, node->config, &before, y, index);
}

static lt_status max_forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_node *norm = lt_fuse_find_producer(node, LT_FUSE_POOL);
    lt_view x, y, index = {0};
    if (!norm)
        LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    if (lt_tape_pass(node->tape).record)
        LT_TRY(lt_node_save(node, INDEX, LT_U8, y.shape, &index));
    if (norm)
        return max_pool_fused_norm(node, norm, &y, &index);
    return be->maxpool2d(ctx, node->config, &x, &y, index.data ? &index : NULL);
}

static lt_status max_backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_node *norm = lt_fuse_find_producer(node, LT_FUSE_POOL_GRAD);
    lt_view dy[2], index, dx;
    lt_fused_grad_views v;
    lt_batchnorm_fused_grad along;
    LT_TRY(lt_node_grad_pair(node, dy));
    LT_TRY(lt_node_saved(node, INDEX, &index));
    if (norm) {
        LT_TRY(lt_batchnorm2d_fused_grad_args(norm, &v, &along));
        return be->maxpool2d_norm_grad(ctx, node->config, dy, &index, &along);
    }
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return be->maxpool2d_grad(ctx, node->config, dy, &index, &dx);
}

const lt_op lt_op_maxpool2d = {
    .name = lt_name_maxpool2d,
    .config_bytes = sizeof(lt_pool2d_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = max_infer_shape,
    .forward = max_forward,
    .backward = max_backward,
};

lt_tensor *lt_maxpool2d(lt_tape *tape, lt_tensor *x, lt_pool2d_config config)
{
    config.stride_h = config.stride_h ? config.stride_h : config.kernel_h;
    config.stride_w = config.stride_w ? config.stride_w : config.kernel_w;
    x = lt_op_to_channels_last(tape, x);
    return lt_op_run(tape, &lt_op_maxpool2d, &x, 1, &config);
}

static lt_status mean_forward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    return v.be->avgpool2d(v.ctx, node->config, &v.in, &v.out);
}

static lt_status mean_backward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    return v.be->avgpool2d_grad(v.ctx, node->config, &v.in, &v.out);
}

const lt_op lt_op_avgpool2d = {
    .name = "avgpool2d",
    .config_bytes = sizeof(lt_pool2d_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = mean_forward,
    .backward = mean_backward,
};

lt_tensor *lt_avgpool2d(lt_tape *tape, lt_tensor *x, lt_pool2d_config config)
{
    if (x && x->shape.ndim == 4 && !config.kernel_h && !config.kernel_w) {
        config.kernel_h = (int)x->shape.dim[2];
        config.kernel_w = (int)x->shape.dim[3];
    }
    config.stride_h = config.stride_h ? config.stride_h : config.kernel_h;
    config.stride_w = config.stride_w ? config.stride_w : config.kernel_w;
    x = lt_op_to_channels_last(tape, x);
    return lt_op_run(tape, &lt_op_avgpool2d, &x, 1, &config);
}
