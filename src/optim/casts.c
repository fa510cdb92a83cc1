/* Cached 16-bit casts of weights. The kernels that update a weight also write its cast, so that a captured pass
 * contains no casts. Other writes to weights (loading, averages) raise their version, which is checked before the
 * next step. */

#include "optim/slots.h"
#include "tensor/tensor.h"

/* Returns the backend's cast operations, or NULL for sharded state: other ranks' values arrive after the step. */
static const lt_weight_ops *cast_ops(const lt_optim *o)
{
    return o->ops->by_entries && !o->shard ? o->device->backend->weights : NULL;
}

void lt_optim_fuse_cast_updates(const lt_optim *o, bool on)
{
    const lt_weight_ops *ops = cast_ops(o);
    for (size_t i = 0; ops && i < o->count; i++) {
        const lt_slot *slot = &o->slot[i];
        if (on && !lt_slot_is_due(slot))
            continue;
        const lt_view value = lt_tensor_view(slot->param->value);
        ops->follow(o->device->ctx, &value, on);
    }
}

lt_status lt_optim_refresh_casts(lt_optim *o)
{
    const lt_weight_ops *ops = cast_ops(o);
    for (size_t i = 0; ops && i < o->count; i++) {
        lt_slot *slot = &o->slot[i];
        const lt_view value = lt_tensor_view(slot->param->value);
        if (!slot->version || value.version == slot->version)
            continue;
        slot->version = value.version;
        LT_TRY(ops->renew(o->device->ctx, &value));
    }
    return LT_OK;
}
