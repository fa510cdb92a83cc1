/* Gradients of elementwise functions of one and two tensors, and of the losses made of them. */

#include "gradients.h"

#define CALL(name, call)                                              \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        (void)c;                                                      \
        return call;                                                  \
    }                                                                 \
    _Static_assert(1, "a semicolon follows")
CALL(exponential, lt_exp(t, in[0]));
CALL(logarithm, lt_ln(t, in[0]));
CALL(root, lt_sqrt(t, in[0]));
CALL(power_a_half, lt_pow(t, in[0], 0.5));
CALL(power_minus_a_half, lt_pow(t, in[0], -0.5));
CALL(power_minus_one, lt_pow(t, in[0], -1));
CALL(power_0, lt_pow(t, in[0], 0));
CALL(power_1, lt_pow(t, in[0], 1));
CALL(power_2, lt_pow(t, in[0], 2));
CALL(power_3, lt_pow(t, in[0], 3));
CALL(power_of_its_own, lt_pow(t, in[0], 2.7));
CALL(clamp, lt_clamp(t, in[0], -0.5, 0.7));
CALL(sigmoid, lt_sigmoid(t, in[0]));
CALL(tangent, lt_tanh(t, in[0]));
CALL(silu, lt_silu(t, in[0]));
CALL(gelu, lt_gelu(t, in[0], LT_GELU_ERF));
CALL(gelu_tanh, lt_gelu(t, in[0], LT_GELU_TANH));
CALL(gelu_of_threefold, lt_gelu(t, lt_scale(t, in[0], 3), LT_GELU_ERF));
CALL(gelu_tanh_of_threefold, lt_gelu(t, lt_scale(t, in[0], 3), LT_GELU_TANH));
CALL(absolute, lt_abs(t, in[0]));
CALL(sign, lt_mul(t, lt_sign(t, in[0]), in[0]));
CALL(sign_only, lt_sign(t, in[0]));
CALL(leaky_relu, lt_leaky_relu(t, in[0], 0.3));
CALL(elu, lt_elu(t, in[0], 1.7));
CALL(softplus, lt_softplus(t, in[0], 3, 2));
CALL(hardtanh, lt_hardtanh(t, in[0], -0.5, 0.7));
CALL(swiglu, lt_swiglu(t, in[0], in[1]));
CALL(swiglu_of_itself, lt_swiglu(t, in[0], in[0]));
CALL(sub, lt_sub(t, in[0], in[1]));
CALL(sub_itself, lt_sub(t, in[0], lt_mul(t, in[0], in[0])));
CALL(quotient, lt_div(t, in[0], in[1]));
CALL(maximum, lt_maximum(t, in[0], in[1]));
CALL(minimum, lt_minimum(t, in[0], in[1]));
CALL(power, lt_pow_tensor(t, in[0], in[1]));
CALL(mse_mean, lt_mse_loss(t, in[0], in[1], LT_LOSS_MEAN));
CALL(mse_sum, lt_mse_loss(t, in[0], in[1], LT_LOSS_SUM));
CALL(mse_each, lt_mse_loss(t, in[0], in[1], LT_LOSS_NONE));
CALL(bce_mean, lt_bce_with_logits(t, in[0], in[1], LT_LOSS_MEAN));
CALL(bce_sum, lt_bce_with_logits(t, in[0], in[1], LT_LOSS_SUM));
CALL(bce_each, lt_bce_with_logits(t, in[0], in[1], LT_LOSS_NONE));
/* Functions whose backward reads y, with another reader of y. */
CALL(chain, lt_mul(t, lt_tanh(t, lt_exp(t, lt_sigmoid(t, in[0]))), lt_silu(t, in[0])));

#define IMAGE(how)             \
    {                          \
        {4, {2, 3, 4, 5}}, how \
    }
#define MATRIX(how)      \
    {                    \
        {2, {3, 4}}, how \
    }
#define SCALAR(how)   \
    {                 \
        {0, {0}}, how \
    }

/* In maximum and minimum, a is outside -0.1..0.1 and b inside: no ties. */
/* clang-format off */
static const grad_row rows[] = {
    {"exp", exponential, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"exp of a scalar", exponential, 1, 0, .in = {SCALAR(UNIFORM)}},
    {"ln", logarithm, 1, 0, .in = {IMAGE(NEAR_ONE)}},
    {"sqrt", root, 1, 0, .in = {MATRIX(NEAR_ONE)}},
    {"pow 0.5", power_a_half, 1, 0, .in = {MATRIX(NEAR_ONE)}},
    {"pow -0.5", power_minus_a_half, 1, 0, .in = {MATRIX(NEAR_ONE)}},
    {"pow -1", power_minus_one, 1, 0, .in = {MATRIX(FAR)}},
    {"pow 0", power_0, 1, 0, .in = {MATRIX(UNIFORM)}},
    {"pow 1", power_1, 1, 0, .in = {MATRIX(UNIFORM)}},
    {"pow 2", power_2, 1, 0, .in = {MATRIX(UNIFORM)}},
    {"pow 3", power_3, 1, 0, .in = {MATRIX(UNIFORM)}},
    {"pow 2.7", power_of_its_own, 1, 0, .in = {MATRIX(NEAR_ONE)}},
    {"clamp", clamp, 1, 0, .in = {{{2, {5, 5}}, DISTINCT}}},
    {"sigmoid", sigmoid, 1, 0, .in = {IMAGE(DISTINCT)}},
    {"tanh", tangent, 1, 0, .in = {IMAGE(DISTINCT)}},
    {"silu", silu, 1, 0, .in = {{{5, {2, 1, 3, 2, 2}}, DISTINCT}}},
    {"gelu", gelu, 1, 0, .in = {IMAGE(DISTINCT)}},
    {"gelu of a scalar", gelu, 1, 0, .in = {SCALAR(UNIFORM)}},
    {"gelu, -3 to 3", gelu_of_threefold, 1, 0, .in = {{{3, {3, 5, 7}}, DISTINCT}}},
    {"gelu by tanh", gelu_tanh, 1, 0, .in = {IMAGE(DISTINCT)}},
    {"gelu by tanh, -3 to 3", gelu_tanh_of_threefold, 1, 0, .in = {{{3, {3, 5, 7}}, DISTINCT}}},
    {"abs", absolute, 1, 0, .in = {IMAGE(FAR)}},
    {"sign", sign_only, 1, 0, .in = {MATRIX(FAR)}},
    {"sign as a factor", sign, 1, 0, .in = {MATRIX(FAR)}},
    {"leaky_relu", leaky_relu, 1, 0, .in = {IMAGE(FAR)}},
    {"elu", elu, 1, 0, .in = {IMAGE(FAR)}},
    {"softplus on both sides of its threshold", softplus, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"hardtanh", hardtanh, 1, 0, .in = {{{2, {5, 5}}, DISTINCT}}},
    {"swiglu", swiglu, 2, 0, .in = {IMAGE(UNIFORM), IMAGE(UNIFORM)}},
    {"swiglu, b broadcast", swiglu, 2, 0, .in = {MATRIX(UNIFORM), {{1, {4}}, UNIFORM}}},
    {"swiglu, a its own factor", swiglu_of_itself, 1, 0, .in = {MATRIX(UNIFORM)}},
    {"functions that read their output", chain, 1, 0, .in = {IMAGE(DISTINCT)}},
    {"sub", sub, 2, 0, .in = {MATRIX(UNIFORM), MATRIX(UNIFORM)}},
    {"sub, a broadcast", sub, 2, 0, .in = {{{1, {4}}, UNIFORM}, MATRIX(UNIFORM)}},
    {"sub, a a scalar", sub, 2, 0, .in = {SCALAR(UNIFORM), IMAGE(UNIFORM)}},
    {"sub, both broadcast", sub, 2, 0, .in = {{{2, {3, 1}}, UNIFORM}, {{1, {4}}, UNIFORM}}},
    {"sub, from itself", sub_itself, 1, 0, .in = {MATRIX(UNIFORM)}},
    {"div", quotient, 2, 0, .in = {IMAGE(UNIFORM), IMAGE(FAR)}},
    {"div, b per channel", quotient, 2, 0, .in = {IMAGE(UNIFORM), {{3, {3, 1, 1}}, FAR}}},
    {"div, a per pixel", quotient, 2, 0, .in = {{{4, {2, 1, 4, 5}}, UNIFORM}, IMAGE(FAR)}},
    {"div, two scalars", quotient, 2, 0, .in = {SCALAR(UNIFORM), SCALAR(NEAR_ONE)}},
    {"maximum", maximum, 2, 0, .in = {MATRIX(FAR), MATRIX(SMALL)}},
    {"maximum, b a scalar", maximum, 2, 0, .in = {MATRIX(FAR), SCALAR(SMALL)}},
    {"minimum", minimum, 2, 0, .in = {MATRIX(FAR), MATRIX(SMALL)}},
    {"minimum, a a scalar", minimum, 2, 0, .in = {SCALAR(SMALL), MATRIX(FAR)}},
    {"pow_tensor", power, 2, 0, .in = {MATRIX(NEAR_ONE), MATRIX(UNIFORM)}},
    {"pow_tensor, both broadcast", power, 2, 0, .in = {{{2, {3, 1}}, NEAR_ONE}, {{2, {1, 4}}, FAR}}},
    {"mse_loss, mean", mse_mean, 2, 0, .in = {IMAGE(UNIFORM), IMAGE(UNIFORM)}},
    {"mse_loss, sum", mse_sum, 2, 0, .in = {MATRIX(UNIFORM), MATRIX(UNIFORM)}},
    {"mse_loss of each", mse_each, 2, 0, .in = {MATRIX(UNIFORM), MATRIX(UNIFORM)}},
    {"bce_with_logits, mean", bce_mean, 2, 0, .in = {IMAGE(FAR), IMAGE(UNIFORM)}},
    {"bce_with_logits, sum", bce_sum, 2, 0, .in = {MATRIX(FAR), MATRIX(UNIFORM)}},
    {"bce_with_logits of each", bce_each, 2, 0, .in = {MATRIX(FAR), MATRIX(UNIFORM)}},
    {"control: a maximum at its tie", maximum, 2, 0, .in = {{{1, {500}}, UNIFORM}, {{1, {500}}, UNIFORM}},
     .step = 0.1, .broken = true},
};
/* clang-format on */

const grad_row *pointwise_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
