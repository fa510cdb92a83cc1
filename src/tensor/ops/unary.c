/* Elementwise functions of one tensor: one set of rules, and a table per function. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/activation.h"
#include "lather/ops/elementwise.h"
#include "lather/ops/math.h"

#include <math.h>

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_pointwise *f = node->config;
    if (f->kind == LT_POINTWISE_CLAMP && !(f->number[0] <= f->number[1]))
        return lt_fail(LT_E_ARG, "clamp: low %g, high %g, want low <= high", f->number[0],
                       f->number[1]);
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = node->in[0]->shape};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    return v.be->pointwise(v.ctx, node->config, &v.in, NULL, &v.out);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_pointwise *f = node->config;
    lt_view dy, z, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_pointwise_reads_y(f->kind) ? lt_node_out(node, &z) : lt_node_in(node, 0, &z));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return be->pointwise_grad(ctx, f, 0, &dy, &z, NULL, &dx);
}

/* Backward reads x or y. If it reads x, y can be dropped and recomputed. */
#define TABLE(function, ignored, from_x)      \
    const lt_op lt_op_##function = {          \
        .name = #function,                    \
        .config_bytes = sizeof(lt_pointwise), \
        .recomputable = (from_x),             \
        .backward_ignores = (ignored),        \
        .infer = infer_shape,                 \
        .forward = forward,                   \
        .backward = backward,                 \
    }
#define OF_X(function) TABLE(function, LT_IGNORES_OUT, true)
#define OF_Y(function) TABLE(function, LT_IGNORES_IN(0), false)

OF_Y(exp);
OF_X(ln);
OF_Y(sqrt);
OF_X(pow);
OF_X(clamp);
OF_Y(sigmoid);
OF_Y(tanh);
OF_X(silu);
OF_X(gelu);
OF_X(abs);
OF_X(sign);
OF_X(leaky_relu);
OF_X(elu);
OF_X(softplus);

static lt_tensor *run_unary(lt_tape *tape, const lt_op *op, lt_pointwise f, lt_tensor *x)
{
    return lt_op_run(tape, op, &x, 1, &f);
}

lt_tensor *lt_exp(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_exp, (lt_pointwise){LT_POINTWISE_EXP, {0}}, x);
}

lt_tensor *lt_ln(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_ln, (lt_pointwise){LT_POINTWISE_LOG, {0}}, x);
}

lt_tensor *lt_sqrt(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_sqrt, (lt_pointwise){LT_POINTWISE_SQRT, {0}}, x);
}

lt_tensor *lt_pow(lt_tape *tape, lt_tensor *x, double exponent)
{
    return run_unary(tape, &lt_op_pow, (lt_pointwise){LT_POINTWISE_POW, {exponent}}, x);
}

lt_tensor *lt_clamp(lt_tape *tape, lt_tensor *x, double low, double high)
{
    return run_unary(tape, &lt_op_clamp, (lt_pointwise){LT_POINTWISE_CLAMP, {low, high}}, x);
}

lt_tensor *lt_sigmoid(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_sigmoid, (lt_pointwise){LT_POINTWISE_SIGMOID, {0}}, x);
}

lt_tensor *lt_tanh(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_tanh, (lt_pointwise){LT_POINTWISE_TANH, {0}}, x);
}

lt_tensor *lt_silu(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_silu, (lt_pointwise){LT_POINTWISE_SILU, {0}}, x);
}

lt_tensor *lt_gelu(lt_tape *tape, lt_tensor *x, lt_gelu_kind kind)
{
    if ((unsigned)kind > LT_GELU_TANH)
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "gelu: kind %d, want %d or %d", (int)kind,
                                          (int)LT_GELU_ERF, (int)LT_GELU_TANH));
    const lt_pointwise_kind f = kind == LT_GELU_ERF ? LT_POINTWISE_GELU : LT_POINTWISE_GELU_TANH;
    return run_unary(tape, &lt_op_gelu, (lt_pointwise){f, {0}}, x);
}

lt_tensor *lt_abs(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_abs, (lt_pointwise){LT_POINTWISE_ABS, {0}}, x);
}

lt_tensor *lt_sign(lt_tape *tape, lt_tensor *x)
{
    return run_unary(tape, &lt_op_sign, (lt_pointwise){LT_POINTWISE_SIGN, {0}}, x);
}

lt_tensor *lt_leaky_relu(lt_tape *tape, lt_tensor *x, double slope)
{
    return run_unary(tape, &lt_op_leaky_relu, (lt_pointwise){LT_POINTWISE_LEAKY_RELU, {slope}}, x);
}

lt_tensor *lt_elu(lt_tape *tape, lt_tensor *x, double alpha)
{
    return run_unary(tape, &lt_op_elu, (lt_pointwise){LT_POINTWISE_ELU, {alpha}}, x);
}

lt_tensor *lt_softplus(lt_tape *tape, lt_tensor *x, double beta, double threshold)
{
    const lt_pointwise f = {LT_POINTWISE_SOFTPLUS, {beta, threshold}};
    if (!(beta > 0) || !isfinite(beta))
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "softplus: beta %g, want > 0", beta));
    return run_unary(tape, &lt_op_softplus, f, x);
}

lt_tensor *lt_hardtanh(lt_tape *tape, lt_tensor *x, double low, double high)
{
    return lt_clamp(tape, x, low, high);
}

/* Rules of lt_scale(), which has a separate kernel and is not in the table. */

static lt_status scale_forward(lt_node *node)
{
    const double *factor = node->config;
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    return v.be->scale(v.ctx, *factor, &v.in, &v.out);
}

static lt_status scale_backward(lt_node *node)
{
    const double *factor = node->config;
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    return v.be->scale(v.ctx, *factor, &v.in, &v.out);
}

const lt_op lt_op_scale = {
    .name = "scale",
    .config_bytes = sizeof(double),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = lt_op_infer_same,
    .forward = scale_forward,
    .backward = scale_backward,
};

static lt_status shift_forward(lt_node *node)
{
    const double *number = node->config;
    lt_view one, all;
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    LT_TRY(lt_node_scratch(node, v.out.dtype, LT_SCALAR, &one));
    LT_TRY(v.be->fill(v.ctx, *number, &one));
    LT_ASSERT(lt_view_broadcast(&one, v.out.shape, &all));
    return v.be->add(v.ctx, &v.in, &all, &v.out);
}

static lt_status shift_backward(lt_node *node)
{
    return lt_node_pass_grad_through(node, 0);
}

/* Sum of a tensor and a number. */
const lt_op lt_op_shift = {
    .name = "shift",
    .config_bytes = sizeof(double),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = lt_op_infer_same,
    .forward = shift_forward,
    .backward = shift_backward,
};

lt_tensor *lt_scale(lt_tape *tape, lt_tensor *x, double factor)
{
    return lt_op_run(tape, &lt_op_scale, &x, 1, &factor);
}
