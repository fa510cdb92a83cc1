/* Views of a node's tensors: as they are, or as matrices whose rows are the last dimension; and products of matrices. */

#include "tensor/ops/ops.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

lt_status lt_op_forward_views(lt_node *node, lt_op_views *v)
{
    v->be = lt_node_backend(node, &v->ctx);
    LT_TRY(lt_node_in(node, 0, &v->in));
    return lt_node_out(node, &v->out);
}

lt_status lt_op_grad_views(lt_node *node, lt_op_views *v)
{
    v->be = lt_node_backend(node, &v->ctx);
    LT_TRY(lt_node_grad(node, &v->in));
    return lt_node_grad_out(node, 0, &v->out);
}

lt_status lt_op_infer_same(const lt_node *node, lt_desc *out)
{
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = node->in[0]->shape};
    return LT_OK;
}

static lt_shape rows_shape(lt_shape shape)
{
    const int64_t columns = shape.ndim ? shape.dim[shape.ndim - 1] : 1;
    return LT_SHAPE(columns ? lt_shape_count(shape) / columns : 0, columns);
}

/* Views a contiguous matrix or vector under the tensor's shape. */
static lt_view view_as_shape(const lt_view *rows, lt_shape shape)
{
    lt_view v = *rows;
    v.shape = shape;
    lt_row_major_strides(shape, v.stride);
    return v;
}

lt_status lt_op_output_rows(lt_node *node, const lt_view *y, lt_view *rows)
{
    lt_view v = *y;
    v.shape = rows_shape(y->shape);
    if (!lt_view_reshape(y, v.shape, v.stride))
        LT_TRY(lt_node_scratch(node, y->dtype, v.shape, &v));
    *rows = v;
    return LT_OK;
}

lt_status lt_op_copy_output_rows(lt_node *node, const lt_view *rows, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_view from = view_as_shape(rows, y->shape);
    return rows->data == y->data ? LT_OK : be->cast(ctx, &from, y);
}

lt_status lt_op_as_rows(lt_node *node, const lt_view *x, lt_view *rows)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    LT_TRY(lt_op_output_rows(node, x, rows));
    const lt_view to = view_as_shape(rows, x->shape);
    return rows->data == x->data ? LT_OK : be->cast(ctx, x, &to);
}

lt_status lt_op_as_contiguous(lt_node *node, const lt_view *x, lt_view *dense)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    *dense = *x;
    if (lt_view_is_contiguous(x))
        return LT_OK;
    LT_TRY(lt_node_scratch(node, x->dtype, x->shape, dense));
    return be->cast(ctx, x, dense);
}

lt_status lt_op_as_vector(lt_node *node, const lt_view *x, lt_view *vector)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view v = *x;
    v.shape = LT_SHAPE(lt_shape_count(x->shape));
    *vector = v;
    if (lt_view_reshape(x, v.shape, vector->stride))
        return LT_OK;
    LT_TRY(lt_node_scratch(node, x->dtype, v.shape, vector));
    const lt_view to = view_as_shape(vector, x->shape);
    return be->cast(ctx, x, &to);
}

lt_view lt_op_as_heads(const lt_view *x, int64_t first, int64_t heads, int64_t d)
{
    lt_view v = *x;
    v.data = (char *)x->data + first * x->stride[2] * (int64_t)lt_dtype_size(x->dtype);
    v.shape = LT_SHAPE(x->shape.dim[0], x->shape.dim[1], heads, d);
    v.stride[2] = d * x->stride[2];
    v.stride[3] = x->stride[2];
    return v;
}

lt_view lt_op_as_batch(const lt_view *m, bool transpose)
{
    lt_view v = *m;
    const int rows = transpose ? 1 : 0;
    v.shape = LT_SHAPE(1, m->shape.dim[rows], m->shape.dim[1 - rows]);
    v.stride[0] = 0;
    v.stride[1] = m->stride[rows];
    v.stride[2] = m->stride[1 - rows];
    return v;
}

lt_status lt_op_matrix_product(lt_node *node, lt_view a, lt_view b, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_view out = lt_op_as_batch(y, false);
    return be->matmul(ctx, &a, &b, &out);
}

lt_view lt_op_as_out_in(const lt_view *w, bool in_out)
{
    lt_view v = *w;
    if (!in_out)
        return v;
    v.shape = LT_SHAPE(w->shape.dim[1], w->shape.dim[0]);
    v.stride[0] = w->stride[1];
    v.stride[1] = w->stride[0];
    return v;
}
