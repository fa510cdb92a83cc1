/** Activations: gelu and gates of transformers, variants of relu. */
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

/**
 * Leaky rectifier; PyTorch's default slope is 0.01. The gradient at 0 is slope.
 *
 *     y[i] = x[i] above 0, else slope * x[i]
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  Maas, Hannun & Ng, "Rectifier nonlinearities improve neural network acoustic models", 2013
 */
LT_API lt_tensor *lt_leaky_relu(lt_tape *tape, lt_tensor *x, double slope);

/**
 * Exponential linear unit; PyTorch's default alpha is 1. The gradient at 0 is alpha.
 *
 *     y[i] = x[i] above 0, else alpha * (exp(x[i]) - 1)
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  Clevert, Unterthiner & Hochreiter, "Fast and accurate deep network learning by exponential
 *         linear units", ICLR 2016
 */
LT_API lt_tensor *lt_elu(lt_tape *tape, lt_tensor *x, double alpha);

/**
 * Smooth rectifier; PyTorch's defaults are beta 1 and threshold 20.
 *
 *     y[i] = log(1 + exp(beta * x[i])) / beta, or x[i] where beta * x[i] > threshold
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (beta not above 0), LT_E_NOMEM, LT_E_DEVICE
 * Source  Dugas et al., "Incorporating second-order functional knowledge", NIPS 2000
 */
LT_API lt_tensor *lt_softplus(lt_tape *tape, lt_tensor *x, double beta, double threshold);

/**
 * lt_clamp() by the name that PyTorch has for an activation; its defaults are -1 and 1.
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
LT_API lt_tensor *lt_hardtanh(lt_tape *tape, lt_tensor *x, double low, double high);

#endif
