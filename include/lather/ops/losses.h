/** Losses of each element, by PyTorch's names; mean squared error and binary cross-entropy are in loss.h. */
#ifndef LATHER_OPS_LOSSES_H
#define LATHER_OPS_LOSSES_H

#include "lather/ops/loss.h"

/**
 * Absolute error; equal elements have no gradient.
 *
 *     loss = mean or sum over i of |x[i] - target[i]|
 *
 * Shapes  x [..], target like x -> loss [], or like x without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   x, target
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_l1_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target,
                             lt_loss_reduction reduction);

/**
 * Squared error near 0, absolute error beyond delta; PyTorch's default delta is 1.
 *
 *     loss = mean or sum over i of z[i]^2 / 2 if z[i] < delta, else delta * (z[i] - delta / 2),
 *     z[i] = |x[i] - target[i]|
 *
 * Shapes  x [..], target like x -> loss [], or like x without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   x, target
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (delta not above 0),
 *         LT_E_NOMEM, LT_E_DEVICE
 * Source  Huber, "Robust estimation of a location parameter", 1964
 */
LT_API lt_tensor *lt_huber_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target, double delta,
                                lt_loss_reduction reduction);

/**
 * lt_huber_loss() divided by beta; PyTorch's default beta is 1. With beta 0 it is lt_l1_loss().
 *
 *     loss = mean or sum over i of z[i]^2 / (2 beta) if z[i] < beta, else z[i] - beta / 2
 *
 * Shapes  x [..], target like x -> loss [], or like x without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   x, target
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (beta below 0),
 *         LT_E_NOMEM, LT_E_DEVICE
 * Source  Girshick, "Fast R-CNN", ICCV 2015, equation 3
 */
LT_API lt_tensor *lt_smooth_l1_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target, double beta,
                                    lt_loss_reduction reduction);

/**
 * Kullback-Leibler divergence of target from exp(x): x are log-probabilities, target probabilities or, with
 * log_target, log-probabilities. As in PyTorch the mean is over elements: for one over samples (its
 * 'batchmean') divide the sum by their count.
 *
 *     loss = mean or sum over i of target[i] * (log(target[i]) - x[i]), 0 * log(0) is 0
 *                                  exp(target[i]) * (target[i] - x[i])      with log_target
 *
 * Shapes  x [..], target like x -> loss [], or like x without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   x, target
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Kullback & Leibler, "On information and sufficiency", 1951
 */
LT_API lt_tensor *lt_kl_div(lt_tape *tape, lt_tensor *x, lt_tensor *target, bool log_target,
                            lt_loss_reduction reduction);

#endif
