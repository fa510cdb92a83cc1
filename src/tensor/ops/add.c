/* y = a + b, each broadcast over the other. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/math.h"

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a, b, y;
    LT_TRY(lt_op_in_wide(node, 0, &a));
    LT_TRY(lt_op_in_wide(node, 1, &b));
    LT_TRY(lt_node_out(node, &y));
    return be->add(ctx, &a, &b, &y);
}

static lt_status backward_to(lt_node *node, int input)
{
    lt_view dy;
    if (lt_op_same_shape(node, input) && node->in[input]->dtype == node->out->dtype)
        return lt_node_grad_pass(node, input);
    LT_TRY(lt_node_grad(node, &dy));
    return lt_op_unbroadcast(node, input, &dy);
}

static lt_status backward(lt_node *node)
{
    for (int i = 0; i < 2; i++)
        if (lt_node_wants(node, i))
            LT_TRY(backward_to(node, i));
    return LT_OK;
}

const lt_op lt_op_add = {
    .name = "add",
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_IN(1) | LT_IGNORES_OUT,
    .infer = lt_op_infer_either,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_add(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return lt_op_run(tape, &lt_op_add, (lt_tensor *[]){a, b}, 2, NULL);
}
