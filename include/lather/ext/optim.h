/** Interface for writing an optimizer. Start from src/optim/methods/sgd.c. */
#ifndef LATHER_EXT_OPTIM_H
#define LATHER_EXT_OPTIM_H

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim_stats.h"
#include "lather/ext/update_size.h"

enum { LT_MAX_STATE = 8 };

/** One parameter and its optimizer state. */
typedef struct lt_slot {
    lt_param *param; /**< the parameter; borrowed */
    lt_tensor *grad; /**< unscaled and clipped gradient, in lt_optim_for_each_slot() */
    lt_tensor *state[LT_MAX_STATE]; /**< owned; made before the first step; saved in this order */
    struct lt_quantized *quantized[LT_MAX_STATE]; /**< source of state in a step, or NULL */
    double lr_scale;                              /**< factor of the step's lr */
    double weight_decay;                          /**< weight decay of this parameter */
    int64_t updates;                              /**< updates of this parameter so far; saved */
    uint64_t version; /**< version of its value after the last update; 0: none yet */
    int owner;        /**< rank that updates it for all; 0 unless sharded */
    bool not_owned;   /**< another rank is the owner: no state here */
} lt_slot;

typedef struct lt_optim_ops {
    const char *name;
    size_t bytes; /**< size of the optimizer's struct */
    /** names of states, shaped like the parameter unless state_shape says otherwise: "m", "v" */
    const char *slot_state[LT_MAX_STATE];
    /** Updates all slots at once; lr and the step counters are in scalars, on the device. Slots whose
     *  parameter has no gradient are left alone. */
    lt_status (*step)(lt_optim *self, const lt_scalars *scalars);
    /** Returns true if the next update queues the same work as those after it, so that its graph can be
     *  replayed: the host decides nothing. NULL: never. */
    bool (*is_capturable)(const lt_optim *self);
    const struct lt_host_phase_ops *host_phase; /**< optional: steps with a phase on the host */
    /** Optional: shows all state beyond slot_state, in a fixed order. */
    lt_status (*visit)(lt_optim *self, lt_state_visitor *visitor);
    /** visit shows only numbers, equal on all ranks: state may be sharded, but not gradients or parameters */
    bool visits_numbers;
    /** Optional: returns true if a slot has slot_state[index], which never changes; NULL: each slot has all. */
    bool (*has_state)(const lt_optim *self, const lt_slot *slot, int index);
    /** Optional, not with elementwise: sets the shape of a slot's slot_state[index], always the same, and returns
     *  true; false: it is the parameter's. A factor is [n,n]; it starts at zero. */
    bool (*state_shape)(const lt_optim *self, const lt_slot *slot, int index, lt_shape *shape);
    /** Optional: returns modelled nanoseconds of a slot's update, beyond reading and writing its tensors. */
    double (*nanoseconds)(const lt_optim *self, const lt_slot *slot);
    size_t (*state_bytes)(const lt_optim *self); /**< optional: bytes of state beyond slot_state */
    /** step writes values only by the backend's sgd, adagrad, adam, vec, vec_lists, and all of a due value. */
    bool by_entries;
    /** The update of an element depends only on its own value, gradient and state, so it is correct on a
     *  shard of a parameter too. */
    bool elementwise;
    /** step reads gradients only by the backend's sgd, adagrad and adam and as operand a of vec: they may be
     *  in 16 bits. */
    bool reads_rounded;
    /** An update equals that without weight decay minus lr * lr_scale * weight_decay * value. */
    bool decay_is_apart;
    void (*destroy)(lt_optim *self); /**< optional: frees what the struct points to, not it */
    /** For lt_optim_set_state_dtype(): a step may call step() several times, each for other slots. */
    bool by_slots;
    unsigned positive_state;             /**< bit k: slot_state[k] is never negative */
    const char *stat_name[LT_MAX_STATS]; /**< optional, as three more: ext/optim_stats.h */
    lt_stats_fn *stats;
    lt_stat_block_fn *stat_block;
    lt_stat_factor_fn *stat_factor;
    lt_describe_fn *describe; /**< optional, for optimizers with several rules: ext/optim_stats.h */
    double (*decay_lr)(const lt_optim *self, const lt_slot *slot); /**< private: step/cautious.h */
    const struct lt_part_ops *parts; /**< private: parts of slots with their own owners */
    lt_update_size_fn *update_size;  /**< optional: without it --mup is rejected */
} lt_optim_ops;

/** Step with a host phase, for devices where the parts before and after it are captured: these queue the same
 *  work in each step that has one. */
typedef struct lt_host_phase_ops {
    /** returns true if the next update has a host phase */
    bool (*has_host_phase)(const lt_optim *self);
    lt_status (*first)(lt_optim *self);
    /** May synchronize with the device; not called if the step is skipped. */
    lt_status (*host)(lt_optim *self);
    lt_status (*second)(lt_optim *self);
} lt_host_phase_ops;

/** First member of every optimizer's struct. */
struct lt_optim {
    const lt_optim_ops *ops;
    lt_device *device;
    int64_t attempt; /**< number of the step, 1 during the first */
    lt_slot *slot;   /**< one per trained parameter, in the list's order */
    size_t count;
    lt_optim_item *item;    /**< workspace of count items for the backend's list kernels */
    lt_scalars *scalars;    /**< device memory, which on host devices the host can read */
    lt_tensor *missed;      /**< lt_optim_missed_steps() of each slot, then a 1; or NULL */
    struct lt_shard *shard; /**< sharding of the state; NULL: not sharded */
    struct lt_part_norms *part_norms; /**< norms of parts; NULL: the norm is one sum over all */
    struct lt_averaging *averaging;   /**< weight averaging; NULL: none */
    struct lt_cautious *cautious;     /**< cautious updates; NULL: as they are */
    lt_loss_scaling scaling;          /**< loss scaling; interval 0: none */
    lt_tensor *loss_scale;            /**< copy of scalars->loss_scale; NULL: 1 */
    const lt_tensor *gradient_scale, *one; /**< lt_optim_scale_gradients()'s; NULL: loss_scale */
    struct lt_sent *sent; /**< ring of page-locked blocks to copy to scalars, or NULL */
    int64_t sends;
    struct lt_results *results; /**< results in flight; NULL: none yet */
    /** last update: skipped by the host; counted as applied; sharded gradients outlive it */
    bool skipped, advanced, keeps_grads;
    lt_state_dtype state_dtype; /**< format of moments between steps: lt_optim_set_state_dtype() */
};

/** Makes a zeroed struct of ops->bytes with a slot per trained parameter. weight_decay and scope fill the
 *  slots.
 *  Errors: LT_E_NOMEM, LT_E_ARG (parameters on several devices, or no parameter). */
LT_API LT_MUST_CHECK lt_status lt_optim_new(lt_optim **out, const lt_optim_ops *ops,
                                            const lt_params *params, double weight_decay,
                                            lt_decay_scope scope);

typedef lt_status lt_slot_fn(lt_optim *self, lt_slot *slot, const lt_scalars *scalars);
/** For simple optimizers: calls fn for each slot that is due; fn reads slot->grad. */
LT_API LT_MUST_CHECK lt_status lt_optim_for_each_slot(lt_optim *self, lt_slot_fn *fn,
                                                      const lt_scalars *s);

/** Counts steps per parameter, as PyTorch's Adam: lt_optim_collect_items() then sets missed. Call after
 *  lt_optim_new(), before the first step. */
LT_API LT_MUST_CHECK lt_status lt_optim_count_per_param(lt_optim *self);
/** Returns the device address of the applied steps in which the slot had no gradient, for lt_optim_item and
 *  lt_vec_factor, or NULL without lt_optim_count_per_param(). */
LT_API const double *lt_optim_missed_steps(const lt_optim *self, const lt_slot *slot);

/** Returns true: an is_capturable entry for optimizers of which every update is. */
LT_API bool lt_optim_always_capturable(const lt_optim *self);
/** Allows gradients of filters to be kept in the 16 bits that the device's convolutions round them to. For
 *  callers that read them nowhere but in the update, which is then bitwise unchanged. Initially off. Without
 *  effect if the optimizer or the device does not support it. Call before the first step. */
LT_API void lt_optim_allow_rounded_grads(lt_optim *self, bool on);
/** Expects gradients that are *scale times too large from now on, instead of the loss scale. scale, one: f64
 *  [] on the device, borrowed; one is 1. NULL, NULL: the loss scale again. */
LT_API void lt_optim_scale_gradients(lt_optim *self, const lt_tensor *scale, const lt_tensor *one);
/** Returns true if this rank updates the slot now: it has a gradient, and this rank owns it. */
static inline bool lt_slot_is_due(const lt_slot *slot)
{
    return slot->param->has_grad && !slot->not_owned;
}
/** Fills self->item with the slots that are due, states in slot order; returns their number. */
LT_API size_t lt_optim_collect_items(lt_optim *self);
LT_API const lt_backend *lt_optim_backend(const lt_optim *self, void **ctx);
/** Returns LT_E_UNSUPPORTED, naming optimizer, backend and kernel, unless has is true. */
LT_API LT_MUST_CHECK lt_status lt_optim_require_kernel(const lt_optim *self, bool has,
                                                       const char *entry);

#endif
