/** Weight averaging (schedule-free, primal, tail, EMA-Nesterov) around any optimizer: gradients are taken at one sequence of
 *  weights, and another one is evaluated and saved. */
#ifndef LATHER_AVERAGING_H
#define LATHER_AVERAGING_H

#include "lather/optim.h"

typedef enum lt_averaging_kind {
    LT_AVERAGING_OFF,
    /** schedule-free: the evaluated weights x are the mean of all iterates z, weighted by powers of their lr */
    LT_AVERAGING_SCHEDULE_FREE,
    LT_AVERAGING_PRIMAL, /**< evaluated weights x: moving average of the iterates z */
    LT_AVERAGING_TAIL, /**< evaluated weights x: mean of the iterates z from a step on; gradients are taken at z */
    LT_AVERAGING_EMA_NESTEROV /**< gradients are taken ahead of x, along a moving average m of its changes */
} lt_averaging_kind;

/** Coefficients, named as in Distributed Shampoo. */
typedef struct lt_averaging_config {
    lt_averaging_kind kind;
    double train_interp_coeff;  /**< mu_y in (0,1]: weight of x in y = mu_y x + (1 - mu_y) z */
    double eval_interp_coeff;   /**< PRIMAL: mu_x in [0,1), weight of the previous x in x */
    double eval_coeff_lr_power; /**< SCHEDULE_FREE: p >= 0, an iterate has weight lr^p */
    bool decay_of_y;            /**< z decays by lr * weight_decay * y, not lr * weight_decay * z */
    int64_t tail_start; /**< TAIL: first step whose iterate is averaged, >= 1; x is z before it */
    double lookahead;   /**< EMA_NESTEROV: beta >= 0, distance of y from x in units of m */
    double lookahead_decay; /**< EMA_NESTEROV: gamma in [0,1), decay rate of m */
    /** EMA_NESTEROV: y is ahead of x in the steps from start, >= 1, to before end, > start, or 0: to the last one. */
    int64_t lookahead_start, lookahead_end;
} lt_averaging_config;
#define LT_AVERAGING_DEFAULTS                         \
    ((lt_averaging_config){.train_interp_coeff = 0.8, \
                           .eval_interp_coeff = 0.9,  \
                           .eval_coeff_lr_power = 2,  \
                           .tail_start = 1,           \
                           .lookahead = 0.5,          \
                           .lookahead_decay = 0.99,   \
                           .lookahead_start = 1})

/** Makes each update of the optimizer one of z, with the gradient at y:
 *
 *     z = z + the optimizer's update of z           (with its weight decay of z, unless decay_of_y)
 *     x = mu_x x + (1 - mu_x) z                     (schedule-free: mu_x = 1 - lr^p / sum of all lr^p so far)
 *     y = mu_y x + (1 - mu_y) z
 *
 * Tail averaging has mu_y 0 and mu_x = 1 - 1 / n in the n-th step from tail_start on, 0 before it: an update is the
 * optimizer's own, and x a plain mean.
 * EMA-Nesterov has instead, from m = 0, and with the lr of this step and the largest one so far,
 *
 *     x' = y + the optimizer's update of y
 *     m = gamma m + (1 - gamma) (x' - x);  x = x'
 *     y = x + beta lr / (largest lr) m              (outside of the lookahead's steps: y = x)
 *
 * where a parameter without a gradient keeps x and m.
 * The parameters hold y in training and x in evaluations. x and z start at the current values. Parameters without
 * a gradient, and skipped steps, change none of them. Running statistics are not averaged: they belong to y.
 * params: the list that the optimizer was made over, or this rank's shards of it; borrowed. Call before the first
 * step. Each rank keeps its own x and z, two tensors of each parameter's size, also if the optimizer's state is sharded.
 * decay_of_y: only SCHEDULE_FREE and PRIMAL; needs ops->decay_is_apart; uses the weight decays that lt_optim_set_group() has set by now.
 * Errors: LT_E_ARG (coefficient out of range; a step was made), LT_E_UNSUPPORTED (parameters are sharded by
 * lt_optim_shard_params(); decay_of_y with another optimizer), LT_E_NOMEM.
 * Sources: Defazio et al., "The Road Less Scheduled", NeurIPS 2024 (arXiv 2405.15682), equations (2)-(4) and, for
 * the weights, (23); "Generalized Primal Averaging" (arXiv 2512.17131); tail: Jain et al., "Parallelizing Stochastic
 * Gradient Descent for Least Squares Regression", JMLR 2018 (arXiv 1610.03774), section 2; Yau et al., "EMA-Nesterov:
 * Stabilizing Nesterov's Lookahead for Accelerated Deep Learning Optimization", 2026 (arXiv 2605.25395), whose beta_t is
 * proportional to the lr of step t here too, but of the step before. */
LT_API LT_MUST_CHECK lt_status lt_optim_start_averaging(lt_optim *optim, const lt_params *params,
                                                        const lt_averaging_config *config);

/** Switch the parameters to x for an evaluation, and back to y. No training in between; values written to the
 *  parameters in between become x. Without effect if already switched, or without averaging. */
LT_API LT_MUST_CHECK lt_status lt_optim_eval(lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_train(lt_optim *optim);

/** Returns true if the parameters hold x, or the optimizer does not average. */
LT_API bool lt_optim_is_eval(const lt_optim *optim);
LT_API bool lt_optim_is_averaged(const lt_optim *optim);

/** Shows z, or m, named "weight_buffer", as lt_ema_visit() shows averages. x is in the parameters; lt_optim_visit()
 *  shows the sum of weights, and fails (LT_E_ARG) while the parameters hold y, so that y is never saved. */
LT_API LT_MUST_CHECK lt_status lt_optim_visit_iterates(lt_optim *optim, lt_state_visitor *visitor);

#endif
