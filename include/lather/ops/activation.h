/** Activations used by transformers. */
#ifndef LATHER_OPS_ACTIVATION_H
#define LATHER_OPS_ACTIVATION_H

#include "lather/tape.h"

typedef enum lt_gelu_kind {
    LT_GELU_ERF, /**< exact: PyTorch's default */
    LT_GELU_TANH /**< approximation of GPT-2 and BERT: PyTorch's approximate='tanh' */
} lt_gelu_kind;

/**
 * Gaussian error linear unit.
 *
 *     y[i] = x[i] * P(x[i]),  P(x) = (1 + erf(x / sqrt(2))) / 2                        LT_GELU_ERF
 *                             P(x) = (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2   LT_GELU_TANH
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (another kind), LT_E_NOMEM, LT_E_DEVICE
 * Source  Hendrycks & Gimpel, "Gaussian error linear units", 2016, section 2
 */
LT_API lt_tensor *lt_gelu(lt_tape *tape, lt_tensor *x, lt_gelu_kind kind);

/**
 * Gated linear unit with silu as its activation.
 *
 *     y[i] = a[i] / (1 + exp(-a[i])) * b[i]
 *
 * Shapes  as lt_add()
 * Dtypes  as lt_add()
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  Shazeer, "GLU variants improve transformer", 2020, equation 5
 */
LT_API lt_tensor *lt_swiglu(lt_tape *tape, lt_tensor *a, lt_tensor *b);

#endif
