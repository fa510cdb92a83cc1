/** For writing an optimizer. Start from src/optim/methods/sgd.c. */
#ifndef LATHER_EXT_OPTIM_H
#define LATHER_EXT_OPTIM_H

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"
#include "lather/optim.h"

enum { LT_MAX_STATE = 8 };

/** One parameter and its optimizer state. */
typedef struct lt_slot {
    lt_param *param;                /**< borrowed */
    lt_tensor *grad;                /**< in lt_optim_each(): the gradient, unscaled and clipped */
    lt_tensor *state[LT_MAX_STATE]; /**< owned; made before the first step; saved in this order */
    struct lt_quantized
        *quantized[LT_MAX_STATE]; /**< what state is opened from in a step, or NULL */
    double lr_scale;              /**< times the step's lr */
    double weight_decay;          /**< of this parameter */
    int64_t updates;              /**< of this parameter so far; saved */
    uint64_t version;             /**< of its value after the last update; 0: none yet */
    int owner;                    /**< rank that updates it for all; 0 unless divided */
    bool not_owned;               /**< owner is another rank: no state here */
} lt_slot;

typedef struct lt_optim_ops {
    const char *name;
    size_t bytes;                         /**< of the optimizer's struct */
    const char *slot_state[LT_MAX_STATE]; /**< state shaped like the parameter: "m", "v" */
    /** One update of all slots at once; lr and the step counters are in scalars, on the device.
     *  Slots whose parameter has no gradient are left alone. */
    lt_status (*step)(lt_optim *self, const lt_scalars *scalars);
    /** Whether the next update queues the same work as those after it, so that a graph of it may be
     *  replayed: the host decides nothing. NULL: never. */
    bool (*is_capturable)(const lt_optim *self);
    const struct lt_host_phase_ops *host_phase; /**< optional */
    /** Optional, beyond slot_state: shows every state tensor, in a fixed order. */
    lt_status (*visit)(lt_optim *self, lt_state_visitor *visitor);
    /** Optional: whether a slot has slot_state[index]; NULL: each slot has all. Never changes. */
    bool (*has_state)(const lt_optim *self, const lt_slot *slot, int index);
    /** Optional: modelled nanoseconds of a slot's update, beyond reading and writing what it has. */
    double (*nanoseconds)(const lt_optim *self, const lt_slot *slot);
    /** Optional: bytes of state beyond slot_state. */
    size_t (*state_bytes)(const lt_optim *self);
    /** step writes values by the backend's sgd, adagrad, adam, vec and vec_lists alone, and all of a
     *  value that is due. */
    bool by_entries;
    /** An element's update is of its own value, gradient and state alone: right on a box of a parameter too. */
    bool elementwise;
    /** step reads gradients by the backend's sgd, adagrad and adam and as operand a of vec alone: they may be in 16 bits. */
    bool reads_rounded;
    /** An update is that without weight decay, less lr * lr_scale * weight_decay * value. */
    bool decay_is_apart;
    void (*destroy)(lt_optim *self); /**< optional: what the struct points to, not the struct */
    /** For lt_optim_set_state_dtype(): a step may be several calls of step(), in each of which other slots
     *  have a gradient; and bit k: slot_state[k] is never negative. */
    bool by_slots;
    unsigned positive_state;
    /** The library's own: parts of slots with owners of their own. */
    const struct lt_part_ops *parts;
} lt_optim_ops;

/** step with a host phase in the middle, for devices where it is captured: the phases before and after it
 *  queue the same work in each step that has one. */
typedef struct lt_host_phase_ops {
    bool (*has_host_phase)(const lt_optim *self); /**< whether the next update is such a step */
    lt_status (*first)(lt_optim *self);
    /** May synchronize with the device; not called if the step is skipped. */
    lt_status (*host)(lt_optim *self);
    lt_status (*second)(lt_optim *self);
} lt_host_phase_ops;

/** First member of every optimizer's struct. */
struct lt_optim {
    const lt_optim_ops *ops;
    lt_device *device;
    int64_t attempt; /**< 1 during the first step */
    lt_slot *slot;   /**< one per trained parameter, in the list's order */
    size_t count;
    lt_optim_item *item;              /**< scratch of count items for the backend's list entries */
    lt_scalars *scalars;              /**< on the device; host devices: in memory */
    lt_tensor *missed;                /**< lt_optim_missed() of each slot, and a 1; or NULL */
    struct lt_shard *shard;           /**< NULL: not divided over ranks */
    struct lt_part_norms *part_norms; /**< NULL: the gradient norm is one sum over all */
    struct lt_averaging *averaging;   /**< NULL: values are the iterates themselves */
    lt_loss_scaling scaling;          /**< interval 0: none */
    lt_tensor *loss_scale;            /**< a copy of scalars->loss_scale; NULL: 1 */
    const lt_tensor *gradient_scale, *one; /**< lt_optim_scale_gradients(); NULL: loss_scale */
    struct lt_sent *sent; /**< page-locked blocks that were copied to scalars; NULL: none */
    int64_t sends;
    struct lt_results *results; /**< in flight; NULL: none yet */
    bool skipped, advanced;     /**< the last update: skipped by the host, counted as applied */
    lt_state_dtype state_dtype; /**< of moments between steps: lt_optim_set_state_dtype() */
};

/** A zeroed struct of ops->bytes with a slot per trained parameter. weight_decay and scope fill
 *  the slots. Errors: LT_E_NOMEM, LT_E_ARG (parameters on several devices, or none). */
LT_API LT_MUST_CHECK lt_status lt_optim_new(lt_optim **out, const lt_optim_ops *ops,
                                            const lt_params *params, double weight_decay,
                                            lt_decay_scope scope);

typedef lt_status lt_slot_fn(lt_optim *self, lt_slot *slot, const lt_scalars *scalars);
/** For simple optimizers: calls fn for each slot that is due; fn reads slot->grad. */
LT_API LT_MUST_CHECK lt_status lt_optim_each(lt_optim *self, lt_slot_fn *fn, const lt_scalars *s);

/** Counts steps per parameter, as PyTorch's Adam does: what lt_optim_items() fills then has missed. After
 *  lt_optim_new(), before the first step. */
LT_API LT_MUST_CHECK lt_status lt_optim_count_per_param(lt_optim *self);
/** For lt_optim_item and lt_vec_factor: the applied steps in which the slot had no gradient, on the device; NULL without
 *  lt_optim_count_per_param(). */
LT_API const double *lt_optim_missed(const lt_optim *self, const lt_slot *slot);

/** For is_capturable: the host decides nothing. */
LT_API bool lt_optim_always_capturable(const lt_optim *self);
/** Whether gradients of filters may stay in the 16 bits that the device's convolutions round them to: for one who
 *  reads them nowhere but in the update, which then is the same, bit for bit. Starts as false. Without effect
 *  where the optimizer or the device does not read such. Before the first step. */
LT_API void lt_optim_read_rounded(lt_optim *self, bool on);
/** From now on gradients are *scale times too large, which replaces the loss scale. Both f64 [] on the device, borrowed; one
 *  is 1. NULL, NULL: by the loss scale again. */
LT_API void lt_optim_scale_gradients(lt_optim *self, const lt_tensor *scale, const lt_tensor *one);
/** Whether this rank updates the slot now: it has a gradient, and this rank owns it. */
static inline bool lt_slot_is_due(const lt_slot *slot)
{
    return slot->param->has_grad && !slot->not_owned;
}
/** Fills self->item with the slots that are due, states in slot order; returns how many. */
LT_API size_t lt_optim_items(lt_optim *self);
LT_API const lt_backend *lt_optim_backend(const lt_optim *self, void **ctx);
/** LT_E_UNSUPPORTED, naming optimizer, backend and entry, unless the backend has the entry. */
LT_API LT_MUST_CHECK lt_status lt_optim_need(const lt_optim *self, bool has, const char *entry);

#endif
