/* Broadcasting of operands, and the sum that reverses it in backward. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

bool lt_view_broadcast(const lt_view *small, lt_shape shape, lt_view *out)
{
    int shift = shape.ndim - small->shape.ndim;
    if (shift < 0)
        return false;
    *out = *small;
    out->shape = shape;
    for (int d = 0; d < shape.ndim; d++) {
        int64_t extent = d < shift ? 1 : small->shape.dim[d - shift];
        if (extent != 1 && extent != shape.dim[d])
            return false;
        out->stride[d] = extent == 1 ? 0 : small->stride[d - shift];
    }
    return true;
}

lt_status lt_op_infer_broadcast(const lt_node *node, lt_desc *out)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    lt_view y, small = {.shape = node->in[1] ? node->in[1]->shape : LT_SCALAR};
    if (!node->in[1] || !lt_view_broadcast(&small, node->in[0]->shape, &y))
        return lt_fail(LT_E_SHAPE, "%s: b %s does not broadcast to a's shape %s", node->op->name,
                       lt_shape_text(small.shape, b), lt_shape_text(node->in[0]->shape, a));
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = node->in[0]->shape};
    return LT_OK;
}

/* Returns size d of ndim of a shape that may have fewer dimensions. */
static int64_t dim_size(lt_shape shape, int d, int ndim)
{
    const int at = d - (ndim - shape.ndim);
    return at < 0 ? 1 : shape.dim[at];
}

bool lt_op_broadcast_shape(lt_shape a, lt_shape b, lt_shape *out)
{
    lt_shape s = {.ndim = a.ndim > b.ndim ? a.ndim : b.ndim};
    for (int d = 0; d < s.ndim; d++) {
        const int64_t m = dim_size(a, d, s.ndim), n = dim_size(b, d, s.ndim);
        if (m != n && m != 1 && n != 1)
            return false;
        s.dim[d] = m == 1 ? n : m;
    }
    *out = s;
    return true;
}

lt_status lt_op_infer_mutual_broadcast(const lt_node *node, lt_desc *out)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    const lt_shape as = node->in[0]->shape, bs = node->in[1] ? node->in[1]->shape : LT_SCALAR;
    if (!node->in[1])
        return lt_fail(LT_E_SHAPE, "%s: b is NULL", node->op->name);
    if (!lt_op_broadcast_shape(as, bs, &out->shape))
        return lt_fail(LT_E_SHAPE, "%s: a %s and b %s do not broadcast", node->op->name,
                       lt_shape_text(as, a), lt_shape_text(bs, b));
    const bool like_b = !lt_shape_equal(as, out->shape) && lt_shape_equal(bs, out->shape);
    out->dtype = node->in[like_b]->dtype;
    return LT_OK;
}

lt_status lt_op_broadcast_input(lt_node *node, int input, lt_view *view)
{
    lt_view small;
    LT_TRY(lt_node_in(node, input, &small));
    LT_ASSERT(lt_view_broadcast(&small, node->out->shape, view));
    return LT_OK;
}

bool lt_op_same_shape(const lt_node *node, int input)
{
    return lt_shape_equal(node->in[input]->shape, node->out->shape);
}

/* Views dx with as many dimensions as g, by prepending ones of size 1. */
static lt_view prepend_dims(const lt_view *dx, int ndim)
{
    lt_view v = *dx;
    int shift = ndim - dx->shape.ndim;
    v.shape.ndim = ndim;
    for (int d = ndim - 1; d >= 0; d--) {
        v.shape.dim[d] = d >= shift ? dx->shape.dim[d - shift] : 1;
        v.stride[d] = d >= shift ? dx->stride[d - shift] : 0;
    }
    return v;
}

lt_status lt_op_unbroadcast(lt_node *node, int input, const lt_view *g)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dx;
    LT_TRY(lt_node_grad_out(node, input, &dx));
    lt_view full = prepend_dims(&dx, g->shape.ndim);
    return be->sum(ctx, 1, g, &full);
}
