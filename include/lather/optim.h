/** Optimizers: gradients in, parameter updates out. */
#ifndef LATHER_OPTIM_H
#define LATHER_OPTIM_H

#include "lather/detail/scalars.h"
#include "lather/detail/state.h"
#include "lather/param.h"

typedef struct lt_optim lt_optim;

/** Inputs of a step; lr schedules are pure functions of attempt. */
typedef struct lt_step {
    double lr;        /**< learning rate, before a group's lr_scale */
    double clip_norm; /**< largest allowed global gradient norm; 0: no clipping */
    int64_t attempt;  /**< 1 in the first step; also advances in skipped steps */
} lt_step;

/** Unscales, checks and clips the gradients, and updates all parameters that have one. If a gradient is NaN
 *  or Inf, parameters and state are unchanged. Does not change the gradients.
 *  Errors: LT_E_DEVICE, or the optimizer's own. */
LT_API LT_MUST_CHECK lt_status lt_optim_step(lt_optim *optim, const lt_step *step);

/** lt_optim_step() in three parts for lt_graph_run(): prepare copies the step's scalars to the device,
 *  outside of the graph; update runs inside if lt_optim_is_capturable(); advance updates the host's counters,
 *  outside. */
LT_API LT_MUST_CHECK lt_status lt_optim_prepare(lt_optim *optim, const lt_step *step);
LT_API LT_MUST_CHECK lt_status lt_optim_update(lt_optim *optim);
LT_API void lt_optim_advance(lt_optim *optim);
/** Returns true if the prepared update queues the same work as the next one, so that its graph can be
 *  replayed. */
LT_API bool lt_optim_is_capturable(const lt_optim *optim);
/** Returns true if the update has a host phase: its first and second part can be captured, with host work
 *  between them. lt_optim_update() runs all three. */
LT_API bool lt_optim_has_host_phase(const lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_update_first(lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_update_host(lt_optim *optim);
LT_API LT_MUST_CHECK lt_status lt_optim_update_second(lt_optim *optim);

/** Expects gradients that are loss_scale times too large from now on, and adapts the scale. config NULL:
 *  LT_LOSS_SCALING_DEFAULTS; interval 0: constant scale 1.
 *  Errors: LT_E_ARG, LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_optim_scale_loss(lt_optim *optim, const lt_loss_scaling *config);
/** Returns the loss scale, f64 [] on the device, for lt_tape_backward_by(), or NULL for 1.
 *  Owns: the optimizer. */
LT_API const lt_tensor *lt_optim_loss_scale(const lt_optim *optim);

/** Result of the last step; synchronizes with the device. If results were sent: that of the oldest step whose
 *  result was not taken yet. */
typedef struct lt_step_result {
    double grad_norm;  /**< global norm, before clipping; NaN or Inf if the step was skipped */
    bool applied;      /**< false: the step was skipped, as a gradient was not finite */
    int64_t steps;     /**< updates applied so far */
    double loss_scale; /**< loss scale of the next step */
    int good_steps;    /**< finite steps since loss_scale changed */
} lt_step_result;
LT_API LT_MUST_CHECK lt_status lt_optim_result(lt_optim *optim, lt_step_result *result);
/** Starts, after lt_optim_advance(), the copy of this step's result to the host, so that lt_optim_result()
 *  can take it after the next step was queued, if both steps were capturable. lt_optim_visit() fails while a
 *  result is in flight.
 *  Errors: LT_E_ARG (two are in flight). */
LT_API LT_MUST_CHECK lt_status lt_optim_send_result(lt_optim *optim);

/** Frees *optim and its state; call it before freeing the model. */
LT_API void lt_optim_free(lt_optim **optim);

/** Keeps moments (momentum, first and second moments, sums) in fewer bytes between steps; steps use f32. Call
 *  before the first step and before lt_optim_visit().
 *  Errors: LT_E_ARG (int4; a step was made), LT_E_UNSUPPORTED (the optimizer or the device supports f32 only:
 *  names it). */
LT_API LT_MUST_CHECK lt_status lt_optim_set_state_dtype(lt_optim *optim, lt_state_dtype dtype);
LT_API const char *lt_optim_name(const lt_optim *optim);
/** Returns the bytes of state: moments, factors, roots. */
LT_API size_t lt_optim_state_bytes(const lt_optim *optim);

/** Settings of one parameter that override the optimizer's. */
typedef struct lt_optim_group {
    double lr_scale;     /**< factor of the step's lr; NaN: keeps it */
    double weight_decay; /**< replaces the optimizer's weight decay; NaN: keeps it */
} lt_optim_group;
/** Applies the overrides to the parameter of that name. Errors: LT_E_ARG (no such parameter). */
LT_API LT_MUST_CHECK lt_status lt_optim_set_group(lt_optim *optim, const char *param,
                                                  lt_optim_group group);

/** Shows all state in a fixed order.
 *  Errors: LT_E_UNSUPPORTED (a parameter is a shard of a logical one: names it; lt_sharded_optim_params() has
 *  whole ones); the visitor's. */
LT_API LT_MUST_CHECK lt_status lt_optim_visit(lt_optim *optim, lt_state_visitor *visitor);

/** Parameters to which weight decay applies. */
typedef enum lt_decay_scope {
    LT_DECAY_ALL,    /**< every trained parameter */
    LT_DECAY_WEIGHTS /**< all but biases and the parameters of norms */
} lt_decay_scope;

typedef struct lt_sgd_config {
    double momentum;     /**< decay rate of the momentum, in [0,1) */
    double dampening;    /**< damping of new terms, in [0,1]; not in a parameter's first update */
    bool nesterov;       /**< look ahead: g + momentum * m instead of m */
    double weight_decay; /**< L2 regularization: added to the gradient */
    lt_decay_scope decay_scope;
} lt_sgd_config;

/** Makes stochastic gradient descent. Borrows the parameters: they must outlive the optimizer. config NULL:
 *  zeros.
 *  Errors: LT_E_ARG, LT_E_NOMEM.
 *  Source: Sutskever et al., "On the importance of initialization and momentum", ICML 2013, in the form where
 *  lr multiplies the momentum. */
LT_API LT_MUST_CHECK lt_status lt_optim_sgd(lt_optim **out, const lt_params *params,
                                            const lt_sgd_config *config);

typedef struct lt_adagrad_config {
    double eps;          /**< added after the square root */
    double weight_decay; /**< L2 regularization: added to the gradient */
    lt_decay_scope decay_scope;
} lt_adagrad_config;
#define LT_ADAGRAD_DEFAULTS ((lt_adagrad_config){.eps = 1e-10})

/** Makes diagonal AdaGrad, as lt_optim_sgd(). Source: Duchi, Hazan & Singer, JMLR 2011, figure 1. */
LT_API LT_MUST_CHECK lt_status lt_optim_adagrad(lt_optim **out, const lt_params *params,
                                                const lt_adagrad_config *config);

typedef struct lt_adam_config {
    double beta1;        /**< decay rate of the first moment, in [0,1) */
    double beta2;        /**< decay rate of the second moment, in [0,1) */
    double eps;          /**< added after the square root */
    double weight_decay; /**< L2 or, if decoupled: a weight shrinks by lr * weight_decay per step */
    bool decoupled;      /**< AdamW: weight decay apart from the gradient */
    lt_decay_scope decay_scope;
} lt_adam_config;
#define LT_ADAM_DEFAULTS ((lt_adam_config){.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8})

/** Makes Adam or AdamW; bias corrections count the steps in which a parameter has a gradient. As
 *  lt_optim_sgd().
 *  Source: Kingma & Ba, ICLR 2015, algorithm 1; Loshchilov & Hutter, ICLR 2019, algorithm 2. */
LT_API LT_MUST_CHECK lt_status lt_optim_adam(lt_optim **out, const lt_params *params,
                                             const lt_adam_config *config);

#endif
