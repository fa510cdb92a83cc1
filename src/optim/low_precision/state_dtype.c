/* Moments in fewer bytes (--state-dtype): quantized_state.h. A step dequantizes the state of a few parameters at a
 * time; for each call the other parameters are marked as without gradient. */

#include "base/alloc.h"
#include "optim/slots.h"
#include "quantized_state.h"
#include "tensor/tensor.h"

#include <stdio.h>

/* Most elements of the parameters whose state is dequantized together (a single one may exceed it): 4 MiB per
 * state. */
static const int64_t batch_elements = (int64_t)1 << 20;

static const char *const names[] = {"f32", "bf16", "int8", "int4"};

static lt_quantized_format format_of(const lt_optim *o, int state)
{
    const bool positive = o->ops->positive_state >> state & 1;
    return (lt_quantized_format){positive ? LT_QUANTIZED_NONNEGATIVE : LT_QUANTIZED_MOMENT,
                                 o->state_dtype};
}

lt_status lt_optim_set_state_dtype(lt_optim *o, lt_state_dtype dtype)
{
    char what[96];
    snprintf(what, sizeof what, "--state-dtype %s of %s", names[dtype], o->ops->name);
    if (dtype == LT_STATE_F32 && o->state_dtype == LT_STATE_F32)
        return LT_OK;
    if (dtype == LT_STATE_INT4)
        return lt_fail(LT_E_ARG, "%s: moments can be f32, bf16 or int8", what);
    if (o->attempt > 0)
        return lt_fail(LT_E_ARG, "%s: must be set before the first step", what);
    if (!o->ops->by_slots || o->ops->state_shape)
        return lt_fail(LT_E_UNSUPPORTED, "%s: this optimizer supports f32 only", what);
    LT_TRY(lt_quantized_check_device(o->device, what));
    o->state_dtype = dtype;
    return LT_OK;
}

int64_t lt_optim_slot_state_bytes(const lt_optim *o, const lt_slot *slot)
{
    const lt_tensor *value = slot->param->value;
    const int64_t size = (int64_t)lt_dtype_size(lt_tensor_dtype(value));
    int64_t bytes = 0;
    for (int k = 0; k < LT_MAX_STATE; k++) {
        lt_shape shape = lt_tensor_shape(value);
        if (!lt_optim_slot_has_state(o, slot, k))
            continue;
        if (o->ops->state_shape)
            (void)o->ops->state_shape(o, slot, k, &shape);
        bytes += o->state_dtype == LT_STATE_F32
                     ? size * lt_shape_count(shape)
                     : lt_quantized_bytes(format_of(o, k), lt_shape_count(shape));
    }
    return bytes;
}

lt_status lt_optim_make_quantized_state(const lt_optim *o, lt_slot *slot)
{
    const lt_tensor *like = lt_tensor_storage(slot->param->value);
    for (int k = 0; k < LT_MAX_STATE && !slot->not_owned; k++)
        if (!slot->quantized[k] && lt_optim_slot_has_state(o, slot, k))
            LT_TRY(lt_quantized_new(
                &slot->quantized[k], o->device, format_of(o, k), like->shape, like->stride,
                lt_quantized_random_key(slot->param->name, o->ops->slot_state[k], -1)));
    return LT_OK;
}

static lt_status dequantize_slot(lt_slot *slot)
{
    for (int k = 0; k < LT_MAX_STATE; k++)
        if (slot->quantized[k])
            LT_TRY(lt_quantized_dequantize(slot->quantized[k], &slot->state[k]));
    return LT_OK;
}

/* Requantizes the slot's state; attempt 0 discards the dequantized copy. */
static void requantize_slot(lt_slot *slot, int64_t attempt)
{
    for (int k = 0; k < LT_MAX_STATE; k++) {
        if (!slot->quantized[k])
            continue;
        if (attempt && slot->state[k])
            lt_quantized_requantize(slot->quantized[k], slot->state[k], attempt);
        lt_tensor_free(&slot->state[k]);
    }
}

/* Steps the due parameters of slots [begin, end); the others have no gradient during the call. */
static lt_status step_slot_range(lt_optim *o, const bool *due, size_t begin, size_t end)
{
    lt_status st = LT_OK;
    for (size_t i = 0; i < o->count; i++)
        o->slot[i].param->has_grad = due[i] && i >= begin && i < end;
    for (size_t i = begin; i < end && !st; i++)
        st = due[i] ? dequantize_slot(&o->slot[i]) : LT_OK;
    if (!st)
        st = o->ops->step(o, o->scalars);
    for (size_t i = begin; i < end; i++)
        requantize_slot(&o->slot[i], st ? 0 : o->attempt);
    return st;
}

static size_t end_of_slot_batch(const lt_optim *o, size_t begin)
{
    int64_t elements = 0;
    size_t end = begin;
    for (; end < o->count; end++) {
        elements += lt_tensor_count(o->slot[end].param->value);
        if (elements > batch_elements && end > begin)
            break;
    }
    return end;
}

lt_status lt_optim_step_slots(lt_optim *o)
{
    if (o->state_dtype == LT_STATE_F32 || !o->ops->slot_state[0])
        return o->ops->step(o, o->scalars);
    bool *due = lt_alloc(2 * o->count, sizeof *due), *had = due ? due + o->count : NULL;
    lt_status st = due ? LT_OK : LT_E_NOMEM;
    for (size_t i = 0; i < o->count && !st; i++) {
        had[i] = o->slot[i].param->has_grad;
        due[i] = lt_slot_is_due(&o->slot[i]);
    }
    for (size_t begin = 0, end; begin < o->count && !st; begin = end) {
        end = end_of_slot_batch(o, begin);
        st = step_slot_range(o, due, begin, end);
    }
    for (size_t i = 0; i < o->count && had; i++)
        o->slot[i].param->has_grad = had[i];
    lt_free(due);
    return st;
}
