/** Lion: updates of one size, in the direction of the sign of a momentum. */
#ifndef LATHER_LION_H
#define LATHER_LION_H

#include "lather/optim.h"

typedef struct lt_lion_config {
    double beta1;        /**< weight of the momentum in the update, in [0,1) */
    double beta2;        /**< decay rate of the momentum, in [0,1) */
    double weight_decay; /**< decoupled: a weight shrinks by lr * weight_decay per step */
    lt_decay_scope decay_scope;
} lt_lion_config;
#define LT_LION_DEFAULTS ((lt_lion_config){.beta1 = 0.9, .beta2 = 0.99})

/** Makes Lion: w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w); m = beta2 m + (1 - beta2) g, from m = 0; the
 *  sign of 0 is 0. State: m. As lt_optim_sgd(); config NULL: the defaults.
 *  Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023 (arXiv 2302.06675), algorithm 2. */
LT_API LT_MUST_CHECK lt_status lt_optim_lion(lt_optim **out, const lt_params *params,
                                             const lt_lion_config *config);

#endif
