/* Global gradient norm from the norms of parts: each owner computes the norms of its parts as f64, all ranks gather
 * them and add their squares in the order of the parts. The order of the sum depends on the parts, not on their
 * owners, so the clipped gradient, and whether a step is skipped, are the same for any number of ranks. The gather
 * is a sum over ranks in which all but the owner add 0, which changes no bit. */

#include "part_norms.h"

#include "base/alloc.h"
#include "shard.h"
#include "tensor/tensor.h"

#include "lather/detail/gradient_parts.h"

struct lt_part_norms {
    size_t count;
    /* non-NULL: parts are shards, and norms are summed over it; NULL: parts are those of the state */
    lt_comm *comm;
    int64_t *at;     /* owned; index of each slot's shard among the parts */
    lt_slot **slot;  /* slot of each part */
    lt_view *view;   /* workspace: views to measure */
    lt_tensor *norm; /* f64 [count] */
    lt_tensor *zero; /* [1]: measured instead of a part of another rank or without a gradient */
};

static lt_status allocate_norm_buffers(const lt_optim *o, struct lt_part_norms *n)
{
    LT_TRY(LT_ALLOC(&n->view, n->count));
    LT_TRY(lt_tensor_new(&n->zero, o->device, lt_device_master_dtype(o->device), LT_SHAPE(1)));
    LT_TRY(lt_tensor_fill(n->zero, 0));
    return lt_tensor_new(&n->norm, o->device, LT_F64, LT_SHAPE((int64_t)n->count));
}

static lt_status find_slots(lt_optim *o, struct lt_part_norms *n)
{
    n->count = lt_shard_part_count(o);
    LT_TRY(LT_ALLOC(&n->slot, n->count));
    for (size_t i = 0; i < n->count; i++) {
        lt_part part = {0};
        lt_shard_fill_part(o, i, &part);
        n->slot[i] = part.slot;
    }
    return allocate_norm_buffers(o, n);
}

void lt_optim_free_part_norms(lt_optim *o)
{
    struct lt_part_norms *n = o->part_norms;
    if (!n)
        return;
    lt_tensor_free(&n->norm);
    lt_tensor_free(&n->zero);
    lt_free(n->view);
    lt_free(n->slot);
    lt_free(n->at);
    lt_free(n);
    o->part_norms = NULL;
}

static lt_status make_norms(lt_optim *o)
{
    LT_TRY(lt_optim_check_takes_shards(o));
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->frobenius != NULL, "frobenius"));
    o->part_norms = lt_alloc(1, sizeof *o->part_norms);
    lt_status st = o->part_norms ? find_slots(o, o->part_norms) : LT_E_NOMEM;
    if (st)
        lt_optim_free_part_norms(o);
    return st;
}

lt_status lt_optim_use_shard_norms(lt_optim *o, lt_comm *comm, int64_t *at, size_t count)
{
    lt_status st = o->part_norms || !o->device->backend->frobenius
                       ? lt_fail(LT_E_ARG,
                                 "%s: gradients are already sharded, or backend %s has "
                                 "no kernel for frobenius",
                                 o->ops->name, o->device->backend->name)
                       : lt_optim_check_takes_shards(o);
    if (!st && !(o->part_norms = lt_alloc(1, sizeof *o->part_norms)))
        st = LT_E_NOMEM;
    if (st) {
        lt_free(at);
        return st;
    }
    *o->part_norms = (struct lt_part_norms){.count = count, .comm = comm, .at = at};
    st = allocate_norm_buffers(o, o->part_norms);
    if (st)
        lt_optim_free_part_norms(o);
    return st;
}

bool lt_optim_updates_shards(const lt_optim *o)
{
    return o->part_norms && o->part_norms->comm;
}

/* Lists this rank's shards to measure; zero for those without a gradient or of another rank. */
static void list_shard_views(const lt_optim *o, const struct lt_part_norms *n)
{
    for (size_t i = 0; i < n->count; i++)
        n->view[i] = lt_tensor_view(n->zero);
    for (size_t k = 0; k < o->count; k++)
        if (n->at[k] >= 0 && o->slot[k].param->has_grad)
            n->view[n->at[k]] = lt_tensor_view(o->slot[k].param->grad);
}

/* Lists this rank's parts to measure; zero for the others. */
static void list_part_views(lt_optim *o, const struct lt_part_norms *n)
{
    const lt_shard *s = o->shard;
    for (size_t i = 0; i < n->count; i++) {
        const bool mine = !s || s->part[i].owner == s->rank;
        if (!mine || !n->slot[i]->param->has_grad)
            n->view[i] = lt_tensor_view(n->zero);
        else
            n->view[i] =
                s ? lt_shard_part_grad(o, i) : lt_shard_part_view(o, i, n->slot[i]->param->grad);
    }
}

static lt_status measure_norms(lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    const struct lt_part_norms *n = o->part_norms;
    const lt_view out = lt_tensor_view(n->norm);
    if (n->comm)
        list_shard_views(o, n);
    else
        list_part_views(o, n);
    return be->frobenius(ctx, n->view, n->count, &out);
}

lt_status lt_optim_grad_norm_by_parts(lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    lt_request *request = NULL;
    LT_TRY(measure_norms(o));
    lt_comm *comm = o->part_norms->comm ? o->part_norms->comm : o->shard ? o->shard->group : NULL;
    if (comm && lt_comm_size(comm) > 1) {
        LT_TRY(lt_comm_allreduce_begin(comm, o->part_norms->norm, LT_REDUCE_SUM, &request));
        LT_TRY(lt_request_wait(&request));
    }
    const lt_optim_item item = {.grad = lt_tensor_view(o->part_norms->norm)};
    return be->grad_norm(ctx, &item, 1, o->scalars);
}

/* --- Sharded gradients --- */

static lt_view part_view(void *context, size_t index, const lt_tensor *tensor)
{
    return lt_shard_part_view(context, index, tensor);
}

static lt_view flat_part_view(void *context, size_t index, const lt_tensor *flat, int64_t at)
{
    return lt_shard_flat_view(context, index, flat, at);
}

static lt_status shard_gradients(lt_optim *o, lt_data_parallel *dp)
{
    const lt_shard *s = o->shard;
    lt_gradient_parts parts = {.count = s->count,
                               .of = part_view,
                               .flat = flat_part_view,
                               .context = o,
                               .releases = s->config.shard_params};
    LT_TRY(LT_ALLOC(&parts.part, s->count));
    for (size_t i = 0; i < s->count; i++)
        parts.part[i] = (lt_gradient_part){
            .param = s->part[i].slot->param,
            .elements = s->part[i].elements,
            .owner = s->part[i].owner,
        };
    return lt_data_parallel_shard_gradients(dp, &parts);
}

lt_status lt_optim_shard_gradients(lt_optim *o, lt_data_parallel *dp)
{
    if (o->part_norms)
        return lt_fail(LT_E_ARG, "%s: gradients are already sharded", o->ops->name);
    if (dp && !o->shard)
        return lt_fail(LT_E_ARG,
                       "%s: gradients cannot be sharded before the state: call "
                       "lt_optim_shard() first",
                       o->ops->name);
    if (o->shard && o->shard->owns_group)
        return lt_fail(LT_E_ARG,
                       "%s: gradients are sharded over all %d ranks, but the state over groups of "
                       "%d",
                       o->ops->name, lt_comm_size(o->shard->config.comm), o->shard->ranks);
    LT_TRY(make_norms(o));
    lt_status st = dp ? shard_gradients(o, dp) : LT_OK;
    if (st)
        lt_optim_free_part_norms(o);
    return st;
}
