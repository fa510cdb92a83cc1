/* Repeats dimensions of size 1, like PyTorch's expand(), but as a copy. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/shape.h"

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char from[LT_SHAPE_TEXT], to[LT_SHAPE_TEXT];
    const lt_shape *shape = node->config;
    lt_view wide, x = {.shape = node->in[0]->shape};
    if (shape->ndim < 0 || shape->ndim > LT_MAX_DIMS || !lt_view_broadcast(&x, *shape, &wide))
        return lt_fail(LT_E_SHAPE, "expand: x %s does not expand to %s",
                       lt_shape_text(x.shape, from), lt_shape_text(*shape, to));
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = *shape, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y;
    LT_TRY(lt_op_broadcast_input(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return be->cast(ctx, &x, &y);
}

static lt_status backward(lt_node *node)
{
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    return lt_op_unbroadcast(node, 0, &dy);
}

const lt_op lt_op_expand = {
    .name = "expand",
    .config_bytes = sizeof(lt_shape),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_expand(lt_tape *tape, lt_tensor *x, lt_shape shape)
{
    return lt_op_run(tape, &lt_op_expand, &x, 1, &shape);
}
