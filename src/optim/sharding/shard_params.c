/* Sharded parameters (ZeRO-3) from the optimizer's side: the owner of a parameter's parts keeps its value. */

#include "lather/detail/shard_params.h"

#include "base/alloc.h"
#include "shard.h"
#include "tensor/tensor.h"

static lt_shard_params *sharded_values(const lt_optim *o)
{
    return o->shard ? o->shard->values : NULL;
}

/* Lists the owner of each parameter; its parts are consecutive and have one owner. */
static size_t list_owners(const lt_shard *s, lt_owned_param *list)
{
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++)
        if (!i || s->part[i].slot != s->part[i - 1].slot)
            list[count++] = (lt_owned_param){s->part[i].slot->param, s->part[i].owner};
    return count;
}

static lt_status check_can_shard_params(const lt_optim *o)
{
    if (!o->shard || !o->shard->config.shard_params || !o->part_norms)
        return lt_fail(LT_E_ARG,
                       "%s: parameters cannot be sharded before the state (with shard_params) and "
                       "the gradients",
                       o->ops->name);
    if (o->shard->values)
        return lt_fail(LT_E_ARG, "%s: parameters are already sharded", o->ops->name);
    if (o->averaging)
        return lt_fail(LT_E_UNSUPPORTED, "%s: sharded parameters do not support weight averaging",
                       o->ops->name);
    return LT_OK;
}

lt_status lt_optim_shard_params(lt_optim *o, lt_tape *tape, const lt_shard_params_config *config)
{
    LT_TRY(check_can_shard_params(o));
    lt_shard *s = o->shard;
    lt_owned_param *list = NULL;
    LT_TRY(LT_ALLOC(&list, o->count));
    const size_t count = list_owners(s, list);
    lt_status st = lt_shard_params_new(&s->values, s->group, tape, list, count, config);
    lt_free(list);
    return st;
}

int lt_shard_value_owner(const lt_optim *o, const lt_param *param)
{
    const lt_shard *s = o ? o->shard : NULL;
    for (size_t i = 0; s && s->values && i < s->count; i++)
        if (s->part[i].slot->param == param)
            return s->part[i].owner;
    return 0;
}

lt_status lt_optim_gather_params(lt_optim *o)
{
    return sharded_values(o) ? lt_shard_params_gather(sharded_values(o)) : LT_OK;
}

/* Frees the memory of the gradients that data parallelism left: the means, at their owners. */
static void release_gradients(const lt_optim *o)
{
    for (size_t i = 0; i < o->count; i++)
        lt_tensor_free_memory(o->slot[i].param->grad);
}

void lt_optim_release_params(lt_optim *o)
{
    if (!sharded_values(o))
        return;
    lt_shard_params_release(sharded_values(o));
    release_gradients(o);
}

lt_status lt_optim_begin_owned_update(lt_optim *o)
{
    return sharded_values(o) ? lt_shard_params_begin_update(sharded_values(o)) : LT_OK;
}

void lt_optim_end_owned_update(lt_optim *o)
{
    if (sharded_values(o) && !o->keeps_grads)
        release_gradients(o);
}

void lt_optim_shard_params_stats(const lt_optim *o, lt_shard_params_stats *out)
{
    *out = (lt_shard_params_stats){0};
    if (sharded_values(o))
        lt_shard_params_stats_of(sharded_values(o), out);
}

/* --- EMA --- */

static lt_status make_average_follow_param(void *context, const lt_state_entry *entry)
{
    const lt_optim *o = context;
    for (size_t i = 0; i < o->count; i++)
        if (o->slot[i].param->name == entry->param)
            return lt_shard_params_follow(sharded_values(o), o->slot[i].param, entry->tensor);
    return LT_OK; /* running statistics are not sharded */
}

static lt_status ignore_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

lt_status lt_optim_shard_ema(lt_optim *o, lt_ema *ema)
{
    lt_state_visitor visitor = {
        .entry = make_average_follow_param, .number = ignore_number, .context = o};
    return sharded_values(o) ? lt_ema_visit(ema, &visitor) : LT_OK;
}
