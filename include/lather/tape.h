/** Records operations as they run, then walks them backwards for gradients. */
#ifndef LATHER_TAPE_H
#define LATHER_TAPE_H

#include "lather/tensor.h"

/** Owns every tensor that an operation returns; one tape serves one thread. */
typedef struct lt_tape lt_tape;

/** An empty tape; borrows the device. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_tape_new(lt_tape **out, lt_device *device);
LT_API void lt_tape_free(lt_tape **tape);
LT_API lt_device *lt_tape_device(const lt_tape *tape);

/** Which outputs are dropped after the forward pass and made again in backward. */
typedef enum lt_recompute {
    LT_RECOMPUTE_OFF,
    LT_RECOMPUTE_CHEAP /**< norms, activations, cast: what costs one pass over memory */
} lt_recompute;

/** What a pass is for. Precision is a property of the pass, not of the model. */
typedef struct lt_pass {
    bool record;      /**< nodes for backward */
    bool batch_stats; /**< batch norm uses and updates statistics of this batch */
    bool dropout;
    lt_dtype dtype; /**< of activations: LT_F32 (the device's master dtype), LT_BF16, LT_F16 */
    lt_recompute recompute; /**< memory for time */
    uint64_t seed;          /**< of dropout: (seed, attempt, micro, operation ordinal, element) */
    int64_t attempt;        /**< of the training step this pass belongs to */
    int32_t micro;          /**< micro-batch within the step */
    /** With batch_stats: the momentum of every batch norm instead of its own, and num_batches_tracked
     *  stays; 0: its own. With 1/(k+1) in pass k = 0, 1, ... running statistics become the plain mean. */
    double stat_momentum;
} lt_pass;

#define LT_PASS_TRAIN ((lt_pass){.record = true, .batch_stats = true, .dropout = true})
#define LT_PASS_EVAL  ((lt_pass){.record = false})

/** Starts a pass: frees all nodes, recycles their memory, clears the failure.
 *  Every tensor borrowed from the tape is dead after this. */
LT_API void lt_tape_reset(lt_tape *tape, lt_pass pass);
LT_API lt_pass lt_tape_pass(const lt_tape *tape);

/** The first failure since the last reset, or LT_OK. From that failure on, every
 *  operation on the tape returns NULL at once, so a forward pass can be written
 *  straight through and asked about here. The message is set again for this thread. */
LT_API LT_MUST_CHECK lt_status lt_tape_status(const lt_tape *tape);

/** Makes a failure stick to the tape; keeps the first. Returns NULL, so that an operation can
 *  end with `return lt_tape_fail(tape, lt_fail(...));` */
LT_API lt_tensor *lt_tape_fail(lt_tape *tape, lt_status status);

/** From any thread: what the tape computes is not wanted any more. Its next operation, or the next node of a
 *  running backward, fails with LT_E_CANCELLED, until the reset; gradients of parameters are then incomplete. */
LT_API void lt_tape_cancel(lt_tape *tape);

/** Keeps x's memory until the reset; without it backward gives the memory of intermediates back
 *  after their last use. The loss is always kept. x may be NULL. */
LT_API void lt_tape_keep(lt_tape *tape, lt_tensor *x);

/** "No operation to come reads x": lets the tape give x's memory back before backward (now, in a
 *  pass that does not record, or if x can be recomputed). x may be NULL. */
LT_API void lt_tape_drop(lt_tape *tape, lt_tensor *x);

/** Adds scale * d loss / d parameter to every parameter the loss depends on, and to every input
 *  made with lt_tape_variable().
 *  Shapes: loss []. Errors: lt_tape_status(), or LT_E_SHAPE if loss is no scalar. */
LT_API LT_MUST_CHECK lt_status lt_tape_backward(lt_tape *tape, lt_tensor *loss, double scale);
/** The same with scale times the number in by, a scalar that is read on the device: the loss scale
 *  of lt_optim_loss_scale(). by NULL: 1. */
LT_API LT_MUST_CHECK lt_status lt_tape_backward_by(lt_tape *tape, lt_tensor *loss, double scale,
                                                   const lt_tensor *by);

/** x, a tensor of yours, as an input with a gradient, readable after backward by
 *  lt_tape_gradient(). x must outlive the pass. Owns: the tape owns the returned handle. */
LT_API lt_tensor *lt_tape_variable(lt_tape *tape, lt_tensor *x);
/** The gradient of a variable after backward: NULL if the loss does not depend on it.
 *  Owns: the tape, until the reset. */
LT_API lt_tensor *lt_tape_gradient(lt_tape *tape, lt_tensor *variable);

struct lt_param;
/** Called in backward when a parameter's gradient is complete for this pass. */
typedef void lt_param_final_fn(void *context, struct lt_param *param);
LT_API void lt_tape_on_param_final(lt_tape *tape, lt_param_final_fn *fn, void *context);

/** Called in front of each read of a parameter's value by an operation, in forward and backward, so that
 *  a value may have memory only while it is used; what one operation was given stays until the next
 *  number of `operation`. param NULL: a pass begins, and nothing of the one before is read any more. */
typedef lt_status lt_param_read_fn(void *context, struct lt_param *param, int64_t operation);
LT_API void lt_tape_on_param_read(lt_tape *tape, lt_param_read_fn *fn, void *context);

/** Combines a batch norm's numbers over ranks, in place: LT_NORM_REDUCE_MOMENTS: stats [3,C] =
 *  count, mean, M2 of each channel, by Chan's formula; LT_NORM_REDUCE_MEAN: sums [2,C], to their mean
 *  over ranks (weighted by the ranks' counts), so that dividing by this rank's count gives the global
 *  mean. */
typedef enum lt_norm_reduce { LT_NORM_REDUCE_MOMENTS, LT_NORM_REDUCE_MEAN } lt_norm_reduce;
typedef lt_status lt_norm_reduce_fn(void *context, lt_norm_reduce op, lt_tensor *x);
/** Set by data-parallel training for synchronised batch norm; NULL (the default): this rank only. */
LT_API void lt_tape_on_norm_reduce(lt_tape *tape, lt_norm_reduce_fn *fn, void *context);

#endif
