/* The largest value of each window; the winners' places are saved for backward. */

#include "tensor/ops/pool2d.h"
#include "tensor/tensor.h"

#include "lather/ops/pool.h"

enum { INDEX, MAX_WINDOW = 256 };

static lt_status infer(const lt_node *node, lt_desc *out)
{
    const lt_pool2d_config *c = node->config;
    LT_TRY(lt_pool2d_infer(node, out));
    if (c->kernel_h > MAX_WINDOW / c->kernel_w)
        return lt_fail(LT_E_ARG, "maxpool2d: kernel %dx%d has more than %d places", c->kernel_h,
                       c->kernel_w, MAX_WINDOW);
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y, index = {0};
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    if (lt_tape_pass(node->tape).record)
        LT_TRY(lt_node_save(node, INDEX, LT_U8, y.shape, &index));
    return be->maxpool2d(ctx, node->config, &x, &y, index.data ? &index : NULL);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy[2], index, dx;
    LT_TRY(lt_node_grad_pair(node, dy));
    LT_TRY(lt_node_saved(node, INDEX, &index));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return be->maxpool2d_grad(ctx, node->config, dy, &index, &dx);
}

const lt_op lt_op_maxpool2d = {
    .name = "maxpool2d",
    .config_bytes = sizeof(lt_pool2d_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_maxpool2d(lt_tape *tape, lt_tensor *x, lt_pool2d_config config)
{
    config.stride_h = config.stride_h ? config.stride_h : config.kernel_h;
    config.stride_w = config.stride_w ? config.stride_w : config.kernel_w;
    x = lt_op_channels_last(tape, x);
    return lt_op_run(tape, &lt_op_maxpool2d, &x, 1, &config);
}
