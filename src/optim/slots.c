/* Slots, an optimizer's records per parameter: items for kernels, and numbers for checkpoints. */

#include "optim/slots.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include <string.h>

const lt_backend *lt_optim_backend(const lt_optim *self, void **ctx)
{
    *ctx = self->device->ctx;
    return self->device->backend;
}

lt_status lt_optim_require_kernel(const lt_optim *self, bool has, const char *entry)
{
    if (has)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED, "%s: backend %s has no kernel for %s", self->ops->name,
                   self->device->backend->name, entry);
}

lt_status lt_optim_run_vec_jobs(const lt_optim *o, const lt_vec_job *job, size_t count)
{
    return count ? o->device->backend->vec(o->device->ctx, job, count, o->scalars) : LT_OK;
}

lt_status lt_optim_read_device_scalar(const lt_optim *o, const lt_view *at, double *value)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    float narrow = 0;
    const bool wide = at->dtype == LT_F64;
    LT_TRY(be->copy(ctx, wide ? (void *)value : &narrow, at->data, lt_dtype_size(at->dtype),
                    LT_COPY_OUT));
    LT_TRY(be->sync(ctx));
    *value = wide ? *value : (double)narrow;
    return LT_OK;
}

const char *lt_optim_name(const lt_optim *optim)
{
    return optim->ops->name;
}

bool lt_optim_slot_has_state(const lt_optim *o, const lt_slot *slot, int index)
{
    const lt_optim_ops *ops = o->ops;
    return index < LT_MAX_STATE && ops->slot_state[index]
           && (!ops->has_state || ops->has_state(o, slot, index));
}

lt_update_size lt_optim_normalized_size(const lt_optim *self, const lt_slot *slot)
{
    (void)slot;
    return (lt_update_size){.power = 0.5,
                            .scale = 1,
                            .block = 1,
                            .decay = self->ops->decay_is_apart ? LT_DECAY_DECOUPLED : LT_DECAY_L2};
}

const double *lt_optim_missed_steps(const lt_optim *o, const lt_slot *slot)
{
    return o->missed ? (const double *)lt_tensor_view(o->missed).data + (slot - o->slot) : NULL;
}

size_t lt_optim_fill_items(lt_optim *self, bool all)
{
    size_t count = 0;
    for (size_t i = 0; i < self->count; i++) {
        lt_slot *slot = &self->slot[i];
        if (!slot->param->has_grad || (slot->not_owned && !all))
            continue;
        lt_optim_item *item = &self->item[count++];
        *item = (lt_optim_item){
            .value = lt_tensor_view(slot->param->value),
            .grad = lt_tensor_view(slot->param->grad),
            .lr_scale = slot->lr_scale,
            .weight_decay = slot->weight_decay,
            .missed = lt_optim_missed_steps(self, slot),
        };
        for (int k = 0; k < LT_MAX_ITEM_STATE && slot->state[k]; k++)
            item->state[k] = lt_tensor_view(slot->state[k]);
    }
    return count;
}

size_t lt_optim_collect_items(lt_optim *self)
{
    return lt_optim_fill_items(self, false);
}

/* Passes a counter to the visitor under a name such as "updates.conv1.weight". */
lt_status lt_optim_visit_counter(const lt_state_visitor *visitor, const char *name,
                                 const char *param, int64_t *value)
{
    char *full = lt_format("%s.%s", name, param);
    if (!full)
        return LT_E_NOMEM;
    lt_status st = visitor->number(visitor->context, full, value);
    lt_free(full);
    return st;
}

lt_status lt_optim_visit_double(const lt_state_visitor *visitor, const char *name,
                                const char *param, double *value)
{
    int64_t bits;
    memcpy(&bits, value, sizeof bits);
    LT_TRY(param ? lt_optim_visit_counter(visitor, name, param, &bits)
                 : visitor->number(visitor->context, name, &bits));
    memcpy(value, &bits, sizeof bits);
    return LT_OK;
}

void lt_optim_counter_range(const char *name, int64_t attempt, int64_t *low, int64_t *high)
{
    /* Pending roots are swapped in one interval after the step in which they were due, which is not before the end
     * of the first interval. */
    const int64_t swap = 2 * attempt;
    const struct {
        const char *prefix;
        int64_t low, high;
    } known[] = {
        {"attempt", attempt, attempt}, {"applied", 0, attempt}, {"updates.", 0, attempt},
        {"failures.", 0, attempt},     {"rooted.", 0, attempt}, {"swap.", 0, swap},
        {"pending.", LT_OK, LT_END},
    };
    *low = INT64_MIN; /* counters of optimizers outside the library have no known range */
    *high = INT64_MAX;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(name, known[i].prefix, strlen(known[i].prefix))) {
            *low = known[i].low;
            *high = known[i].high;
            return;
        }
}

void lt_optim_add_to_update_counts(lt_optim *o, int64_t by)
{
    for (size_t i = 0; i < o->count; i++)
        if (o->slot[i].param->has_grad)
            o->slot[i].updates += by;
}

bool lt_optim_has_first_update(const lt_optim *o)
{
    for (size_t i = 0; i < o->count; i++)
        if (lt_slot_is_due(&o->slot[i]) && !o->slot[i].updates)
            return true;
    return false;
}
