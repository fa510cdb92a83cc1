/* The mean of each window, padding counted as zeros. */

#include "tensor/ops/pool2d.h"
#include "tensor/tensor.h"

#include "lather/ops/pool.h"

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return be->avgpool2d(ctx, node->config, &x, &y);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return be->avgpool2d_grad(ctx, node->config, &dy, &dx);
}

const lt_op lt_op_avgpool2d = {
    .name = "avgpool2d",
    .config_bytes = sizeof(lt_pool2d_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = lt_pool2d_infer,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_avgpool2d(lt_tape *tape, lt_tensor *x, lt_pool2d_config config)
{
    if (x && x->shape.ndim == 4 && !config.kernel_h && !config.kernel_w) {
        config.kernel_h = (int)x->shape.dim[2];
        config.kernel_w = (int)x->shape.dim[3];
    }
    config.stride_h = config.stride_h ? config.stride_h : config.kernel_h;
    config.stride_w = config.stride_w ? config.stride_w : config.kernel_w;
    x = lt_op_channels_last(tape, x);
    return lt_op_run(tape, &lt_op_avgpool2d, &x, 1, &config);
}
