/* y = a * b, b broadcast over a. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/math.h"

/* b as wide as the output. */
static lt_status wide_b(lt_node *node, lt_view *b)
{
    lt_view small;
    LT_TRY(lt_node_in(node, 1, &small));
    LT_ASSERT(lt_view_broadcast(&small, node->out->shape, b));
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a, b, y;
    LT_TRY(lt_node_in(node, 0, &a));
    LT_TRY(wide_b(node, &b));
    LT_TRY(lt_node_out(node, &y));
    return be->mul(ctx, &a, &b, &y);
}

static lt_status backward_b(lt_node *node, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a, g;
    LT_TRY(lt_node_in(node, 0, &a));
    if (lt_op_same_shape(node, 1)) {
        LT_TRY(lt_node_grad_out(node, 1, &g));
        return be->mul(ctx, &a, dy, &g);
    }
    LT_TRY(lt_node_scratch(node, node->in[1]->dtype, node->out->shape, &g));
    LT_TRY(be->mul(ctx, &a, dy, &g));
    return lt_op_unbroadcast(node, 1, &g);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, b, da;
    LT_TRY(lt_node_grad(node, &dy));
    if (lt_node_wants(node, 0)) {
        LT_TRY(wide_b(node, &b));
        LT_TRY(lt_node_grad_out(node, 0, &da));
        LT_TRY(be->mul(ctx, &dy, &b, &da));
    }
    return lt_node_wants(node, 1) ? backward_b(node, &dy) : LT_OK;
}

const lt_op lt_op_mul = {
    .name = "mul",
    .backward_ignores = LT_IGNORES_OUT,
    .infer = lt_op_infer_broadcast,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_mul(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return lt_op_run(tape, &lt_op_mul, (lt_tensor *[]){a, b}, 2, NULL);
}
