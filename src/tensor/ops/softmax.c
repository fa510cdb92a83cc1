/* Softmax over the last dimension. Kernels take rows, [N,K]; other shapes are reshaped. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/loss.h"
#include "lather/ops/shape.h"

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char text[LT_SHAPE_TEXT];
    const lt_shape x = node->in[0]->shape;
    if (x.ndim != 2 || x.dim[1] < 1)
        return lt_fail(LT_E_SHAPE, "softmax: x %s, want a last dimension of at least 1",
                       lt_shape_text(x, text));
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = x};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    return v.be->softmax(v.ctx, &v.in, &v.out);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, y, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return be->softmax_grad(ctx, &dy, &y, &dx);
}

const lt_op lt_op_softmax = {
    .name = "softmax",
    .backward_ignores = LT_IGNORES_IN(0),
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_softmax(lt_tape *tape, lt_tensor *x)
{
    const lt_shape shape = x ? x->shape : LT_SCALAR;
    const bool other = shape.ndim == 1 || shape.ndim > 2;
    if (other)
        x = lt_reshape(tape, x, LT_SHAPE(-1, shape.dim[shape.ndim - 1]));
    lt_tensor *y = lt_op_run(tape, &lt_op_softmax, &x, 1, NULL);
    return other ? lt_reshape(tape, y, shape) : y;
}
