/* Attaches an optimizer to sharded parameters: allocates owner buffers and messages, and plans schedules. */

#include "dist/consensus.h"
#include "sharded.h"
#include "tensor/tensor.h"

static lt_status make_flat_tensor(lt_tensor **out, const lt_optim *o, lt_dtype dtype,
                                  int64_t elements)
{
    return elements ? lt_tensor_new(out, o->device, dtype, LT_SHAPE(elements)) : LT_OK;
}

/* Computes the offsets of this rank's parts in flat tensors; returns the elements that they span. */
static int64_t compute_part_offsets(lt_optim *o)
{
    lt_shard *s = o->shard;
    int64_t stride[LT_MAX_DIMS], span = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->part[i].at = span;
        if (s->part[i].owner == s->rank)
            span += lt_sharded_owner_strides(o, i, stride);
    }
    return span;
}

/* Allocates values and gradients of the logical parameters that this rank owns, if parts are whole parameters. */
static lt_status allocate_params(lt_optim *o)
{
    lt_shard *s = o->shard;
    for (size_t i = 0; i < s->count; i++) {
        lt_part *part = &s->part[i];
        const lt_param *param = part->slot->param;
        if (part->owner != s->rank)
            continue;
        LT_TRY(lt_tensor_allocate(param->value));
        LT_TRY(lt_tensor_allocate(param->grad));
        part->value = lt_tensor_view(param->value);
        part->grad = lt_tensor_view(param->grad);
        part->value.version = part->grad.version = 0;
    }
    return LT_OK;
}

static lt_status allocate_owner_buffers(struct lt_sharded_optim *p, lt_optim *o, int64_t span,
                                        bool updates)
{
    lt_shard *s = o->shard;
    const lt_dtype master = lt_device_master_dtype(o->device);
    LT_TRY(make_flat_tensor(&p->value, o, master, span));
    LT_TRY(make_flat_tensor(&p->grad, o, master, span));
    for (size_t i = 0; i < s->count; i++) {
        if (s->part[i].owner != s->rank)
            continue;
        s->part[i].value = lt_sharded_owner_view(o, i, p->value);
        s->part[i].grad = lt_sharded_owner_view(o, i, p->grad);
        if (updates)
            s->part[i].update = lt_sharded_owner_view(o, i, p->update);
    }
    return LT_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static lt_status allocate_messages(struct lt_sharded_optim *p, const lt_optim *o)
{
    const lt_dtype master = lt_device_master_dtype(o->device), dtype = o->shard->config.dtype;
    const lt_message_schedule *pull = &p->pull, *push = &p->push;
    LT_TRY(lt_tensor_new(&p->header, o->device, master, LT_SHAPE(1)));
    LT_TRY(make_flat_tensor(&p->sent, o, master, larger(pull->out.elements, push->out.elements)));
    LT_TRY(make_flat_tensor(&p->received, o, master, larger(pull->in.elements, push->in.elements)));
    if (dtype == LT_F32)
        return LT_OK;
    LT_TRY(make_flat_tensor(&p->sent_narrow, o, dtype, push->out.elements));
    return make_flat_tensor(&p->received_narrow, o, dtype, push->in.elements);
}

static lt_status allocate_buffers(lt_optim *o)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    const lt_shard *s = o->shard;
    const lt_dtype master = lt_device_master_dtype(o->device);
    const bool narrow = s->config.dtype != LT_F32;
    const int64_t span = compute_part_offsets(o);
    if (narrow) {
        LT_TRY(make_flat_tensor(&p->update, o, master, span));
        LT_TRY(make_flat_tensor(&p->narrow, o, s->config.dtype, span));
    }
    if (s->differences)
        LT_TRY(make_flat_tensor(&p->old, o, master, span));
    LT_TRY(o->ops->parts ? allocate_owner_buffers(p, o, span, narrow && !s->config.gather_params)
                         : allocate_params(o));
    LT_TRY(lt_sharded_plan_messages(p, o));
    return allocate_messages(p, o);
}

static const lt_shard_ops sharded_ops = {
    .prefer_local = lt_sharded_prefer_local,
    .allocate = allocate_buffers,
    .pull = lt_sharded_pull_gradients,
    .begin = lt_sharded_save_old_values,
    .pack = lt_sharded_pack,
    .send = lt_sharded_send,
    .flag = lt_sharded_read_flag,
    .unpack = lt_sharded_unpack,
};

static lt_status check_attachable(const struct lt_sharded_optim *p, const lt_optim *o,
                                  const lt_shard_config *c)
{
    bool fits = o->count == p->own.count;
    for (size_t k = 0; fits && k < o->count; k++)
        fits = o->slot[k].param == &p->logical[p->number[k]];
    if (!fits)
        return lt_fail(LT_E_ARG, "%s: must be made over lt_sharded_optim_params()", o->ops->name);
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->vec != NULL, "vec"));
    if (p->optim)
        return lt_fail(LT_E_ARG, "%s: another optimizer is already attached", o->ops->name);
    if (c->shard_params)
        return lt_fail(LT_E_ARG, "%s: lt_sharded_optim does not support shard_params",
                       o->ops->name);
    if (c->comm != p->world || c->group)
        return lt_fail(LT_E_ARG,
                       "%s: state is sharded over all ranks; got another communicator, or groups "
                       "of %d",
                       o->ops->name, c->group);
    return LT_OK;
}

lt_status lt_sharded_optim_attach(lt_sharded_optim *sharded, lt_optim *optim,
                                  const lt_shard_config *config)
{
    LT_TRY(lt_comm_agree_on_status(sharded->world, check_attachable(sharded, optim, config)));
    LT_TRY(lt_shard_attach(optim, config, &sharded_ops, sharded));
    sharded->optim = optim;
    return lt_comm_agree_on_status(sharded->world, lt_optim_shard_gradients(optim, NULL));
}

/* Returns the elements that a schedule sends to other ranks. */
static int64_t count_sent_elements(const lt_message_schedule *r)
{
    return r->out.elements - r->sent[lt_comm_rank(r->comm)];
}

lt_status lt_sharded_optim_traffic(const lt_sharded_optim *sharded, lt_sharded_traffic *out)
{
    const lt_tensor *const tensors[] = {
        sharded->value,       sharded->grad,           sharded->update,   sharded->old,
        sharded->narrow,      sharded->sent,           sharded->received, sharded->header,
        sharded->sent_narrow, sharded->received_narrow};
    if (!sharded->optim)
        return lt_fail(LT_E_ARG, "optim: no optimizer is attached to the sharded parameters");
    *out = (lt_sharded_traffic){.parts = sharded->shards};
    if (sharded->shards)
        return LT_OK;
    *out = (lt_sharded_traffic){
        .gradients = count_sent_elements(&sharded->pull),
        .values = count_sent_elements(&sharded->push),
        .parts = (int64_t)sharded->optim->shard->count,
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        out->bytes += tensors[i] ? (int64_t)lt_tensor_bytes(tensors[i]) : 0;
    for (size_t i = 0; i < sharded->all.count; i++)
        if (sharded->logical[i].value->buffer)
            out->bytes += 2 * (int64_t)lt_tensor_bytes(sharded->logical[i].value);
    return LT_OK;
}
