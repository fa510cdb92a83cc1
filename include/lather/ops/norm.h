/** Batch and group normalisation, and normalisation of pixels. */
#ifndef LATHER_OPS_NORM_H
#define LATHER_OPS_NORM_H

#include "lather/tape.h"

typedef struct lt_batchnorm2d_config {
    double eps;      /**< added to the variance, e.g. 1e-5 */
    double momentum; /**< weight of the new statistics in the running ones, e.g. 0.1 */
    bool relu;       /**< y = max(y, 0) at the end */
    bool frozen;     /**< uses the running statistics in every pass and does not update them */
} lt_batchnorm2d_config;

/** Parameters and running statistics of one batch normalisation, each [C]. */
typedef struct lt_batchnorm2d_args {
    lt_tensor *gamma, *beta; /**< scale and shift [C], on the tape */
    lt_tensor *mean, *var; /**< running statistics, updated in place if the pass has batch_stats */
    lt_tensor *residual;   /**< added before the activation; like x, or NULL */
    lt_tensor *batches;    /**< i64 [], incremented when mean and var are updated; or NULL */
} lt_batchnorm2d_args;

/**
 * Batch normalisation over N, H, W, with an optional residual and an optional relu fused.
 *
 *     y = act(gamma[c] * (x - mu[c]) / sqrt(var[c] + eps) + beta[c] + residual)
 *
 * In a pass with batch_stats, unless frozen, mu and var are those of this batch (population variance), and
 * running = (1 - momentum) * running + momentum * (mu, unbiased var); else mu and var are the running ones.
 * mu is rounded to the master dtype: in a channel of equal values x0, y may differ from beta by
 * gamma * ulp(x0) / sqrt(eps): 0.3 in f32 for x0 = 1e4.
 *
 * Shapes  x [N,C,H,W], residual [N,C,H,W] or NULL, gamma, beta, mean, var [C] -> y like x
 * Dtypes  x f32, f64, bf16 or f16; y and residual have x's; the others have the master dtype
 * Grads   x, gamma, beta, residual
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE (also one value per channel in training),
 *         LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Ioffe & Szegedy, "Batch Normalization", ICML 2015, algorithms 1 and 2;
 *         Chan, Golub & LeVeque, 1983 (merging of moments)
 */
LT_API lt_tensor *lt_batchnorm2d(lt_tape *tape, lt_tensor *x, lt_batchnorm2d_args args,
                                 lt_batchnorm2d_config config);

/**
 * lt_batchnorm2d() with one spatial dimension, or none.
 *
 *     y = act(gamma[c] * (x - mu[c]) / sqrt(var[c] + eps) + beta[c] + residual)
 *
 * Shapes  x [N,C] or [N,C,L], residual like x or NULL, gamma, beta, mean, var [C] -> y like x
 * Dtypes  as lt_batchnorm2d()
 * Grads   x, gamma, beta, residual
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE (also one value per channel in training),
 *         LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Ioffe & Szegedy, "Batch Normalization", ICML 2015, algorithms 1 and 2
 */
LT_API lt_tensor *lt_batchnorm1d(lt_tape *tape, lt_tensor *x, lt_batchnorm2d_args args,
                                 lt_batchnorm2d_config config);

typedef struct lt_group_norm_config {
    int groups; /**< divides C; 1: layer norm over C and pixels, C: instance norm */
    double eps; /**< added to the variance, e.g. 1e-5 */
} lt_group_norm_config;

/**
 * Normalisation of each group of channels of each image by its own mean and (population) variance.
 *
 *     y = gamma[c] * (x - mu[n,g]) / sqrt(var[n,g] + eps) + beta[c]     g = c / (C / groups)
 *
 * Shapes  x [N,C] or [N,C,..], gamma, beta [C], or NULL both -> y like x
 * Dtypes  x f32, f64, bf16 or f16; y has x's; gamma and beta of the master dtype
 * Grads   x, gamma, beta
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Wu & He, "Group Normalization", ECCV 2018, section 3
 */
LT_API lt_tensor *lt_group_norm(lt_tape *tape, lt_tensor *x, lt_tensor *gamma, lt_tensor *beta,
                                lt_group_norm_config config);

enum { LT_MAX_PIXEL_CHANNELS = 4 };

/** Mean and deviation of each channel, for pixel values 0 to 255. */
typedef struct lt_normalize_config {
    float mean[LT_MAX_PIXEL_CHANNELS];
    float deviation[LT_MAX_PIXEL_CHANNELS];
} lt_normalize_config;

/** ImageNet's mean and deviation: 255 * (0.485, 0.456, 0.406) and 255 * (0.229, 0.224, 0.225). */
#define LT_NORMALIZE_IMAGENET                                    \
    ((lt_normalize_config){.mean = {123.675F, 116.28F, 103.53F}, \
                           .deviation = {58.395F, 57.12F, 57.375F}})

/**
 * Pixels to activations of the pass's dtype.
 *
 *     y[n,c,h,w] = (x[n,c,h,w] - mean[c]) / deviation[c]
 *
 * Shapes  x [N,C,H,W], C <= 4 -> y like x
 * Dtypes  x u8; y the pass's
 * Grads   none
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (a deviation <= 0), LT_E_NOMEM
 * Source  elementary
 */
LT_API lt_tensor *lt_normalize(lt_tape *tape, lt_tensor *x, const lt_normalize_config *config);

#endif
