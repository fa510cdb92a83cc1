/** Layer and RMS normalisation over the last dimension. */
#ifndef LATHER_DETAIL_NORM_LAYER_H
#define LATHER_DETAIL_NORM_LAYER_H

/* Not a stable interface: may change in any release. */

#include "lather/tape.h"

typedef struct lt_layernorm_config {
    double eps; /**< added to the variance, or to the mean square; 0: 1e-5 */
    bool rms;   /**< RMS normalisation; set by lt_rmsnorm() */
} lt_layernorm_config;

/**
 * Normalisation of each row by its mean and (population) variance.
 *
 *     y[..,c] = gamma[c] * (x[..,c] - mu) / sqrt(var + eps) + beta[c]    mu, var of x[..,0] .. x[..,C-1]
 *
 * Shapes  x [..,C], gamma, beta [C], each of both may be NULL -> y like x
 * Dtypes  x f32, f64, bf16 or f16; y has x's; gamma and beta of the master dtype
 * Grads   x, gamma, beta
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Ba, Kiros & Hinton, "Layer Normalization", 2016, equation 4
 */
LT_API lt_tensor *lt_layernorm(lt_tape *tape, lt_tensor *x, lt_tensor *gamma, lt_tensor *beta,
                               lt_layernorm_config config);

/**
 * Normalisation of each row by its root mean square.
 *
 *     y[..,c] = gamma[c] * x[..,c] / sqrt(m + eps)    m = mean over c of x[..,c]^2
 *
 * Shapes  x [..,C], gamma [C] or NULL -> y like x
 * Dtypes  x f32, f64, bf16 or f16; y has x's; gamma of the master dtype
 * Grads   x, gamma
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Zhang & Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019, equation 4
 */
LT_API lt_tensor *lt_rmsnorm(lt_tape *tape, lt_tensor *x, lt_tensor *gamma,
                             lt_layernorm_config config);

#endif
