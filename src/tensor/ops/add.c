/* y = a + b, b broadcast over a. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/math.h"

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a, b, y, wide;
    LT_TRY(lt_node_in(node, 0, &a));
    LT_TRY(lt_node_in(node, 1, &b));
    LT_TRY(lt_node_out(node, &y));
    LT_ASSERT(lt_view_broadcast(&b, y.shape, &wide));
    return be->add(ctx, &a, &wide, &y);
}

static lt_status backward(lt_node *node)
{
    if (lt_node_wants(node, 0))
        LT_TRY(lt_node_grad_pass(node, 0));
    if (!lt_node_wants(node, 1))
        return LT_OK;
    if (lt_op_same_shape(node, 1) && node->in[1]->dtype == node->out->dtype)
        return lt_node_grad_pass(node, 1);
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    return lt_op_unbroadcast(node, 1, &dy);
}

const lt_op lt_op_add = {
    .name = "add",
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_IN(1) | LT_IGNORES_OUT,
    .infer = lt_op_infer_broadcast,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_add(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return lt_op_run(tape, &lt_op_add, (lt_tensor *[]){a, b}, 2, NULL);
}
