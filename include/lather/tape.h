/** Records operations as they run; computes gradients by reverse-mode differentiation. */
#ifndef LATHER_TAPE_H
#define LATHER_TAPE_H

#include "lather/tensor.h"

/** Owns every tensor that an operation returns. One tape is used by one thread. */
typedef struct lt_tape lt_tape;

/** Creates an empty tape. Borrows the device, which must outlive it. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_tape_new(lt_tape **out, lt_device *device);
/** Frees *tape with all its tensors and sets it to NULL. */
LT_API void lt_tape_free(lt_tape **tape);
LT_API lt_device *lt_tape_device(const lt_tape *tape);

/** Which outputs are dropped after the forward pass and recomputed in backward. */
typedef enum lt_recompute {
    LT_RECOMPUTE_OFF,
    LT_RECOMPUTE_CHEAP /**< outputs that cost one pass over memory: norms, activations, casts */
} lt_recompute;

/** Mode of a pass through the model. Precision belongs to the pass, not to the model. */
typedef struct lt_pass {
    bool record; /**< records nodes for lt_tape_backward() */
    /** Batch norm uses the statistics of this batch and updates the running ones. */
    bool batch_stats;
    bool dropout;
    /** Dtype of activations: LT_F32 (the device's master dtype), LT_BF16, LT_F16. */
    lt_dtype dtype;
    lt_recompute recompute; /**< which outputs backward recomputes, to trade time for memory */
    /** Seed of dropout, whose stream is (seed, attempt, micro, operation ordinal, element). */
    uint64_t seed;
    int64_t attempt; /**< training step of this pass */
    int32_t micro;   /**< number of the micro-batch within the step */
    /** With batch_stats: overrides the momentum of every batch norm and leaves
     *  num_batches_tracked unchanged; 0: each layer uses its own. With 1/(k+1) in pass k = 0, 1,
     *  ... the running statistics become the plain mean. */
    double stat_momentum;
} lt_pass;

#define LT_PASS_TRAIN ((lt_pass){.record = true, .batch_stats = true, .dropout = true})
#define LT_PASS_EVAL  ((lt_pass){.record = false})

/** Starts a pass: frees all nodes, recycles their memory and clears the failure. Tensors that
 *  the tape returned before are invalid afterwards. */
LT_API void lt_tape_reset(lt_tape *tape, lt_pass pass);
LT_API lt_pass lt_tape_pass(const lt_tape *tape);

/** Returns the first failure since the last reset, or LT_OK. After a failure every operation on
 *  the tape returns NULL at once, so a forward pass needs one check, at its end. Restores the
 *  message of lt_error_message() for this thread. */
LT_API LT_MUST_CHECK lt_status lt_tape_status(const lt_tape *tape);

/** Records a failure on the tape; the first one is kept. Returns NULL, so that an operation can
 *  end with `return lt_tape_fail(tape, lt_fail(...));` */
LT_API lt_tensor *lt_tape_fail(lt_tape *tape, lt_status status);

/** Cancels the running pass; may be called from any thread. The next operation, or the next node
 *  of a running backward, fails with LT_E_CANCELLED until the reset; gradients of parameters are
 *  then incomplete. */
LT_API void lt_tape_cancel(lt_tape *tape);

/** Keeps x's memory until the reset; otherwise backward frees an intermediate after its last
 *  use. The loss is always kept. x may be NULL. */
LT_API void lt_tape_keep(lt_tape *tape, lt_tensor *x);

/** Declares that no later operation reads x, so that the tape may free its memory before
 *  backward: at once in a pass that does not record, or if x can be recomputed. x may be NULL. */
LT_API void lt_tape_drop(lt_tape *tape, lt_tensor *x);

/** Adds scale * d loss / d parameter to the gradient of every parameter on which the loss
 *  depends, and of every lt_tape_variable(). Shapes: loss []. Errors: the tape's status, or
 *  LT_E_SHAPE if loss is not a scalar. */
LT_API LT_MUST_CHECK lt_status lt_tape_backward(lt_tape *tape, lt_tensor *loss, double scale);
/** lt_tape_backward() with scale times a scalar that is read on the device, for instance the
 *  loss scale of lt_optim_loss_scale(). by NULL: 1. */
LT_API LT_MUST_CHECK lt_status lt_tape_backward_by(lt_tape *tape, lt_tensor *loss, double scale,
                                                   const lt_tensor *by);

/** Returns x, a tensor of yours, as a differentiable input; read its gradient after backward
 *  with lt_tape_gradient(). x must outlive the pass. Owns: the tape owns the returned handle. */
LT_API lt_tensor *lt_tape_variable(lt_tape *tape, lt_tensor *x);
/** Returns the gradient of a variable after backward, or NULL if the loss does not depend on it.
 *  Owns: the tape, until the reset. */
LT_API lt_tensor *lt_tape_gradient(lt_tape *tape, lt_tensor *variable);

struct lt_param;
/** Called in backward when a parameter's gradient is complete for this pass. */
typedef void lt_grad_ready_fn(void *context, struct lt_param *param);
/** Sets the callback; fn NULL removes it. */
LT_API void lt_tape_on_grad_ready(lt_tape *tape, lt_grad_ready_fn *fn, void *context);

/** Called before each read of a parameter's value by an operation, in forward and backward, so
 *  that the value needs memory only while it is used: until the callback runs with another
 *  `operation`. param NULL: a pass begins, and values of the previous one are no longer read. */
typedef lt_status lt_param_use_fn(void *context, struct lt_param *param, int64_t operation);
/** Sets the callback; fn NULL removes it. */
LT_API void lt_tape_on_param_use(lt_tape *tape, lt_param_use_fn *fn, void *context);

/** Kinds of reduction over ranks for batch norm, in place. LT_NORM_REDUCE_MOMENTS: merges stats
 *  [3,C] (count, mean and M2 of each channel) by Chan's formula. LT_NORM_REDUCE_MEAN: replaces
 *  sums [2,C] by their mean over ranks, weighted by the ranks' counts, so that dividing by this
 *  rank's count gives the global mean. */
typedef enum lt_norm_reduce { LT_NORM_REDUCE_MOMENTS, LT_NORM_REDUCE_MEAN } lt_norm_reduce;
typedef lt_status lt_norm_reduce_fn(void *context, lt_norm_reduce op, lt_tensor *x);
/** Sets the reduction of synchronised batch norm, as data-parallel training does; NULL (the
 *  default): statistics of this rank only. */
LT_API void lt_tape_on_norm_reduce(lt_tape *tape, lt_norm_reduce_fn *fn, void *context);

#endif
