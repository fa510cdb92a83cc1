/* y = factor * x. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/math.h"

static lt_status infer(const lt_node *node, lt_desc *out)
{
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = node->in[0]->shape};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const double *factor = node->config;
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return be->scale(ctx, *factor, &x, &y);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const double *factor = node->config;
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return be->scale(ctx, *factor, &dy, &dx);
}

const lt_op lt_op_scale = {
    .name = "scale",
    .config_bytes = sizeof(double),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_scale(lt_tape *tape, lt_tensor *x, double factor)
{
    return lt_op_run(tape, &lt_op_scale, &x, 1, &factor);
}
