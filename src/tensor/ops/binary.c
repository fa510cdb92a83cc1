/* Elementwise functions of two tensors that are broadcast to each other, and the losses made of them. Sum
 * and product have separate kernels, and gradients that read less. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/activation.h"
#include "lather/ops/arithmetic.h"
#include "lather/ops/loss.h"
#include "lather/ops/losses.h"
#include "lather/ops/math.h"

enum { A, B };

static lt_status get_operands(lt_node *node, lt_view *a, lt_view *b)
{
    LT_TRY(lt_op_broadcast_input(node, A, a));
    return lt_op_broadcast_input(node, B, b);
}

static lt_status add_forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a, b, y;
    LT_TRY(get_operands(node, &a, &b));
    LT_TRY(lt_node_out(node, &y));
    return be->add(ctx, &a, &b, &y);
}

static lt_status add_backward_input(lt_node *node, int input)
{
    lt_view dy;
    if (lt_op_same_shape(node, input) && node->in[input]->dtype == node->out->dtype)
        return lt_node_pass_grad_through(node, input);
    LT_TRY(lt_node_grad(node, &dy));
    return lt_op_unbroadcast(node, input, &dy);
}

static lt_status add_backward(lt_node *node)
{
    for (int i = 0; i < 2; i++)
        if (lt_node_needs_grad(node, i))
            LT_TRY(add_backward_input(node, i));
    return LT_OK;
}

const lt_op lt_op_add = {
    .name = "add",
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_IN(1) | LT_IGNORES_OUT,
    .infer = lt_op_infer_mutual_broadcast,
    .forward = add_forward,
    .backward = add_backward,
};

lt_tensor *lt_add(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return lt_op_run(tape, &lt_op_add, (lt_tensor *[]){a, b}, 2, NULL);
}

static lt_status mul_forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a, b, y;
    LT_TRY(get_operands(node, &a, &b));
    LT_TRY(lt_node_out(node, &y));
    return be->mul(ctx, &a, &b, &y);
}

/* dy times the other input; for a broadcast input computed in the full shape, then summed. */
static lt_status mul_backward_input(lt_node *node, int input, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view other, g;
    LT_TRY(lt_op_broadcast_input(node, !input, &other));
    if (lt_op_same_shape(node, input)) {
        LT_TRY(lt_node_grad_out(node, input, &g));
        return be->mul(ctx, dy, &other, &g);
    }
    LT_TRY(lt_node_scratch(node, node->in[input]->dtype, node->out->shape, &g));
    LT_TRY(be->mul(ctx, dy, &other, &g));
    return lt_op_unbroadcast(node, input, &g);
}

static lt_status mul_backward(lt_node *node)
{
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    for (int i = 0; i < 2; i++)
        if (lt_node_needs_grad(node, i))
            LT_TRY(mul_backward_input(node, i, &dy));
    return LT_OK;
}

const lt_op lt_op_mul = {
    .name = "mul",
    .backward_ignores = LT_IGNORES_OUT,
    .infer = lt_op_infer_mutual_broadcast,
    .forward = mul_forward,
    .backward = mul_backward,
};

lt_tensor *lt_mul(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return lt_op_run(tape, &lt_op_mul, (lt_tensor *[]){a, b}, 2, NULL);
}

/* Losses need inputs of equal shape. */
static lt_status infer_loss(const lt_node *node, lt_desc *out)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    const lt_shape as = node->in[A]->shape, bs = node->in[B] ? node->in[B]->shape : LT_SCALAR;
    if (!node->in[B] || !lt_shape_equal(as, bs))
        return lt_fail(LT_E_SHAPE, "%s: target %s, want %s", node->op->name, lt_shape_text(bs, b),
                       lt_shape_text(as, a));
    *out = (lt_desc){.dtype = node->in[A]->dtype, .shape = as};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view a, b, y;
    LT_TRY(get_operands(node, &a, &b));
    LT_TRY(lt_node_out(node, &y));
    return be->pointwise(ctx, node->config, &a, &b, &y);
}

/* Computes the gradient of one input; for a broadcast one in the full shape, then summed. */
static lt_status backward_input(lt_node *node, int input, const lt_view *dy)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const bool same = lt_op_same_shape(node, input);
    lt_view a, b, g;
    LT_TRY(get_operands(node, &a, &b));
    if (same)
        LT_TRY(lt_node_grad_out(node, input, &g));
    else
        LT_TRY(lt_node_scratch(node, lt_device_master_dtype(lt_tape_device(node->tape)),
                               node->out->shape, &g));
    LT_TRY(be->pointwise_grad(ctx, node->config, input, dy, &a, &b, &g));
    return same ? LT_OK : lt_op_unbroadcast(node, input, &g);
}

static lt_status backward(lt_node *node)
{
    lt_view dy;
    LT_TRY(lt_node_grad(node, &dy));
    for (int i = A; i <= B; i++)
        if (lt_node_needs_grad(node, i))
            LT_TRY(backward_input(node, i, &dy));
    return LT_OK;
}

#define TABLE(function, rule, again)          \
    const lt_op lt_op_##function = {          \
        .name = #function,                    \
        .config_bytes = sizeof(lt_pointwise), \
        .recomputable = (again),              \
        .backward_ignores = LT_IGNORES_OUT,   \
        .infer = (rule),                      \
        .forward = forward,                   \
        .backward = backward,                 \
    }
TABLE(sub, lt_op_infer_mutual_broadcast, false);
TABLE(div, lt_op_infer_mutual_broadcast, false);
TABLE(maximum, lt_op_infer_mutual_broadcast, false);
TABLE(minimum, lt_op_infer_mutual_broadcast, false);
TABLE(pow_tensor, lt_op_infer_mutual_broadcast, false);
TABLE(mse_loss, infer_loss, false);
TABLE(bce_with_logits, infer_loss, false);
TABLE(l1_loss, infer_loss, false);
TABLE(smooth_l1_loss, infer_loss, false);
TABLE(huber_loss, infer_loss, false);
TABLE(kl_div, infer_loss, false);
TABLE(swiglu, lt_op_infer_mutual_broadcast, true);

static lt_tensor *run_binary(lt_tape *tape, const lt_op *op, lt_pointwise_kind kind, lt_tensor *a,
                             lt_tensor *b)
{
    return lt_op_run(tape, op, (lt_tensor *[]){a, b}, 2, &(lt_pointwise){.kind = kind});
}

lt_tensor *lt_sub(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return run_binary(tape, &lt_op_sub, LT_POINTWISE_SUB, a, b);
}

lt_tensor *lt_div(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return run_binary(tape, &lt_op_div, LT_POINTWISE_DIV, a, b);
}

lt_tensor *lt_maximum(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return run_binary(tape, &lt_op_maximum, LT_POINTWISE_MAXIMUM, a, b);
}

lt_tensor *lt_minimum(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return run_binary(tape, &lt_op_minimum, LT_POINTWISE_MINIMUM, a, b);
}

lt_tensor *lt_pow_tensor(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return run_binary(tape, &lt_op_pow_tensor, LT_POINTWISE_POW_TENSOR, a, b);
}

lt_tensor *lt_swiglu(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    return run_binary(tape, &lt_op_swiglu, LT_POINTWISE_SWIGLU, a, b);
}

/* Computes a loss in the master dtype: a 16-bit sum of many small losses would lose them. */
static lt_tensor *run_loss(lt_tape *tape, const lt_op *op, lt_pointwise f, lt_tensor *const pair[2],
                           lt_loss_reduction reduction)
{
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(tape));
    if ((unsigned)reduction > LT_LOSS_NONE)
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "%s: reduction %d, want 0 to %d", op->name,
                                          (int)reduction, (int)LT_LOSS_NONE));
    lt_tensor *x = lt_cast(tape, pair[A], master), *target = lt_cast(tape, pair[B], master);
    lt_tensor *each = lt_op_run(tape, op, (lt_tensor *[]){x, target}, 2, &f);
    if (reduction == LT_LOSS_NONE)
        return each;
    return reduction == LT_LOSS_SUM ? lt_sum(tape, each, (lt_reduce_config){.dims = 0})
                                    : lt_mean(tape, each, (lt_reduce_config){.dims = 0});
}

lt_tensor *lt_mse_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target, lt_loss_reduction reduction)
{
    return run_loss(tape, &lt_op_mse_loss, (lt_pointwise){LT_POINTWISE_SQUARED_DIFFERENCE, {0}},
                    (lt_tensor *[]){x, target}, reduction);
}

lt_tensor *lt_bce_with_logits(lt_tape *tape, lt_tensor *logits, lt_tensor *target,
                              lt_loss_reduction reduction)
{
    return run_loss(tape, &lt_op_bce_with_logits, (lt_pointwise){LT_POINTWISE_BCE, {0}},
                    (lt_tensor *[]){logits, target}, reduction);
}

lt_tensor *lt_l1_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target, lt_loss_reduction reduction)
{
    const lt_pointwise f = {LT_POINTWISE_ABSOLUTE_DIFFERENCE, {0}};
    return run_loss(tape, &lt_op_l1_loss, f, (lt_tensor *[]){x, target}, reduction);
}

lt_tensor *lt_huber_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target, double delta,
                         lt_loss_reduction reduction)
{
    const lt_pointwise f = {LT_POINTWISE_HUBER, {delta, 1}};
    if (!(delta > 0))
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "huber_loss: delta %g, want > 0", delta));
    return run_loss(tape, &lt_op_huber_loss, f, (lt_tensor *[]){x, target}, reduction);
}

lt_tensor *lt_smooth_l1_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target, double beta,
                             lt_loss_reduction reduction)
{
    const lt_pointwise f = {LT_POINTWISE_HUBER, {beta, 1 / beta}};
    if (!(beta >= 0))
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "smooth_l1_loss: beta %g, want >= 0", beta));
    if (!(beta > 0))
        return lt_l1_loss(tape, x, target, reduction);
    return run_loss(tape, &lt_op_smooth_l1_loss, f, (lt_tensor *[]){x, target}, reduction);
}

lt_tensor *lt_kl_div(lt_tape *tape, lt_tensor *x, lt_tensor *target, bool log_target,
                     lt_loss_reduction reduction)
{
    const lt_pointwise f = {log_target ? LT_POINTWISE_KL_LOG : LT_POINTWISE_KL, {0}};
    return run_loss(tape, &lt_op_kl_div, f, (lt_tensor *[]){x, target}, reduction);
}
