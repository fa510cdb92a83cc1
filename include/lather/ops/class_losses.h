/** Losses of class indices with class weights, weighted binary cross-entropy, focal and triplet loss. */
#ifndef LATHER_OPS_CLASS_LOSSES_H
#define LATHER_OPS_CLASS_LOSSES_H

#include "lather/ops/loss.h"

typedef struct lt_cross_entropy_config {
    double smoothing; /**< as in lt_softmax_xent() */
    lt_loss_reduction reduction;
} lt_cross_entropy_config;

/**
 * Negative log-likelihood of labels. The mean is over the labels' weights; if all labels are ignored it is
 * NaN, as in PyTorch. Labels of LT_IGNORED_LABEL do not count.
 *
 *     loss = mean or sum over n of -weight[label[n]] * x[n,label[n]];  mean = sum / sum of weight[label[n]]
 *
 * Shapes  x [..,K] log-probabilities, labels [..], weight [K] or NULL: 1 -> loss [], or [..] without
 *         reduction
 * Dtypes  x, weight any floating, labels i32; loss of the master dtype, and computed in it
 * Grads   x
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (on host devices also a label outside
 *         0..K-1), LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_nll_loss(lt_tape *tape, lt_tensor *x, lt_tensor *labels, lt_tensor *weight,
                              lt_loss_reduction reduction);

/**
 * lt_nll_loss() of lt_log_softmax() with class weights and smoothing: PyTorch's cross_entropy(). Without both
 * lt_softmax_xent() is faster.
 *
 *     loss[n] = -weight[label[n]] * (1 - smoothing) * z[n,label[n]] - smoothing/K * sum over k of
 *               weight[k] * z[n,k],  z = log_softmax(logits)
 *
 * Shapes  as lt_nll_loss()
 * Dtypes  as lt_nll_loss()
 * Grads   logits
 * Owns    the tape owns loss
 * Errors  as lt_nll_loss()
 * Source  as lt_softmax_xent()
 */
LT_API lt_tensor *lt_cross_entropy(lt_tape *tape, lt_tensor *logits, lt_tensor *labels,
                                   lt_tensor *weight, lt_cross_entropy_config config);

/**
 * lt_bce_with_logits() with weights: `weight` of each loss, `pos_weight` of the positive part. The mean is over
 * elements.
 *
 *     loss[i] = weight[i] * -(pos_weight[i] * target[i] * log(p[i]) + (1 - target[i]) * log(1 - p[i])),
 *     p = sigmoid(logits)
 *
 * Shapes  logits [..], target like it; weight, pos_weight broadcastable to it, or NULL: 1 -> loss [],
 *         or like logits without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   logits
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  as lt_bce_with_logits()
 */
LT_API lt_tensor *lt_bce_with_logits_weighted(lt_tape *tape, lt_tensor *logits, lt_tensor *target,
                                              lt_tensor *weight, lt_tensor *pos_weight,
                                              lt_loss_reduction reduction);

/**
 * Focal loss by torchvision's name; its defaults are alpha 0.25 and gamma 2. A negative alpha: without that
 * factor.
 *
 *     loss[i] = a[i] * q[i]^gamma * bce[i],  q = p + t - 2 p t (the wrong class's probability),
 *     a = alpha * t + (1 - alpha) * (1 - t), t the target, p = sigmoid(logits)
 *
 * Shapes  logits [..], target like it, in [0,1] -> loss [], or like logits without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   logits
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Lin et al., "Focal loss for dense object detection", ICCV 2017, equation 5
 */
LT_API lt_tensor *lt_sigmoid_focal_loss(lt_tape *tape, lt_tensor *logits, lt_tensor *target,
                                        double alpha, double gamma, lt_loss_reduction reduction);

/**
 * Triplet margin loss with the Euclidean distance; PyTorch's default margin is 1. swap: takes the negative's
 * distance to the positive instead, if that is smaller.
 *
 *     loss[n] = max(d(anchor[n], positive[n]) - d(anchor[n], negative[n]) + margin, 0),
 *     d(a, b) = |a - b + 1e-6|
 *
 * Shapes  triplet: anchor, positive, negative, of one shape [N,C] -> loss [], or [N] without reduction
 * Dtypes  any; loss of the master dtype, and computed in it
 * Grads   all three
 * Owns    the tape owns loss
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Balntas et al., "Learning local feature descriptors with triplets and shallow convolutional
 *         neural networks", BMVC 2016
 */
LT_API lt_tensor *lt_triplet_margin_loss(lt_tape *tape, lt_tensor *const triplet[3], double margin,
                                         bool swap, lt_loss_reduction reduction);

#endif
