/* Attaching an optimizer to placed parameters: homes of this rank's parts, routes, messages. */

#include "dist/consensus.h"
#include "optim/slots.h"
#include "sharded.h"
#include "tensor/tensor.h"

static lt_status new_flat(lt_tensor **out, const lt_optim *o, lt_dtype dtype, int64_t elements)
{
    return elements ? lt_tensor_new(out, o->device, dtype, LT_SHAPE(elements)) : LT_OK;
}

/* Where this rank's parts begin in flat tensors; returns all that they span. */
static int64_t lay_out(lt_optim *o)
{
    lt_shard *s = o->shard;
    int64_t stride[LT_MAX_DIMS], span = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->part[i].at = span;
        if (s->part[i].owner == s->rank)
            span += lt_placed_home_strides(o, i, stride);
    }
    return span;
}

/* Parts that are whole parameters: the owner's logical tensors get memory. */
static lt_status settle_whole(lt_optim *o)
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

static lt_status settle_blocks(struct lt_placed *p, lt_optim *o, int64_t span, bool updates)
{
    lt_shard *s = o->shard;
    const lt_dtype master = lt_device_master(o->device);
    LT_TRY(new_flat(&p->value, o, master, span));
    LT_TRY(new_flat(&p->grad, o, master, span));
    for (size_t i = 0; i < s->count; i++) {
        if (s->part[i].owner != s->rank)
            continue;
        s->part[i].value = lt_placed_home(o, i, p->value);
        s->part[i].grad = lt_placed_home(o, i, p->grad);
        if (updates)
            s->part[i].update = lt_placed_home(o, i, p->update);
    }
    return LT_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static lt_status make_messages(struct lt_placed *p, const lt_optim *o)
{
    const lt_dtype master = lt_device_master(o->device), dtype = o->shard->config.dtype;
    const lt_route *pull = &p->pull, *push = &p->push;
    LT_TRY(lt_tensor_new(&p->header, o->device, master, LT_SHAPE(1)));
    LT_TRY(new_flat(&p->sent, o, master, larger(pull->out.elements, push->out.elements)));
    LT_TRY(new_flat(&p->received, o, master, larger(pull->in.elements, push->in.elements)));
    if (dtype == LT_F32)
        return LT_OK;
    LT_TRY(new_flat(&p->sent_narrow, o, dtype, push->out.elements));
    return new_flat(&p->received_narrow, o, dtype, push->in.elements);
}

static lt_status settle(lt_optim *o)
{
    struct lt_placed *p = lt_placed_of(o);
    const lt_shard *s = o->shard;
    const lt_dtype master = lt_device_master(o->device);
    const bool narrow = s->config.dtype != LT_F32;
    const int64_t span = lay_out(o);
    if (narrow) {
        LT_TRY(new_flat(&p->update, o, master, span));
        LT_TRY(new_flat(&p->narrow, o, s->config.dtype, span));
    }
    if (s->differences)
        LT_TRY(new_flat(&p->old, o, master, span));
    LT_TRY(o->ops->parts ? settle_blocks(p, o, span, narrow && !s->config.gather_params)
                         : settle_whole(o));
    LT_TRY(lt_placed_route(p, o));
    return make_messages(p, o);
}

static const lt_shard_ops placed_ops = {
    .prefer = lt_placed_prefer_local,
    .settle = settle,
    .pull = lt_placed_pull,
    .begin = lt_placed_before,
    .pack = lt_placed_pack,
    .send = lt_placed_send,
    .flag = lt_placed_flag,
    .spread = lt_placed_spread,
};

static lt_status check(const struct lt_placed *p, const lt_optim *o, const lt_shard_config *c)
{
    bool fits = o->count == p->own.count;
    for (size_t k = 0; fits && k < o->count; k++)
        fits = o->slot[k].param == &p->logical[p->number[k]];
    if (!fits)
        return lt_fail(LT_E_ARG, "%s: is not made over these placed parameters", o->ops->name);
    LT_TRY(lt_optim_need(o, o->device->backend->vec != NULL, "vec"));
    if (p->optim)
        return lt_fail(LT_E_ARG, "%s: another optimizer is attached", o->ops->name);
    if (c->shard_params)
        return lt_fail(LT_E_ARG,
                       "%s: placed parameters have their values on all ranks: shard_params",
                       o->ops->name);
    if (c->comm != p->world || c->group)
        return lt_fail(LT_E_ARG,
                       "%s: placed parameters are divided over all ranks, not groups of %d",
                       o->ops->name, c->group);
    return LT_OK;
}

lt_status lt_placed_attach(lt_placed *placed, lt_optim *optim, const lt_shard_config *config)
{
    LT_TRY(lt_comm_agree(placed->world, check(placed, optim, config)));
    LT_TRY(lt_shard_divide(optim, config, &placed_ops, placed));
    placed->optim = optim;
    return lt_comm_agree(placed->world, lt_optim_shard_gradients(optim, NULL));
}

/* Elements of a route's messages to others. */
static int64_t sent_by(const lt_route *r)
{
    return r->out.elements - r->sent[lt_comm_rank(r->comm)];
}

lt_status lt_placed_traffic_of(const lt_placed *placed, lt_placed_traffic *out)
{
    const lt_tensor *const tensors[] = {
        placed->value,       placed->grad,           placed->update,   placed->old,
        placed->narrow,      placed->sent,           placed->received, placed->header,
        placed->sent_narrow, placed->received_narrow};
    if (!placed->optim)
        return lt_fail(LT_E_ARG, "optim: no optimizer is attached to the placed parameters");
    *out = (lt_placed_traffic){.parts = placed->boxes};
    if (placed->boxes)
        return LT_OK;
    *out = (lt_placed_traffic){
        .gradients = sent_by(&placed->pull),
        .values = sent_by(&placed->push),
        .parts = (int64_t)placed->optim->shard->count,
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        out->bytes += tensors[i] ? (int64_t)lt_tensor_bytes(tensors[i]) : 0;
    for (size_t i = 0; i < placed->all.count; i++)
        if (placed->logical[i].value->buffer)
            out->bytes += 2 * (int64_t)lt_tensor_bytes(placed->logical[i].value);
    return LT_OK;
}
