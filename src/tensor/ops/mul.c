/* y = a * b, each broadcast over the other. */

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
    return be->mul(ctx, &a, &b, &y);
}

/* dy times the other input; of a broadcast input it is made in its full width, then summed. */
static lt_status backward_to(lt_node *node, int input, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view other, g;
    LT_TRY(lt_op_in_wide(node, !input, &other));
    if (lt_op_same_shape(node, input)) {
        LT_TRY(lt_node_grad_out(node, input, &g));
        return be->mul(ctx, dy, &other, &g);
    }
    LT_TRY(lt_node_scratch(node, node->in[input]->dtype, node->out->shape, &g));
    LT_TRY(be->mul(ctx, dy, &other, &g));
    return lt_op_unbroadcast(node, input, &g);
}

static lt_status backward(lt_node *node)
{
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    for (int i = 0; i < 2; i++)
        if (lt_node_wants(node, i))
            LT_TRY(backward_to(node, i, &dy));
    return LT_OK;
}

const lt_op lt_op_mul = {
    .name = "mul",
    .backward_ignores = LT_IGNORES_OUT,
    .infer = lt_op_infer_either,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_mul(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return lt_op_run(tape, &lt_op_mul, (lt_tensor *[]){a, b}, 2, NULL);
}
