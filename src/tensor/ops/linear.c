/* y = x w^T + b over the last dimension of x; w is stored as [out,in] or [in,out]. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/matmul.h"

enum { X, W, B };

static bool has_in_out_weight(const lt_node *node)
{
    return ((const lt_linear_config *)node->config)->in_out;
}

/* Returns w's shape as [out,in], however it is stored. */
static lt_shape weight_shape(const lt_node *node)
{
    const lt_shape w = node->in[W]->shape;
    return has_in_out_weight(node) ? LT_SHAPE(w.dim[1], w.dim[0]) : w;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char x[LT_SHAPE_TEXT], w[LT_SHAPE_TEXT];
    if (!node->in[W])
        return lt_fail(LT_E_ARG, "linear: w is NULL");
    lt_shape y = node->in[X]->shape;
    if (y.ndim < 1 || node->in[W]->shape.ndim != 2
        || y.dim[y.ndim - 1] != weight_shape(node).dim[1])
        return lt_fail(LT_E_SHAPE, "linear: x %s and w %s do not fit, want [..,C] and %s",
                       lt_shape_text(y, x), lt_shape_text(node->in[W]->shape, w),
                       has_in_out_weight(node) ? "[C,K]" : "[K,C]");
    const int64_t features = weight_shape(node).dim[0];
    if (node->in[B] && !lt_shape_equal(node->in[B]->shape, LT_SHAPE(features)))
        return lt_fail(LT_E_SHAPE, "linear: b %s, want [%lld]",
                       lt_shape_text(node->in[B]->shape, x), (long long)features);
    y.dim[y.ndim - 1] = features;
    *out = (lt_desc){.dtype = node->in[X]->dtype, .shape = y, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Returns true if one kernel computes the gradients of w and b. */
static bool has_fused_weight_grad(const lt_node *node)
{
    void *ctx;
    return lt_node_needs_grad(node, W) && lt_node_needs_grad(node, B)
           && lt_node_backend(node, &ctx)->linear_grad_w;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, w, y, rows, b = {0};
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_op_as_rows(node, &x, &rows));
    LT_TRY(lt_node_in(node, W, &w));
    if (node->in[B])
        LT_TRY(lt_node_in(node, B, &b));
    LT_TRY(lt_node_out(node, &y));
    w = lt_op_as_out_in(&w, has_in_out_weight(node));
    LT_TRY(lt_op_output_rows(node, &y, &y)); /* y is row-major: nothing to copy back */
    return be->linear(ctx, &rows, &w, b.data ? &b : NULL, &y);
}

static lt_status backward_x(lt_node *node, const lt_view *dy)
{
    lt_view w, dx, rows;
    LT_TRY(lt_node_in(node, W, &w));
    LT_TRY(lt_node_grad_out(node, X, &dx));
    LT_TRY(lt_op_output_rows(node, &dx, &rows));
    w = lt_op_as_out_in(&w, has_in_out_weight(node));
    LT_TRY(lt_op_matrix_product(node, lt_op_as_batch(dy, false), lt_op_as_batch(&w, false), &rows));
    return lt_op_copy_output_rows(node, &rows, &dx);
}

static lt_status backward_w(lt_node *node, const lt_view *dy)
{
    lt_view x, rows, dw;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_op_as_rows(node, &x, &rows));
    LT_TRY(lt_node_grad_out(node, W, &dw));
    if (has_in_out_weight(node))
        return lt_op_matrix_product(node, lt_op_as_batch(&rows, true), lt_op_as_batch(dy, false),
                                    &dw);
    return lt_op_matrix_product(node, lt_op_as_batch(dy, true), lt_op_as_batch(&rows, false), &dw);
}

static lt_status backward_w_and_b(lt_node *node, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, rows, dw, db;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_op_as_rows(node, &x, &rows));
    LT_TRY(lt_node_grad_out(node, W, &dw));
    LT_TRY(lt_node_grad_out(node, B, &db));
    dw = lt_op_as_out_in(&dw, has_in_out_weight(node));
    return be->linear_grad_w(ctx, dy, &rows, &dw, &db);
}

static lt_status backward(lt_node *node)
{
    lt_view g, dy;
    LT_TRY(lt_node_grad(node, &g));
    LT_TRY(lt_op_as_rows(node, &g, &dy));
    if (lt_node_needs_grad(node, X))
        LT_TRY(backward_x(node, &dy));
    if (has_fused_weight_grad(node))
        return backward_w_and_b(node, &dy);
    if (lt_node_needs_grad(node, W))
        LT_TRY(backward_w(node, &dy));
    return lt_node_needs_grad(node, B) ? lt_op_unbroadcast(node, B, &dy) : LT_OK;
}

const lt_op lt_op_linear = {
    .name = "linear",
    .config_bytes = sizeof(lt_linear_config),
    .backward_ignores = LT_IGNORES_IN(B) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_linear_as(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                        lt_linear_config config)
{
    return lt_op_run(tape, &lt_op_linear, (lt_tensor *[]){x, w, b}, 3, &config);
}

lt_tensor *lt_linear(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b)
{
    return lt_linear_as(tape, x, w, b, (lt_linear_config){.in_out = false});
}
