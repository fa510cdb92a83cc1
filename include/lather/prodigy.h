/** Prodigy: AdamW with a learning rate that the run itself estimates. */
#ifndef LATHER_PRODIGY_H
#define LATHER_PRODIGY_H

#include "lather/optim.h"

typedef struct lt_prodigy_config {
    double beta1, beta2; /**< decay rates of the first and second moment, in [0,1) */
    double eps;          /**< added to the root of the second moment, times d */
    double d0;           /**< first estimate of the distance, above 0 */
    double d_coef;       /**< factor of later estimates, above 0 */
    double weight_decay; /**< decoupled: a weight shrinks by lr * d * weight_decay per step */
    lt_decay_scope decay_scope;
} lt_prodigy_config;
#define LT_PRODIGY_DEFAULTS \
    ((lt_prodigy_config){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .d0 = 1e-6, .d_coef = 1})

/** Makes Prodigy: Adam's step with the learning rate lr d, where d grows to a lower bound of the distance between the weights
 *  x0 of each parameter's first update and a solution. lr is a schedule with peak 1. From d = d0, m = v = s = r = 0, over all
 *  parameters together, with b3 = sqrt(beta2) and all d on the right the one of the step before:
 *
 *     m = beta1 m + (1 - beta1) d g
 *     v = beta2 v + (1 - beta2) d^2 g^2
 *     r = b3 r + (1 - b3) lr d^2 <g, x0 - x>
 *     s = b3 s + (1 - b3) lr d^2 g
 *     x = x - lr d weight_decay x - lr d m / (sqrt(v) + d eps)
 *     d = max(d, d_coef r / sum of |s|)
 *
 * without bias correction. A parameter without a gradient keeps m, v and x; its s decays. State: m, v, s and x0, twice
 * Adam's, with the same bits for any number of ranks that share it.
 * As lt_optim_sgd(); config NULL: the defaults.
 * Errors: LT_E_ARG, LT_E_NOMEM; LT_E_UNSUPPORTED (the device's memory is not the host's; in the first step: gradients or
 * parameters are sharded).
 * Source: Mishchenko & Defazio, "Prodigy: An Expeditiously Adaptive Parameter-Free Learner", 2023 (arXiv 2306.06101),
 * algorithm 4, with lr in the place of gamma; the decay is its authors' code's. */
LT_API LT_MUST_CHECK lt_status lt_optim_prodigy(lt_optim **out, const lt_params *params,
                                                const lt_prodigy_config *config);

#endif
