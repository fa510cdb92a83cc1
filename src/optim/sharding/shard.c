/* Parts of an optimizer's state, sharded or not, and their owners. */

#include "shard.h"

#include "base/alloc.h"
#include "optim/slots.h"

/* Modelled nanoseconds per byte of an elementwise update: shampoo/assign.c. */
static const double per_byte = 0.029;

/* --- Parts --- */

size_t lt_shard_part_count(const lt_optim *o)
{
    return o->ops->parts ? o->ops->parts->count(o) : o->count;
}

static int count_states(const lt_optim *o, const lt_slot *slot)
{
    int count = 0;
    for (int k = 0; k < LT_MAX_STATE; k++)
        count += lt_optim_slot_has_state(o, slot, k);
    return count;
}

void lt_shard_fill_part(lt_optim *o, size_t i, lt_part *part)
{
    if (o->ops->parts) {
        o->ops->parts->describe(o, i, part);
        return;
    }
    const lt_slot *slot = &o->slot[i];
    const lt_tensor *value = slot->param->value;
    const int64_t bytes = (int64_t)lt_tensor_bytes(value);
    const int states = count_states(o, slot);
    part->slot = &o->slot[i];
    part->elements = lt_tensor_count(value);
    part->dims = lt_tensor_shape(value);
    part->state_bytes = lt_optim_slot_state_bytes(o, slot);
    /* read the gradient; read and write the parameter and each state */
    part->nanoseconds = per_byte * (double)(bytes * (3 + 2 * states));
    if (o->ops->nanoseconds)
        part->nanoseconds += o->ops->nanoseconds(o, slot);
}

lt_view lt_shard_part_view(lt_optim *o, size_t i, const lt_tensor *parameter)
{
    return o->ops->parts ? o->ops->parts->of(o, i, parameter) : lt_tensor_view(parameter);
}

void lt_shard_part_region(lt_optim *o, size_t i, lt_shape *offset, lt_shape *extent)
{
    if (o->ops->parts) {
        o->ops->parts->region(o, i, offset, extent);
        return;
    }
    *extent = lt_tensor_shape(o->slot[i].param->value);
    *offset = (lt_shape){.ndim = extent->ndim};
}

lt_view lt_shard_part_grad(lt_optim *o, size_t i)
{
    const lt_part *p = &o->shard->part[i];
    return p->grad.data ? p->grad : lt_shard_part_view(o, i, p->slot->param->grad);
}

lt_view lt_shard_flat_view(lt_optim *o, size_t i, const lt_tensor *flat, int64_t at)
{
    const lt_view like = lt_tensor_view(o->shard->part[i].slot->param->value);
    lt_view v = lt_tensor_view(flat);
    lt_shape offset;
    bool done[LT_MAX_DIMS] = {false};
    int64_t stride = 1;
    v.data = (char *)v.data + (size_t)at * lt_dtype_size(v.dtype);
    lt_shard_part_region(o, i, &offset, &v.shape);
    v.version = 0;
    for (int k = 0; k < v.shape.ndim; k++) {
        int next = -1;
        for (int d = v.shape.ndim - 1; d >= 0; d--)
            if (!done[d] && (next < 0 || like.stride[d] < like.stride[next]))
                next = d;
        LT_ASSERT(next >= 0); /* each round adds one dimension */
        done[next] = true;
        v.stride[next] = stride;
        stride *= v.shape.dim[next];
    }
    return v;
}

/* --- Sharded state --- */

lt_status lt_optim_check_takes_shards(const lt_optim *o)
{
    return o->ops->visits_numbers || o->cautious
               ? lt_fail(LT_E_UNSUPPORTED,
                         "%s: %s whole parameters and gradients on each rank: not with "
                         "--shard-gradients, --shard-params, --tensor-parallel",
                         o->ops->name, o->cautious ? "cautious updates need" : "needs")
               : LT_OK;
}

void lt_shard_free(lt_optim *optim)
{
    lt_shard *s = optim->shard;
    if (!s)
        return;
    if (s->ops->free)
        s->ops->free(s);
    lt_shard_params_free(&s->values);
    if (s->owns_group)
        lt_comm_close(&s->group);
    lt_free(s->begin);
    lt_free(s->elements);
    lt_free(s->part);
    lt_free(s);
    optim->shard = NULL;
}

lt_status lt_optim_shard_load(const lt_optim *optim, int rank, lt_shard_load *out)
{
    const lt_shard *s = optim->shard;
    if (!s)
        return lt_fail(LT_E_ARG, "%s: state is not sharded: call lt_optim_shard() first",
                       optim->ops->name);
    if (rank < 0 || rank >= s->ranks)
        return lt_fail(LT_E_ARG, "%s: rank %d is not in a group of %d ranks", optim->ops->name,
                       rank, s->ranks);
    const lt_dtype dtype =
        s->config.dtype != LT_F32 ? s->config.dtype : lt_device_master_dtype(optim->device);
    *out = (lt_shard_load){.gather_bytes = s->elements[rank] * (int64_t)lt_dtype_size(dtype)};
    for (size_t i = 0; i < s->count; i++) {
        if (s->part[i].owner != rank)
            continue;
        out->parts++;
        out->cost += s->part[i].nanoseconds;
        out->state_bytes += s->part[i].state_bytes;
    }
    return LT_OK;
}
