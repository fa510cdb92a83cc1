/** Elementwise functions, and the two kernels of a backend that compute them. */
#ifndef LATHER_DETAIL_POINTWISE_H
#define LATHER_DETAIL_POINTWISE_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"

/** Functions of a[i], then of a[i] and b[i]. At points without a derivative gradients are PyTorch's: clamp 0 at
 *  and outside its bounds and for NaN, maximum and minimum half each where both are equal, powers 0 where the
 *  exponent is 0, abs and |a - b| 0 at 0, leaky_relu and elu number[0] at 0. */
typedef enum lt_pointwise_kind {
    LT_POINTWISE_EXP,
    LT_POINTWISE_LOG,
    LT_POINTWISE_SQRT,
    LT_POINTWISE_POW,     /**< a^number[0] */
    LT_POINTWISE_SIGMOID, /**< 1 / (1 + exp(-a)) */
    LT_POINTWISE_TANH,
    LT_POINTWISE_SILU,      /**< a / (1 + exp(-a)) */
    LT_POINTWISE_CLAMP,     /**< min(max(a, number[0]), number[1]); NaN remains NaN */
    LT_POINTWISE_GELU,      /**< a * P(a), P the normal distribution: (1 + erf(a / sqrt(2))) / 2 */
    LT_POINTWISE_GELU_TANH, /**< a / (1 + exp(-2u)), u = sqrt(2/pi) * (a + 0.044715 a^3) */
    LT_POINTWISE_ABS,
    LT_POINTWISE_SIGN,       /**< -1, 0 or 1; 0 of NaN */
    LT_POINTWISE_LEAKY_RELU, /**< a above 0, else number[0] * a */
    LT_POINTWISE_ELU,        /**< a above 0, else number[0] * (exp(a) - 1) */
    LT_POINTWISE_SOFTPLUS, /**< log(1 + exp(v)) / b, v = b * a, b = number[0]; a if v > number[1] */

    LT_POINTWISE_ADD, /**< ADD and MUL also have separate kernels */
    LT_POINTWISE_MUL,
    LT_POINTWISE_SUB,
    LT_POINTWISE_DIV,
    LT_POINTWISE_MAXIMUM, /**< NaN if either is NaN */
    LT_POINTWISE_MINIMUM,
    LT_POINTWISE_POW_TENSOR,         /**< a^b */
    LT_POINTWISE_SQUARED_DIFFERENCE, /**< (a - b)^2 */
    LT_POINTWISE_BCE, /**< max(a, 0) - a * b + log(1 + exp(-|a|)), logit a, target b; a * 0 is 0 */
    LT_POINTWISE_SWIGLU,              /**< a / (1 + exp(-a)) * b */
    LT_POINTWISE_ABSOLUTE_DIFFERENCE, /**< |a - b| */
    LT_POINTWISE_HUBER, /**< number[1] * (z^2 / 2 if z < d, else d * (z - d / 2)), z = |a - b|, d = number[0] */
    LT_POINTWISE_KL,     /**< b * (log(b) - a), 0 * log(0) is 0 */
    LT_POINTWISE_KL_LOG, /**< exp(b) * (b - a) */
    LT_POINTWISE_KINDS
} lt_pointwise_kind;

typedef struct lt_pointwise {
    lt_pointwise_kind kind;
    double number[2];
} lt_pointwise;

/** Returns true if the function has two operands. */
static inline bool lt_pointwise_is_binary(lt_pointwise_kind kind)
{
    return kind >= LT_POINTWISE_ADD;
}

/** Returns true if the gradient is computed from the value y instead of a. */
static inline bool lt_pointwise_reads_y(lt_pointwise_kind kind)
{
    return kind == LT_POINTWISE_EXP || kind == LT_POINTWISE_SQRT || kind == LT_POINTWISE_SIGMOID
           || kind == LT_POINTWISE_TANH;
}

/** y[i] = f(a[i]) or f(a[i], b[i]); b is NULL for functions of one operand. Any strides; a stride of 0 repeats.
 *  Arithmetic and rounding: detail/kernels.h, part 1. */
LT_ENTRY(pointwise, void *ctx, const lt_pointwise *f, const lt_view *a, const lt_view *b,
         const lt_view *y);
/** d[i] = dy[i] times the derivative of f by operand input (0: a, 1: b). For functions whose gradient reads y,
 *  a is y. */
LT_ENTRY(pointwise_grad, void *ctx, const lt_pointwise *f, int input, const lt_view *dy,
         const lt_view *a, const lt_view *b, const lt_view *d);

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_POINTWISE_ENTRIES(X) \
    X(pointwise, BASIC, OWN)    \
    X(pointwise_grad, BASIC, OWN)

#endif
