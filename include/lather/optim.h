/** Optimizers: gradients in, parameter updates out. */
#ifndef LATHER_OPTIM_H
#define LATHER_OPTIM_H

#include "lather/detail/scalars.h"
#include "lather/detail/state.h"
#include "lather/param.h"

typedef struct lt_optim lt_optim;

/** The numbers of one step, given from outside: a schedule is a pure function of attempt. */
typedef struct lt_step {
    double lr;        /**< before a group's factor */
    double clip_norm; /**< largest allowed global gradient norm; 0: no clipping */
    int64_t attempt;  /**< 1 in the first step; advances also when an update is skipped */
} lt_step;

/** Unscales, checks, clips, and updates all parameters that have a gradient; if a gradient is NaN
 *  or Inf, parameters and state stay untouched. Leaves the gradients alone.
 *  Errors: LT_E_DEVICE, or the optimizer's own. */
LT_API LT_MUST_CHECK lt_status lt_optim_step(lt_optim *optim, const lt_step *step);

/** lt_optim_step() in three parts, for lt_graph_run(): the step's scalars to the device, outside of the
 *  graph; the update itself, captured if lt_optim_is_capturable(); the host's counters, outside. */
LT_API LT_MUST_CHECK lt_status lt_optim_prepare(lt_optim *optim, const lt_step *step);
LT_API LT_MUST_CHECK lt_status lt_optim_update(lt_optim *optim);
LT_API void lt_optim_advance(lt_optim *optim);
/** Whether the update that is prepared queues the same work as the next one, so that a graph of it may be
 *  replayed. */
LT_API bool lt_optim_is_capturable(const lt_optim *optim);
/** Whether the update has a host phase: it is not capturable as a whole, but its first and second part are,
 *  and the host works between them. lt_optim_update() is all three. */
LT_API bool lt_optim_has_host_phase(const lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_update_first(lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_update_host(lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_update_second(lt_optim *optim);

/** From now on gradients are loss_scale times too large, and the scale moves as scaling says.
 *  config NULL: LT_LOSS_SCALING_DEFAULTS; interval 0: scale 1 that stays. Errors: LT_E_ARG, LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_optim_scale_loss(lt_optim *optim, const lt_loss_scaling *config);
/** The scale, f64 [] on the device, for lt_tape_backward_by(); NULL: 1. Owns: the optimizer. */
LT_API const lt_tensor *lt_optim_loss_scale(const lt_optim *optim);

/** What the last step did; synchronizes with the device. If results were sent: that of the oldest step whose
 *  result was not taken yet. */
typedef struct lt_step_result {
    double grad_norm;  /**< global, before clipping; NaN or Inf if the step was skipped */
    bool applied;      /**< false: a gradient was not finite */
    int64_t steps;     /**< updates applied so far */
    double loss_scale; /**< of the next step */
    int good_steps;    /**< since it last changed */
} lt_step_result;
LT_API LT_MUST_CHECK lt_status lt_optim_result(lt_optim *optim, lt_step_result *result);
/** After lt_optim_advance(): starts the copy of this step's result to the host, so that lt_optim_result()
 *  can take it after the next step was queued, if both were capturable. lt_optim_visit() fails while one is
 *  in flight. Errors: LT_E_ARG (two are in flight). */
LT_API LT_MUST_CHECK lt_status lt_optim_send_result(lt_optim *optim);

/** Frees *optim and its state; before the model. */
LT_API void lt_optim_free(lt_optim **optim);

/** Keeps moments (momentum, means, second moments, sums) in fewer bytes between steps; steps work on f32.
 *  Before the first step, and before lt_optim_visit(). Errors: LT_E_ARG (int4; a step was done), LT_E_UNSUPPORTED
 *  (the optimizer, or the device, keeps f32 only: names it). */
LT_API LT_MUST_CHECK lt_status lt_optim_set_state_dtype(lt_optim *optim, lt_state_dtype dtype);
LT_API const char *lt_optim_name(const lt_optim *optim);
/** Bytes of state: moments, factors, roots. */
LT_API size_t lt_optim_state_bytes(const lt_optim *optim);

/** Overrides for some parameters. */
typedef struct lt_optim_group {
    double lr_scale;     /**< times the step's lr */
    double weight_decay; /**< instead of the optimizer's; NaN: keep it */
} lt_optim_group;
/** Applies to the parameter of that name. Errors: LT_E_ARG (no such parameter). */
LT_API LT_MUST_CHECK lt_status lt_optim_set_group(lt_optim *optim, const char *param,
                                                  lt_optim_group group);

/** Shows every piece of state in a fixed order. Errors: LT_E_UNSUPPORTED (a parameter is a box of a logical
 *  one: names it; an optimizer over lt_sharded_optim_params() has whole ones); the visitor's. */
LT_API LT_MUST_CHECK lt_status lt_optim_visit(lt_optim *optim, lt_state_visitor *visitor);

/** Which parameters decay. */
typedef enum lt_decay_scope {
    LT_DECAY_ALL,    /**< every trained parameter */
    LT_DECAY_WEIGHTS /**< not biases, not gains and shifts of normalisations */
} lt_decay_scope;

typedef struct lt_sgd_config {
    double momentum;     /**< in [0,1) */
    double dampening;    /**< in [0,1]; not in a parameter's first update */
    bool nesterov;       /**< look ahead: g + momentum * m instead of m */
    double weight_decay; /**< L2: added to the gradient */
    lt_decay_scope decay_scope;
} lt_sgd_config;

/** Stochastic gradient descent. Borrows the parameters: they must outlive the optimizer.
 *  config NULL: zeros. Errors: LT_E_ARG, LT_E_NOMEM.
 *  Source: Sutskever et al., "On the importance of initialization and momentum", ICML 2013,
 *  in the form where lr multiplies the momentum. */
LT_API LT_MUST_CHECK lt_status lt_optim_sgd(lt_optim **out, const lt_params *params,
                                            const lt_sgd_config *config);

typedef struct lt_adagrad_config {
    double eps;          /**< added after the square root */
    double weight_decay; /**< L2 */
    lt_decay_scope decay_scope;
} lt_adagrad_config;
#define LT_ADAGRAD_DEFAULTS ((lt_adagrad_config){.eps = 1e-10})

/** AdaGrad, diagonal. As lt_optim_sgd(). Source: Duchi, Hazan & Singer, JMLR 2011, figure 1. */
LT_API LT_MUST_CHECK lt_status lt_optim_adagrad(lt_optim **out, const lt_params *params,
                                                const lt_adagrad_config *config);

typedef struct lt_adam_config {
    double beta1;        /**< memory of the mean, in [0,1) */
    double beta2;        /**< memory of the mean square, in [0,1) */
    double eps;          /**< added after the square root */
    double weight_decay; /**< L2, or a weight shrinks by lr * weight_decay a step */
    bool decoupled;      /**< the latter: AdamW */
    lt_decay_scope decay_scope;
} lt_adam_config;
#define LT_ADAM_DEFAULTS ((lt_adam_config){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8})

/** Adam and AdamW; bias corrections count the steps in which a parameter has a gradient. As lt_optim_sgd().
 *  Source: Kingma & Ba, ICLR 2015, algorithm 1; Loshchilov & Hutter, ICLR 2019, algorithm 2. */
LT_API LT_MUST_CHECK lt_status lt_optim_adam(lt_optim **out, const lt_params *params,
                                             const lt_adam_config *config);

#endif
