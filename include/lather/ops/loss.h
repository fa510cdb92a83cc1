/** Softmax, losses, and the accuracy of classifiers. */
#ifndef LATHER_OPS_LOSS_H
#define LATHER_OPS_LOSS_H

#include "lather/tape.h"

/**
 * Softmax over the last dimension.
 *
 *     y[..,k] = exp(x[..,k]) / sum over j of exp(x[..,j])
 *
 * Shapes  x [..,K], at least one dimension -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  Bridle, "Probabilistic interpretation of feedforward classification network outputs",
 *         Neurocomputing, 1990
 */
LT_API lt_tensor *lt_softmax(lt_tape *tape, lt_tensor *x);

/** Class index of rows without loss and gradient (PyTorch's ignore_index). */
enum { LT_IGNORED_LABEL = -100 };

/**
 * Mean over rows of the cross-entropy between softmax(logits) and smoothed targets. Rows labelled
 * LT_IGNORED_LABEL do not count; if all rows are ignored, loss and gradient are 0.
 *
 *     loss = -1/N * sum over n,k of q[n,k] * log softmax(logits[n])[k]
 *     q[n,k] = (1 - smoothing) * target[n,k] + smoothing / K
 *
 * Shapes  logits [..,K], N rows; labels [..] (class indices) or like logits (soft targets) -> loss []
 * Dtypes  logits any floating; labels i32, or f32/f64 when soft; loss of the master dtype
 * Grads   logits
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (smoothing not in [0,1]; on host
 *         devices also a label outside 0..K-1), LT_E_NOMEM, LT_E_DEVICE
 * Source  Szegedy et al., "Rethinking the Inception architecture", 2016, section 7 (smoothing)
 */
LT_API lt_tensor *lt_softmax_xent(lt_tape *tape, lt_tensor *logits, lt_tensor *labels,
                                  double smoothing);

/** Reduction of elementwise losses; zero is PyTorch's default. */
typedef enum lt_loss_reduction {
    LT_LOSS_MEAN,
    LT_LOSS_SUM,
    LT_LOSS_NONE /**< no reduction: the result has the shape of the input */
} lt_loss_reduction;

/**
 * Squared error.
 *
 *     loss = mean or sum over i of (x[i] - target[i])^2
 *
 * Shapes  x [..], target like x -> loss [], or like x without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   x, target
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_mse_loss(lt_tape *tape, lt_tensor *x, lt_tensor *target,
                              lt_loss_reduction reduction);

/**
 * Binary cross-entropy of sigmoid(logits), in a form that cannot overflow.
 *
 *     loss = mean or sum over i of max(z[i], 0) - z[i] * target[i] + log(1 + exp(-|z[i]|))
 *
 * Infinite logits: infinity with target 0 gives infinity, as in PyTorch. -infinity gives infinity with
 * target 1 and 0 with target 0, which are the limits, where PyTorch gives NaN. Infinity with a target above
 * 0 gives NaN in both.
 *
 * Shapes  logits z [..], target like it, in [0,1] -> loss [], or like z without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   logits, target
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  -log of the Bernoulli likelihood, with log(sigmoid(z)) = min(z, 0) - log(1 + exp(-|z|))
 */
LT_API lt_tensor *lt_bce_with_logits(lt_tape *tape, lt_tensor *logits, lt_tensor *target,
                                     lt_loss_reduction reduction);

/** Counts correct predictions: adds to hits (your i64 tensor [2] or [3]) the number of rows of
 *  logits [..,K] whose label [..] (i32) ranks first (hits[0]), and among the first five
 *  (hits[1]). Equal logits rank by index, smaller first. A row with a NaN, or with a label that
 *  is not a class, counts as wrong. hits[2], if present, counts rows not labelled
 *  LT_IGNORED_LABEL. Errors: LT_E_SHAPE, LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_topk_hits(const lt_tensor *logits, const lt_tensor *labels,
                                            lt_tensor *hits);

#endif
