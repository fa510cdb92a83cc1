/* Rotary position embedding: Su et al., "RoFormer", 2021, section 3.2.2. The gradient is the inverse
 * rotation. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/attention.h"

#include <math.h>

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_rotary_config *c = node->config;
    char text[LT_SHAPE_TEXT];
    const lt_shape x = node->in[0]->shape;
    if (c->heads < 1 || !(c->base > 0) || !isfinite(c->base) || c->first < 0)
        return lt_fail(LT_E_ARG,
                       "rotary: got %d heads, base %g, first position %lld; want >= 1, > 0, "
                       ">= 0",
                       c->heads, c->base, (long long)c->first);
    if (x.ndim != 3 || x.dim[2] % (2 * (int64_t)c->heads))
        return lt_fail(LT_E_SHAPE,
                       "rotary: x %s, want [B,T,C] with C a multiple of %d (heads of even size)",
                       lt_shape_text(x, text), 2 * c->heads);
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = x, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status rotate_heads(const lt_node *node, bool inverse, const lt_view *x, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_rotary_config *c = node->config;
    const int64_t d = x->shape.dim[2] / c->heads;
    const lt_view from = lt_op_as_heads(x, 0, c->heads, d), to = lt_op_as_heads(y, 0, c->heads, d);
    return be->rotary(ctx, c, inverse, &from, &to);
}

static lt_status forward(lt_node *node)
{
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return rotate_heads(node, false, &x, &y);
}

static lt_status backward(lt_node *node)
{
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return rotate_heads(node, true, &dy, &dx);
}

const lt_op lt_op_rotary = {
    .name = "rotary",
    .config_bytes = sizeof(lt_rotary_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_rotary(lt_tape *tape, lt_tensor *x, lt_rotary_config config)
{
    if (config.base == 0)
        config.base = 10000;
    return lt_op_run(tape, &lt_op_rotary, &x, 1, &config);
}
