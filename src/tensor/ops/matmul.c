/* y = a b, batched over leading dimensions; transposes are strides. */

#include "lather/ops/matmul.h"

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

static int64_t matrix_dim_size(const lt_tensor *t, int from_end, bool transpose)
{
    int d = t->shape.ndim - (transpose ? 3 - from_end : from_end);
    return t->shape.dim[d];
}

static lt_status fail_shape_mismatch(const lt_node *node)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    const lt_matmul_config *c = node->config;
    return lt_fail(LT_E_SHAPE, "matmul: a %s%s and b %s%s do not fit",
                   lt_shape_text(node->in[0]->shape, a), c->transpose_a ? " transposed" : "",
                   lt_shape_text(node->in[1]->shape, b), c->transpose_b ? " transposed" : "");
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_matmul_config *c = node->config;
    const lt_tensor *a = node->in[0], *b = node->in[1];
    if (!b)
        return lt_fail(LT_E_ARG, "matmul: b is NULL");
    if (a->shape.ndim < 2 || b->shape.ndim < 2
        || (b->shape.ndim != a->shape.ndim && b->shape.ndim != 2)
        || matrix_dim_size(a, 1, c->transpose_a) != matrix_dim_size(b, 2, c->transpose_b))
        return fail_shape_mismatch(node);
    lt_shape y = a->shape;
    for (int d = 0; b->shape.ndim > 2 && d < y.ndim - 2; d++)
        if (b->shape.dim[d] != y.dim[d])
            return fail_shape_mismatch(node);
    y.dim[y.ndim - 2] = matrix_dim_size(a, 2, c->transpose_a);
    y.dim[y.ndim - 1] = matrix_dim_size(b, 1, c->transpose_b);
    *out = (lt_desc){.dtype = a->dtype, .shape = y, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Returns the operand as [B,rows,columns], merging leading dimensions. */
static lt_status as_batch(lt_node *node, const lt_view *x, bool transpose, lt_view *out)
{
    int n = x->shape.ndim;
    int64_t batch = lt_shape_count(x->shape) / (x->shape.dim[n - 2] * x->shape.dim[n - 1]);
    *out = *x;
    out->shape = LT_SHAPE(batch, x->shape.dim[n - 2], x->shape.dim[n - 1]);
    if (!lt_view_reshape(x, out->shape, out->stride)) {
        /* a channels-last operand, for example after a convolution */
        void *ctx;
        const lt_backend *be = lt_node_backend(node, &ctx);
        lt_view copy;
        LT_TRY(lt_node_scratch(node, x->dtype, out->shape, out));
        copy = *out;
        copy.shape = x->shape;
        lt_row_major_strides(copy.shape, copy.stride);
        LT_TRY(be->cast(ctx, x, &copy));
    }
    if (transpose) {
        int64_t stride = out->stride[1];
        out->stride[1] = out->stride[2];
        out->stride[2] = stride;
        out->shape = LT_SHAPE(batch, out->shape.dim[2], out->shape.dim[1]);
    }
    return LT_OK;
}

static void broadcast_batch(lt_view *v, int64_t batch)
{
    if (v->shape.dim[0] == batch)
        return;
    v->shape.dim[0] = batch;
    v->stride[0] = 0;
}

/* y = op(a) op(b) on views of any rank; a gradient's y may be channels-last. */
static lt_status multiply_views(lt_node *node, const lt_view *a, bool ta, const lt_view *b, bool tb,
                                const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a3, b3, y3 = *y, copy;
    LT_TRY(as_batch(node, a, ta, &a3));
    LT_TRY(as_batch(node, b, tb, &b3));
    int64_t batch = a3.shape.dim[0] > b3.shape.dim[0] ? a3.shape.dim[0] : b3.shape.dim[0];
    broadcast_batch(&a3, batch);
    broadcast_batch(&b3, batch);
    y3.shape = LT_SHAPE(batch, a3.shape.dim[1], b3.shape.dim[2]);
    if (lt_view_reshape(y, y3.shape, y3.stride))
        return be->matmul(ctx, &a3, &b3, &y3);
    LT_TRY(lt_node_scratch(node, y->dtype, y3.shape, &y3));
    LT_TRY(be->matmul(ctx, &a3, &b3, &y3));
    copy = y3;
    copy.shape = y->shape;
    lt_row_major_strides(copy.shape, copy.stride);
    return be->cast(ctx, &copy, y);
}

static lt_status forward(lt_node *node)
{
    const lt_matmul_config *c = node->config;
    lt_view a, b, y;
    LT_TRY(lt_node_in(node, 0, &a));
    LT_TRY(lt_node_in(node, 1, &b));
    LT_TRY(lt_node_out(node, &y));
    return multiply_views(node, &a, c->transpose_a, &b, c->transpose_b, &y);
}

/* da = dy op(b)^T, or its transpose. */
static lt_status backward_a(lt_node *node, const lt_view *dy)
{
    const lt_matmul_config *c = node->config;
    lt_view b, da;
    LT_TRY(lt_node_in(node, 1, &b));
    LT_TRY(lt_node_grad_out(node, 0, &da));
    if (c->transpose_a)
        return multiply_views(node, &b, c->transpose_b, dy, true, &da);
    return multiply_views(node, dy, false, &b, !c->transpose_b, &da);
}

/* db = op(a)^T dy, or its transpose; batched like dy. */
static lt_status multiply_grad_b(lt_node *node, const lt_view *a, const lt_view *dy,
                                 const lt_view *db)
{
    const lt_matmul_config *c = node->config;
    if (c->transpose_b)
        return multiply_views(node, dy, true, a, c->transpose_a, db);
    return multiply_views(node, a, !c->transpose_a, dy, false, db);
}

/* Returns the rows of all matrices of a batch, op(x), as one matrix: a view if possible, else a copy. */
static lt_status flatten_batch_rows(lt_node *node, const lt_view *x, bool transpose, lt_view *out)
{
    void *ctx;
    lt_view batch;
    LT_TRY(as_batch(node, x, transpose, &batch));
    *out = batch;
    out->shape = LT_SHAPE(batch.shape.dim[0] * batch.shape.dim[1], batch.shape.dim[2]);
    if (lt_view_reshape(&batch, out->shape, out->stride))
        return LT_OK;
    LT_TRY(lt_node_scratch(node, x->dtype, batch.shape, out));
    LT_TRY(lt_node_backend(node, &ctx)->cast(ctx, &batch, out));
    out->shape = LT_SHAPE(batch.shape.dim[0] * batch.shape.dim[1], batch.shape.dim[2]);
    lt_row_major_strides(out->shape, out->stride);
    return LT_OK;
}

static lt_status backward_b(lt_node *node, const lt_view *dy)
{
    const lt_matmul_config *c = node->config;
    lt_view a, db, rows_a, rows_dy;
    LT_TRY(lt_node_in(node, 0, &a));
    LT_TRY(lt_node_grad_out(node, 1, &db));
    if (node->in[1]->shape.ndim == node->out->shape.ndim)
        return multiply_grad_b(node, &a, dy, &db);
    /* One matrix for the whole batch: its gradient is one product over the rows of all matrices. */
    LT_TRY(flatten_batch_rows(node, &a, c->transpose_a, &rows_a));
    LT_TRY(flatten_batch_rows(node, dy, false, &rows_dy));
    if (c->transpose_b)
        return multiply_views(node, &rows_dy, true, &rows_a, false, &db);
    return multiply_views(node, &rows_a, true, &rows_dy, false, &db);
}

static lt_status backward(lt_node *node)
{
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    if (lt_node_needs_grad(node, 0))
        LT_TRY(backward_a(node, &dy));
    return lt_node_needs_grad(node, 1) ? backward_b(node, &dy) : LT_OK;
}

const lt_op lt_op_matmul = {
    .name = "matmul",
    .config_bytes = sizeof(lt_matmul_config),
    .backward_ignores = LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_matmul(lt_tape *tape, lt_tensor *a, lt_tensor *b, lt_matmul_config config)
{
    return lt_op_run(tape, &lt_op_matmul, (lt_tensor *[]){a, b}, 2, &config);
}
