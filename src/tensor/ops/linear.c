/* y = x w^T + b. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/matmul.h"

enum { X, W, B };

static lt_status infer(const lt_node *node, lt_desc *out)
{
    char x[LT_SHAPE_TEXT], w[LT_SHAPE_TEXT];
    if (!node->in[W])
        return lt_fail(LT_E_ARG, "linear: w is NULL");
    lt_shape xs = node->in[X]->shape, ws = node->in[W]->shape;
    if (xs.ndim != 2 || ws.ndim != 2 || xs.dim[1] != ws.dim[1])
        return lt_fail(LT_E_SHAPE, "linear: x %s and w %s do not fit, want [N,C] and [K,C]",
                       lt_shape_text(xs, x), lt_shape_text(ws, w));
    if (node->in[B] && !lt_shape_equal(node->in[B]->shape, LT_SHAPE(ws.dim[0])))
        return lt_fail(LT_E_SHAPE, "linear: b %s, want [%lld]",
                       lt_shape_text(node->in[B]->shape, x), (long long)ws.dim[0]);
    *out = (lt_desc){.dtype = node->in[X]->dtype, .shape = LT_SHAPE(xs.dim[0], ws.dim[0])};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, w, y, b = {0};
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_in(node, W, &w));
    if (node->in[B])
        LT_TRY(lt_node_in(node, B, &b));
    LT_TRY(lt_node_out(node, &y));
    return be->linear(ctx, &x, &w, b.data ? &b : NULL, &y);
}

/* A matrix as a batch of one. */
static lt_view batch(const lt_view *m, bool transpose)
{
    lt_view v = *m;
    int rows = transpose ? 1 : 0;
    v.shape = LT_SHAPE(1, m->shape.dim[rows], m->shape.dim[1 - rows]);
    v.stride[0] = 0;
    v.stride[1] = m->stride[rows];
    v.stride[2] = m->stride[1 - rows];
    return v;
}

static lt_status product(lt_node *node, lt_view a, lt_view b, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view out = batch(y, false);
    return be->matmul(ctx, &a, &b, &out);
}

static lt_status backward(lt_node *node)
{
    lt_view dy, x, w, dx, dw;
    LT_TRY(lt_node_grad(node, &dy));
    if (lt_node_wants(node, X)) {
        LT_TRY(lt_node_in(node, W, &w));
        LT_TRY(lt_node_grad_out(node, X, &dx));
        LT_TRY(product(node, batch(&dy, false), batch(&w, false), &dx));
    }
    if (lt_node_wants(node, W)) {
        LT_TRY(lt_node_in(node, X, &x));
        LT_TRY(lt_node_grad_out(node, W, &dw));
        LT_TRY(product(node, batch(&dy, true), batch(&x, false), &dw));
    }
    return lt_node_wants(node, B) ? lt_op_unbroadcast(node, B, &dy) : LT_OK;
}

const lt_op lt_op_linear = {
    .name = "linear",
    .backward_ignores = LT_IGNORES_IN(B) | LT_IGNORES_OUT,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_linear(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b)
{
    return lt_op_run(tape, &lt_op_linear, (lt_tensor *[]){x, w, b}, 3, NULL);
}
