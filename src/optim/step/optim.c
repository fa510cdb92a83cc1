/* Common to all optimizers: construction, parameter groups, and state for checkpoints. */

#include "base/alloc.h"
#include "cautious.h"
#include "optim/averaging/averaging.h"
#include "optim/low_precision/quantized_state.h"
#include "optim/sharding/part_norms.h"
#include "optim/sharding/shard.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

/* Counts trained parameters and sets the device of the first, or NULL if absent. */
static size_t count_trained(const lt_params *params, lt_device **device)
{
    size_t count = 0;
    *device = NULL;
    for (size_t i = 0; i < params->count; i++)
        if (lt_param_is_trained(params->item[i]) && !count++)
            *device = lt_tensor_device(params->item[i]->value);
    return count;
}

static bool has_weight_decay(const lt_param *param, lt_decay_scope scope)
{
    return scope == LT_DECAY_ALL || param->role == LT_PARAM_WEIGHT;
}

static lt_status make_slot_state(const lt_optim *o, lt_slot *slot, int index)
{
    const lt_tensor *value = slot->param->value;
    lt_shape shape;
    if (o->ops->state_shape && o->ops->state_shape(o, slot, index, &shape))
        return lt_tensor_new(&slot->state[index], o->device, lt_tensor_dtype(value), shape);
    return lt_tensor_new_like(&slot->state[index], value, lt_tensor_dtype(value));
}

lt_status lt_optim_make_state(const lt_optim *o)
{
    for (size_t i = 0; i < o->count; i++) {
        lt_slot *slot = &o->slot[i];
        if (o->state_dtype != LT_STATE_F32) {
            LT_TRY(lt_optim_make_quantized_state(o, slot));
            continue;
        }
        for (int k = 0; k < LT_MAX_STATE && !slot->not_owned; k++)
            if (!slot->state[k] && lt_optim_slot_has_state(o, slot, k))
                LT_TRY(make_slot_state(o, slot, k));
    }
    return LT_OK;
}

static lt_status fill_slots(lt_optim *o, const lt_params *params, double weight_decay,
                            lt_decay_scope scope)
{
    for (size_t i = 0; i < params->count; i++) {
        lt_param *p = params->item[i];
        if (!lt_param_is_trained(p))
            continue;
        if (lt_tensor_device(p->value) != o->device)
            return lt_fail(LT_E_ARG, "optim: %s is on another device than the first parameter",
                           p->name);
        lt_slot *slot = &o->slot[o->count++];
        slot->param = p;
        slot->lr_scale = 1;
        slot->weight_decay = has_weight_decay(p, scope) ? weight_decay : 0;
    }
    return LT_OK;
}

lt_status lt_optim_new(lt_optim **out, const lt_optim_ops *ops, const lt_params *params,
                       double weight_decay, lt_decay_scope scope)
{
    lt_device *device;
    size_t count = count_trained(params, &device);
    if (!device)
        return lt_fail(LT_E_ARG, "%s: no parameter to train", ops->name);
    if (ops->elementwise && ops->state_shape)
        return lt_fail(LT_E_ARG, "%s: ops.elementwise excludes ops.state_shape", ops->name);
    if (!(weight_decay >= 0 && isfinite(weight_decay)))
        return lt_fail(LT_E_ARG, "%s: weight_decay %g is not a number >= 0", ops->name,
                       weight_decay);
    lt_optim *o = lt_alloc(1, ops->bytes);
    if (!o)
        return LT_E_NOMEM;
    o->ops = ops;
    o->device = device;
    o->slot = lt_alloc(count, sizeof *o->slot);
    o->item = lt_alloc(count, sizeof *o->item);
    lt_status st = o->slot && o->item ? lt_optim_make_scalars(o) : LT_E_NOMEM;
    if (!st)
        st = fill_slots(o, params, weight_decay, scope);
    if (st) {
        lt_optim_free(&o);
        return st;
    }
    *out = o;
    return LT_OK;
}

void lt_optim_free(lt_optim **optim)
{
    lt_optim *o = *optim;
    if (!o)
        return;
    if (o->ops->destroy)
        o->ops->destroy(o);
    lt_optim_fuse_cast_updates(o, false);
    lt_optim_free_part_norms(o);
    lt_averaging_free(o);
    lt_cautious_free(o);
    lt_shard_free(o);
    lt_optim_free_results(o);
    for (size_t i = 0; i < o->count; i++)
        for (int k = 0; k < LT_MAX_STATE; k++) {
            lt_tensor_free(&o->slot[i].state[k]);
            lt_quantized_free(&o->slot[i].quantized[k]);
        }
    lt_optim_free_scalars(o);
    lt_tensor_free(&o->loss_scale);
    lt_tensor_free(&o->missed);
    lt_free(o->item);
    lt_free(o->slot);
    lt_free(o);
    *optim = NULL;
}

void lt_optim_allow_rounded_grads(lt_optim *self, bool on)
{
    const bool can =
        self->ops->reads_rounded && !self->shard && self->device->backend->rounds_grad_w;
    for (size_t i = 0; i < self->count; i++)
        self->slot[i].param->grad->may_round = on && can;
}

lt_status lt_optim_set_group(lt_optim *optim, const char *param, lt_optim_group group)
{
    if (group.lr_scale < 0 || isinf(group.lr_scale))
        return lt_fail(LT_E_ARG, "%s: lr_scale %g of %s is not a number >= 0", optim->ops->name,
                       group.lr_scale, param);
    if (group.weight_decay < 0 || isinf(group.weight_decay))
        return lt_fail(LT_E_ARG, "%s: weight_decay %g of %s is not a number >= 0", optim->ops->name,
                       group.weight_decay, param);
    for (size_t i = 0; i < optim->count; i++) {
        lt_slot *slot = &optim->slot[i];
        if (strcmp(slot->param->name, param) != 0)
            continue;
        if (!isnan(group.lr_scale))
            slot->lr_scale = group.lr_scale;
        if (!isnan(group.weight_decay))
            slot->weight_decay = group.weight_decay;
        return LT_OK;
    }
    return lt_fail(LT_E_ARG, "%s: no trained parameter '%s'", optim->ops->name, param);
}

size_t lt_optim_state_bytes(const lt_optim *optim)
{
    size_t bytes = lt_averaging_bytes(optim);
    if (optim->ops->state_bytes)
        bytes += optim->ops->state_bytes(optim);
    for (size_t i = 0; i < optim->count; i++)
        if (!optim->slot[i].not_owned)
            bytes += (size_t)lt_optim_slot_state_bytes(optim, &optim->slot[i]);
    return bytes;
}

static lt_status visit_slot(const lt_optim *o, lt_slot *slot, const lt_state_visitor *visitor)
{
    LT_TRY(lt_optim_visit_counter(visitor, "updates", slot->param->name, &slot->updates));
    for (int k = 0; k < LT_MAX_STATE; k++) {
        if (!lt_optim_slot_has_state(o, slot, k))
            continue;
        lt_state_entry entry = lt_state_of(slot->param, o->ops->slot_state[k]);
        if (o->ops->state_shape)
            (void)o->ops->state_shape(o, slot, k, &entry.extent);
        entry.owner = slot->owner;
        entry.sharded_like = lt_optim_updates_shards(o) ? slot->param : NULL;
        entry.tensor = slot->state[k];
        entry.quantized = slot->quantized[k];
        LT_TRY(visitor->entry(visitor->context, &entry));
    }
    return LT_OK;
}

/* Rejects shards: their state would be saved as if it were of whole parameters. */
static lt_status reject_unattached_shards(const lt_optim *o)
{
    char text[LT_SHARD_SPEC_TEXT];
    for (size_t i = 0; i < o->count && !lt_optim_updates_shards(o); i++) {
        const lt_param *param = o->slot[i].param;
        if (param->spec && !lt_shard_spec_is_whole(param->spec))
            return lt_fail(LT_E_UNSUPPORTED,
                           "%s: %s is a shard, %s: to save its state make the optimizer over "
                           "lt_sharded_optim_params(), or use lt_sharded_optim_attach_shards()",
                           o->ops->name, param->name, lt_shard_spec_text(param->spec, text));
    }
    return LT_OK;
}

lt_status lt_optim_visit(lt_optim *optim, lt_state_visitor *visitor)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    lt_scalars s;
    if (lt_optim_has_results_in_flight(optim))
        return lt_fail(LT_E_ARG,
                       "%s: results of steps are in flight: take them by "
                       "lt_optim_result() first",
                       optim->ops->name);
    LT_TRY(reject_unattached_shards(optim));
    LT_TRY(lt_optim_make_state(optim));
    LT_TRY(lt_optim_read_scalars(optim, &s));
    LT_TRY(lt_optim_convert_counts(optim, s.applied, false));
    LT_TRY(visitor->number(visitor->context, "attempt", &optim->attempt));
    LT_TRY(visitor->number(visitor->context, "applied", &s.applied));
    LT_TRY(be->copy(ctx, optim->scalars, &s, sizeof s, LT_COPY_IN));
    LT_TRY(lt_averaging_visit(optim, visitor));
    LT_TRY(lt_cautious_visit(optim, visitor));
    for (size_t i = 0; i < optim->count; i++)
        LT_TRY(visit_slot(optim, &optim->slot[i], visitor));
    LT_TRY(lt_optim_convert_counts(optim, s.applied, true));
    return optim->ops->visit ? optim->ops->visit(optim, visitor) : LT_OK;
}
