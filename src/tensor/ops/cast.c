/* Conversion to another dtype or memory format. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/math.h"
#include "lather/ops/shape.h"

static bool is_floating(lt_dtype dtype)
{
    return dtype == LT_F32 || dtype == LT_F64 || dtype == LT_F16 || dtype == LT_BF16;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_dtype *dtype = node->config;
    if (node->in[0]->wants_grad && !is_floating(*dtype))
        return lt_fail(LT_E_SHAPE, "cast: %s to %s has no gradient",
                       lt_dtype_name(node->in[0]->dtype), lt_dtype_name(*dtype));
    *out = (lt_desc){.dtype = *dtype, .shape = node->in[0]->shape};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    return v.be->cast(v.ctx, &v.in, &v.out);
}

static lt_status backward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    return v.be->cast(v.ctx, &v.in, &v.out);
}

const lt_op lt_op_cast = {
    .name = "cast",
    .config_bytes = sizeof(lt_dtype),
    .recomputable = true,
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

static lt_status infer_format(const lt_node *node, lt_desc *out)
{
    const lt_memory_format *format = node->config;
    char text[LT_SHAPE_TEXT];
    const lt_shape x = node->in[0]->shape;
    if (*format == LT_FORMAT_CHANNELS_LAST && x.ndim != 4)
        return lt_fail(LT_E_SHAPE, "to_format: x %s, channels-last needs 4 dimensions",
                       lt_shape_text(x, text));
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = x, .format = *format};
    return LT_OK;
}

const lt_op lt_op_to_format = {
    .name = "to_format",
    .config_bytes = sizeof(lt_memory_format),
    .recomputable = true,
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_format,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_cast(lt_tape *tape, lt_tensor *x, lt_dtype dtype)
{
    if (x && x->dtype == dtype)
        return lt_tape_status(tape) ? NULL : x;
    return lt_op_run(tape, &lt_op_cast, &x, 1, &dtype);
}

static bool has_format(const lt_tensor *x, lt_memory_format format)
{
    const lt_view v = lt_tensor_view(x);
    return format == LT_FORMAT_PRESERVE
           || (format == LT_FORMAT_CONTIGUOUS ? lt_view_is_contiguous(&v)
                                              : lt_view_is_channels_last(&v));
}

lt_tensor *lt_to_format(lt_tape *tape, lt_tensor *x, lt_memory_format format)
{
    if (x && has_format(x, format))
        return lt_tape_status(tape) ? NULL : x;
    /* Takes no ordinal: those select dropout's random numbers, and values must not depend on formats. */
    const int64_t ordinal = tape->ordinal;
    lt_tensor *y = lt_op_run(tape, &lt_op_to_format, &x, 1, &format);
    tape->ordinal = ordinal;
    return y;
}

lt_tensor *lt_op_to_channels_last(lt_tape *tape, lt_tensor *x)
{
    return x && x->shape.ndim == 4 ? lt_to_format(tape, x, LT_FORMAT_CHANNELS_LAST) : x;
}
