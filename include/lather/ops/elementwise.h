/** Elementwise functions of one tensor: powers, exponentials, activations. */
#ifndef LATHER_OPS_ELEMENTWISE_H
#define LATHER_OPS_ELEMENTWISE_H

#include "lather/tape.h"

/**
 * Exponential.
 *
 *     y[i] = exp(x[i])
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_exp(lt_tape *tape, lt_tensor *x);

/**
 * Natural logarithm, PyTorch's log (lt_log() logs messages); -infinity at 0, NaN for negative numbers.
 *
 *     y[i] = log(x[i])
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_ln(lt_tape *tape, lt_tensor *x);

/**
 * Square root; NaN for negative numbers. The gradient at 0 is infinite.
 *
 *     y[i] = sqrt(x[i])
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_sqrt(lt_tape *tape, lt_tensor *x);

/**
 * Power with one exponent for all elements. As in PyTorch, exponents 0.5 and -0.5 use the square
 * root; with exponent 0, y is 1 and the gradient 0.
 *
 *     y[i] = x[i]^exponent
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  IEEE 754-2019, section 9.2.1 (pow: 0, infinities and NaN)
 */
LT_API lt_tensor *lt_pow(lt_tape *tape, lt_tensor *x, double exponent);

/**
 * Clamps values to [low, high]; NaN remains NaN. The gradient is 1 strictly between the bounds, else 0.
 * Use -INFINITY or INFINITY for no bound.
 *
 *     y[i] = min(max(x[i], low), high)
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (low > high, or NaN), LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_clamp(lt_tape *tape, lt_tensor *x, double low, double high);

/**
 * Logistic function.
 *
 *     y[i] = 1 / (1 + exp(-x[i]))
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_sigmoid(lt_tape *tape, lt_tensor *x);

/**
 * Hyperbolic tangent.
 *
 *     y[i] = tanh(x[i])
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_tanh(lt_tape *tape, lt_tensor *x);

/**
 * Sigmoid linear unit, also called swish.
 *
 *     y[i] = x[i] / (1 + exp(-x[i]))
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  Elfwing, Uchibe & Doya, "Sigmoid-weighted linear units", Neural Networks 107, 2018
 */
LT_API lt_tensor *lt_silu(lt_tape *tape, lt_tensor *x);

/**
 * Absolute value; the gradient at 0, and of NaN, is 0.
 *
 *     y[i] = |x[i]|
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_abs(lt_tape *tape, lt_tensor *x);

/**
 * Sign; 0 of NaN, as in PyTorch. The gradient is 0.
 *
 *     y[i] = -1, 0 or 1
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_sign(lt_tape *tape, lt_tensor *x);

#endif
