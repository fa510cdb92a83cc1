/** Iterate averaging around any optimizer: gradients are taken at one sequence of weights, another one is
 *  evaluated and saved. */
#ifndef LATHER_AVERAGING_H
#define LATHER_AVERAGING_H

#include "lather/optim.h"

typedef enum lt_averaging_kind {
    LT_AVERAGING_OFF,
    LT_AVERAGING_SCHEDULE_FREE, /**< x is a mean of all z, by powers of their learning rates */
    LT_AVERAGING_PRIMAL         /**< x is an exponential mean of z */
} lt_averaging_kind;

/** Coefficients under the names that Distributed Shampoo gives them. */
typedef struct lt_averaging_config {
    lt_averaging_kind kind;
    double train_interp_coeff;  /**< mu_y in (0,1]: of x in y */
    double eval_interp_coeff;   /**< mu_x in [0,1), of PRIMAL: of the last x in x */
    double eval_coeff_lr_power; /**< p >= 0, of SCHEDULE_FREE: an iterate's weight is lr^p */
    bool decay_of_y;            /**< z decays by lr * weight_decay * y, not by its own value */
} lt_averaging_config;
#define LT_AVERAGING_DEFAULTS \
    ((lt_averaging_config){   \
        .train_interp_coeff = 0.8, .eval_interp_coeff = 0.9, .eval_coeff_lr_power = 2})

/**
 * From now on each update of the optimizer is one of z, with the gradient of y:
 *
 *     z = z + the optimizer's own update of z       (its weight decay is of z too, unless decay_of_y)
 *     x = mu_x x + (1 - mu_x) z                     (schedule-free: mu_x = 1 - lr^p / sum of all lr^p so far)
 *     y = mu_y x + (1 - mu_y) z
 *
 * and values are y in training and x in evaluations. All begin as the present values. A parameter without a
 * gradient, and a step that is skipped, leave them alone. Running statistics are not averaged: they are those of y.
 * params: what the optimizer was made over, or the boxes of it that this rank has; borrowed. Before the first
 * step; each rank keeps its own, also where the optimizer's state is divided. Keeps two tensors as large as each parameter.
 * decay_of_y: for optimizers with ops->decay_is_apart; takes weight decays as lt_optim_set_group() has set them by now.
 * Errors: LT_E_ARG (a coefficient out of its range; there was a step), LT_E_UNSUPPORTED (values are divided over
 * ranks by lt_optim_shard_params(); decay_of_y with another optimizer), LT_E_NOMEM.
 * Sources: Defazio et al., "The Road Less Scheduled", NeurIPS 2024 (arXiv 2405.15682), equations (2)-(4) and, for
 * the weights, (23); "Generalized Primal Averaging" (arXiv 2512.17131).
 */
LT_API LT_MUST_CHECK lt_status lt_optim_average(lt_optim *optim, const lt_params *params,
                                                const lt_averaging_config *config);

/** Values become x, and y again: between the two nothing is trained, and what is written to values is x
 *  from then on. Without effect if they are so already, or where nothing is averaged. */
LT_API LT_MUST_CHECK lt_status lt_optim_eval(lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_train(lt_optim *optim);

/** Whether values are what evaluations are of: also true where nothing is averaged. */
LT_API bool lt_optim_is_eval(const lt_optim *optim);
LT_API bool lt_optim_is_averaged(const lt_optim *optim);

/** Shows z, as lt_ema_visit() shows its averages: name "weight_buffer". x is in the values; lt_optim_visit()
 *  has the sum of weights, and is an error (LT_E_ARG) while values are y, so that y is never saved. */
LT_API LT_MUST_CHECK lt_status lt_optim_visit_iterates(lt_optim *optim, lt_state_visitor *visitor);

#endif
