/* The same elements in row-major order of logical indices, under another shape. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/shape.h"

/* Replaces a size of -1 by the one that gives `count` elements. */
static lt_status infer_missing_dim(lt_shape *shape, int64_t count)
{
    int64_t known = 1;
    int unknown = -1;
    for (int d = 0; d < shape->ndim; d++) {
        if (shape->dim[d] == -1 && unknown < 0)
            unknown = d;
        else
            known *= shape->dim[d];
    }
    if (unknown >= 0 && known > 0 && count % known == 0) {
        shape->dim[unknown] = count / known;
        known = count;
    }
    return known == count ? LT_OK : LT_E_SHAPE;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char from[LT_SHAPE_TEXT], to[LT_SHAPE_TEXT];
    lt_shape shape = *(const lt_shape *)node->config, x = node->in[0]->shape;
    if (shape.ndim < 0 || shape.ndim > LT_MAX_DIMS || infer_missing_dim(&shape, lt_shape_count(x)))
        return lt_fail(LT_E_SHAPE, "reshape: %s cannot become %s, the element counts differ",
                       lt_shape_text(x, from), lt_shape_text(shape, to));
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = shape, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Copies from -> to by row-major index; through a row-major copy if neither has a view of the other's shape. */
static lt_status copy_reshaped(lt_node *node, const lt_view *from, const lt_view *to)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view middle = *from;
    middle.shape = to->shape;
    if (lt_view_reshape(from, to->shape, middle.stride))
        return be->cast(ctx, &middle, to);
    middle = *to;
    middle.shape = from->shape;
    if (lt_view_reshape(to, from->shape, middle.stride))
        return be->cast(ctx, from, &middle);
    LT_TRY(lt_node_scratch(node, from->dtype, LT_SHAPE(lt_shape_count(from->shape)), &middle));
    middle.shape = from->shape;
    lt_row_major_strides(middle.shape, middle.stride);
    LT_TRY(be->cast(ctx, from, &middle));
    middle.shape = to->shape;
    lt_row_major_strides(middle.shape, middle.stride);
    return be->cast(ctx, &middle, to);
}

/* Returns true if a view suffices. Kernels are fast on the two memory formats only, so other strides are
 * copied. */
static bool can_alias(const lt_view *x, lt_shape shape, int64_t stride[LT_MAX_DIMS])
{
    lt_view y = {.shape = shape};
    if (!lt_view_reshape(x, shape, y.stride))
        return false;
    for (int d = 0; d < LT_MAX_DIMS; d++)
        stride[d] = y.stride[d];
    return lt_view_is_contiguous(&y) || lt_view_is_channels_last(&y);
}

static lt_status forward(lt_node *node)
{
    int64_t stride[LT_MAX_DIMS] = {0};
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    if (can_alias(&x, node->out->shape, stride)) {
        lt_node_alias_input(node, 0, stride);
        return LT_OK;
    }
    LT_TRY(lt_node_out(node, &y));
    return copy_reshaped(node, &x, &y);
}

static lt_status backward(lt_node *node)
{
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return copy_reshaped(node, &dy, &dx);
}

const lt_op lt_op_reshape = {
    .name = "reshape",
    .config_bytes = sizeof(lt_shape),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_reshape(lt_tape *tape, lt_tensor *x, lt_shape shape)
{
    return lt_op_run(tape, &lt_op_reshape, &x, 1, &shape);
}

lt_tensor *lt_flatten(lt_tape *tape, lt_tensor *x)
{
    return lt_reshape(tape, x, LT_SHAPE(x && x->shape.ndim ? x->shape.dim[0] : 1, -1));
}
