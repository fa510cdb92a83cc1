/* Selection by a mask, and constants made of tensors. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/index.h"
#include "lather/ops/math.h"

/* Inputs: y is CHOSEN, or the number in the config without it, where MASK is not 0, else OTHER. */
enum { OTHER, MASK, CHOSEN };

static lt_status check_mask(const lt_node *node)
{
    if (!node->in[MASK] || node->in[MASK]->dtype != LT_U8)
        return lt_fail(LT_E_SHAPE, "%s: mask is %s, want u8", node->op->name,
                       node->in[MASK] ? lt_dtype_name(node->in[MASK]->dtype) : "NULL");
    return LT_OK;
}

static lt_status infer_where(const lt_node *node, lt_desc *out)
{
    char m[LT_SHAPE_TEXT], a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    LT_TRY(check_mask(node));
    if (!node->in[CHOSEN])
        return lt_fail(LT_E_ARG, "where: a is NULL");
    const lt_shape mask = node->in[MASK]->shape, chosen = node->in[CHOSEN]->shape,
                   other = node->in[OTHER]->shape;
    if (!lt_op_broadcast_shape(chosen, other, &out->shape)
        || !lt_op_broadcast_shape(mask, out->shape, &out->shape))
        return lt_fail(LT_E_SHAPE, "where: mask %s, a %s and b %s do not broadcast",
                       lt_shape_text(mask, m), lt_shape_text(chosen, a), lt_shape_text(other, b));
    out->dtype = node->in[OTHER]->dtype;
    return LT_OK;
}

static lt_status infer_masked_fill(const lt_node *node, lt_desc *out)
{
    char m[LT_SHAPE_TEXT], x[LT_SHAPE_TEXT];
    LT_TRY(check_mask(node));
    const lt_shape shape = node->in[OTHER]->shape;
    lt_view wide, mask = {.shape = node->in[MASK]->shape};
    if (!lt_view_broadcast(&mask, shape, &wide))
        return lt_fail(LT_E_SHAPE, "masked_fill: mask %s does not broadcast to x's shape %s",
                       lt_shape_text(mask.shape, m), lt_shape_text(shape, x));
    *out = (lt_desc){.dtype = node->in[OTHER]->dtype, .shape = shape};
    return LT_OK;
}

/* Returns a number in the output's shape. */
static lt_status repeat(lt_node *node, double value, lt_dtype dtype, lt_view *out)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view one;
    LT_TRY(lt_node_scratch(node, dtype, LT_SCALAR, &one));
    LT_TRY(be->fill(ctx, value, &one));
    LT_ASSERT(lt_view_broadcast(&one, node->out->shape, out));
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view mask, chosen, other, y;
    LT_TRY(lt_op_broadcast_input(node, MASK, &mask));
    LT_TRY(lt_op_broadcast_input(node, OTHER, &other));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(node->in[CHOSEN] ? lt_op_broadcast_input(node, CHOSEN, &chosen)
                            : repeat(node, *(const double *)node->config, y.dtype, &chosen));
    return be->where(ctx, &mask, &chosen, &other, &y);
}

/* dy where the input was taken, else 0; for a broadcast input in the full shape, then summed. */
static lt_status backward_input(lt_node *node, int input, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const bool same = lt_op_same_shape(node, input);
    lt_view mask, zero, g;
    LT_TRY(lt_op_broadcast_input(node, MASK, &mask));
    LT_TRY(repeat(node, 0, dy->dtype, &zero));
    LT_TRY(same ? lt_node_grad_out(node, input, &g)
                : lt_node_scratch(node, dy->dtype, node->out->shape, &g));
    LT_TRY(be->where(ctx, &mask, input == CHOSEN ? dy : &zero, input == CHOSEN ? &zero : dy, &g));
    return same ? LT_OK : lt_op_unbroadcast(node, input, &g);
}

static lt_status backward(lt_node *node)
{
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    for (int i = OTHER; i <= CHOSEN; i += CHOSEN - OTHER)
        if (lt_node_needs_grad(node, i))
            LT_TRY(backward_input(node, i, &dy));
    return LT_OK;
}

#define TABLE(function)                                                                    \
    const lt_op lt_op_##function = {                                                       \
        .name = #function,                                                                 \
        .config_bytes = sizeof(double),                                                    \
        .backward_ignores = LT_IGNORES_IN(OTHER) | LT_IGNORES_IN(CHOSEN) | LT_IGNORES_OUT, \
        .infer = infer_##function,                                                         \
        .forward = forward,                                                                \
        .backward = backward,                                                              \
    }
TABLE(where);
TABLE(masked_fill);

lt_tensor *lt_where(lt_tape *tape, lt_tensor *mask, lt_tensor *a, lt_tensor *b)
{
    const double none = 0;
    b = a && b ? lt_cast(tape, b, a->dtype) : b;
    return lt_op_run(tape, &lt_op_where, (lt_tensor *[]){b, mask, a}, 3, &none);
}

lt_tensor *lt_masked_fill(lt_tape *tape, lt_tensor *x, lt_tensor *mask, double value)
{
    return lt_op_run(tape, &lt_op_masked_fill, (lt_tensor *[]){x, mask}, 2, &value);
}

static lt_status forward_detach(lt_node *node)
{
    lt_view x;
    LT_TRY(lt_node_in(node, 0, &x));
    lt_node_alias_input(node, 0, x.stride);
    return LT_OK;
}

/* Without backward: the output has no gradient. */
const lt_op lt_op_detach = {
    .name = "detach",
    .infer = lt_op_infer_same,
    .forward = forward_detach,
};

lt_tensor *lt_detach(lt_tape *tape, lt_tensor *x)
{
    return lt_op_run(tape, &lt_op_detach, &x, 1, NULL);
}
