/* Checkpointed state of local steps: whole tensors, so that files do not depend on the sharding within a group. */

#include "base/alloc.h"
#include "dist/comm/flat.h"
#include "dist/local_steps/state.h"

enum { START, MOMENTUM, RESIDUAL, KINDS };

static lt_tensor *state_shard(const lt_local_steps *l, int kind)
{
    lt_tensor *const shards[KINDS] = {
        [START] = l->start, [MOMENTUM] = l->momentum, [RESIDUAL] = l->residual};
    return shards[kind];
}

/* Copies a kind of state from `whole`, all parameters concatenated, to one tensor per parameter, or back. */
static lt_status copy_whole(const lt_local_steps *l, const lt_tensor *whole, int kind, bool back)
{
    for (size_t i = 0; i < l->params; i++) {
        const lt_view slice = lt_flat_slice(whole, l->begin[i], l->begin[i + 1] - l->begin[i]);
        const lt_view own = lt_flat_view(l->whole[kind][i]);
        LT_TRY(lt_local_axpby(l, 1, back ? own : slice, 0, back ? slice : own));
    }
    return LT_OK;
}

static lt_status gather_state(lt_local_steps *l, int kind)
{
    lt_tensor *whole = NULL;
    LT_TRY(LT_ALLOC(&l->whole[kind], l->params));
    for (size_t i = 0; i < l->params; i++) {
        const lt_tensor *value = l->param[i]->value;
        LT_TRY(lt_tensor_new_like(&l->whole[kind][i], value, lt_tensor_dtype(value)));
    }
    LT_TRY(lt_local_gather(l, state_shard(l, kind), &whole));
    lt_status st = copy_whole(l, whole, kind, false);
    lt_tensor_free(&whole);
    return st;
}

lt_status lt_local_steps_gather_state(lt_local_steps *l)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (state_shard(l, kind) && !l->whole[kind])
            LT_TRY(gather_state(l, kind));
    return LT_OK;
}

static lt_status take_own_shard(const lt_local_steps *l, int kind)
{
    lt_tensor *whole = NULL, *shard = state_shard(l, kind);
    LT_TRY(lt_tensor_new(&whole, l->device, lt_tensor_dtype(shard), LT_SHAPE(l->begin[l->params])));
    lt_status st = copy_whole(l, whole, kind, true);
    if (!st)
        st = lt_local_axpby(l, 1, lt_flat_slice(whole, l->first, l->count[l->local]), 0,
                            lt_tensor_view(shard));
    lt_tensor_free(&whole);
    return st;
}

lt_status lt_local_steps_free_gathered(lt_local_steps *l, bool loaded)
{
    lt_status st = LT_OK;
    for (int kind = 0; kind < KINDS; kind++) {
        if (!l->whole[kind])
            continue;
        if (loaded && !st)
            st = take_own_shard(l, kind);
        for (size_t i = 0; i < l->params; i++)
            lt_tensor_free(&l->whole[kind][i]);
        lt_free(l->whole[kind]);
        l->whole[kind] = NULL;
    }
    return st;
}

/* --- Visits --- */

/* Visits a tensor; its owner is rank 0 of all ranks, or of the group. */
static lt_status visit_tensor(const lt_param *p, const char *name, lt_tensor *tensor,
                              const lt_state_visitor *visitor)
{
    lt_state_entry entry = lt_state_of(p, name);
    entry.tensor = tensor;
    return visitor->entry(visitor->context, &entry);
}

static lt_status visit_state(const lt_local_steps *l, int kind, const char *name,
                             const lt_state_visitor *visitor)
{
    for (size_t i = 0; i < l->params && l->whole[kind]; i++)
        LT_TRY(visit_tensor(l->param[i], name, l->whole[kind][i], visitor));
    return LT_OK;
}

lt_status lt_local_steps_visit(lt_local_steps *l, lt_state_visitor *visitor)
{
    int64_t groups = l->groups;
    LT_TRY(visitor->number(visitor->context, "outer.groups", &groups));
    LT_TRY(visitor->number(visitor->context, "outer.since", &l->since));
    if (l->since)
        LT_TRY(visit_state(l, START, "outer.start", visitor));
    return visit_state(l, MOMENTUM, "outer.momentum", visitor);
}

lt_status lt_local_steps_visit_group(lt_local_steps *l, lt_state_visitor *visitor)
{
    for (size_t i = 0; i < l->all->count && l->since && l->group; i++)
        LT_TRY(visit_tensor(l->all->item[i], "outer.value", l->all->item[i]->value, visitor));
    return visit_state(l, RESIDUAL, "outer.residual", visitor);
}
