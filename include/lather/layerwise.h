/** LARS and LAMB: each layer has its own learning rate, for training with large batches. */
#ifndef LATHER_LAYERWISE_H
#define LATHER_LAYERWISE_H

#include "lather/optim.h"

/* Both multiply the update of a parameter w by a trust ratio, which grows with |w| and falls with the length
 * of the update; norms are Euclidean, in double. The ratio is 1 for parameters without weight decay (biases
 * and norms' parameters, by decay_scope) unless always_adapt, and if one of the norms is 0. With sharded
 * state (lather/shard.h) a parameter's owner computes its norms and its update, and results are bitwise those
 * of unsharded state. */

typedef struct lt_lars_config {
    double momentum;          /**< decay rate of the momentum, in [0,1) */
    double dampening;         /**< damping of new terms, in [0,1]; not in the first update */
    bool nesterov;            /**< look ahead: u + momentum * m instead of m */
    double weight_decay;      /**< L2 regularization: added to the gradient */
    double trust_coefficient; /**< above 0: ratio of the lengths of update and weight at lr 1 */
    double eps;               /**< added to the denominator of the trust ratio */
    bool trust_clip;          /**< LARC: lr times the ratio is at most lr */
    bool always_adapt;        /**< apply trust ratios to parameters without weight decay, too */
    lt_decay_scope decay_scope;
} lt_lars_config;
#define LT_LARS_DEFAULTS                          \
    ((lt_lars_config){.momentum = 0.9,            \
                      .weight_decay = 1e-4,       \
                      .trust_coefficient = 0.001, \
                      .eps = 1e-8,                \
                      .decay_scope = LT_DECAY_WEIGHTS})

/** Makes LARS: r = trust_coefficient |w| / (|g| + weight_decay |w| + eps), with trust_clip min(1, r / lr); u
 *  = r (g + weight_decay w); m = momentum m + (1 - dampening) u; w -= lr m (or lr (u + momentum m)).
 *  Ownership as in lt_optim_sgd(). config NULL: the defaults.
 *  Errors: LT_E_ARG, LT_E_NOMEM.
 *  Source: You, Gitman & Ginsburg, "Large batch training of convolutional networks", 2017 (arXiv 1708.03888),
 *  algorithm 1, in the form where lr multiplies the momentum. */
LT_API LT_MUST_CHECK lt_status lt_optim_lars(lt_optim **out, const lt_params *params,
                                             const lt_lars_config *config);

typedef struct lt_lamb_config {
    double beta1;         /**< decay rate of the first moment, in [0,1) */
    double beta2;         /**< decay rate of the second moment, in [0,1) */
    double eps;           /**< added after the square root in Adam's update */
    double weight_decay;  /**< decay added to the update before its norm is taken */
    bool bias_correction; /**< divide the moments: m / (1 - beta1^t), v / (1 - beta2^t) */
    bool grad_averaging;  /**< m = beta1 m + (1 - beta1) g; else beta1 m + g */
    bool trust_clip;      /**< clip trust ratios to at most 1 */
    bool always_adapt;    /**< apply trust ratios to parameters without weight decay, too */
    lt_decay_scope decay_scope;
} lt_lamb_config;
#define LT_LAMB_DEFAULTS                       \
    ((lt_lamb_config){.beta1 = 0.9,            \
                      .beta2 = 0.999,          \
                      .eps = 1e-6,             \
                      .weight_decay = 0.01,    \
                      .bias_correction = true, \
                      .grad_averaging = true,  \
                      .decay_scope = LT_DECAY_WEIGHTS})

/** Makes LAMB: u = Adam's update + weight_decay w; w -= lr (|w| / |u|) u. Bias corrections count all steps,
 *  as timm's Lamb. Ownership and errors as in lt_optim_lars().
 *  Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020
 *  (arXiv 1904.00962), algorithm 2 with phi(x) = x. */
LT_API LT_MUST_CHECK lt_status lt_optim_lamb(lt_optim **out, const lt_params *params,
                                             const lt_lamb_config *config);

#endif
