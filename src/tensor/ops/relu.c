/* y = max(x, 0). The smallest operation: start here to write one. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/math.h"

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = node->in[0]->shape};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return be->relu(ctx, &x, &y);
}

/* The gradient passes where x > 0, equivalent to y > 0. Backward reads x, so that y can be dropped and
 * recomputed. */
static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, x, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return be->relu_grad(ctx, &dy, &x, &dx);
}

const lt_op lt_op_relu = {
    .name = "relu",
    .recomputable = true,
    .backward_ignores = LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_relu(lt_tape *tape, lt_tensor *x)
{
    return lt_op_run(tape, &lt_op_relu, &x, 1, NULL);
}
