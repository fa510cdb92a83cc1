/* Elementwise optimizers over shards: each rank updates its own shards, and ranks with equal shards repeat the same
 * work. Only the gradient norm is exchanged: the norm of each distinct shard of the first copy, from the first rank
 * that holds it, in the order of parameters and ranks. All ranks compute the same sum, as gradients are the same in
 * every copy. */

#include "base/alloc.h"
#include "dist/consensus.h"
#include "part_norms.h"
#include "sharded.h"

/* Returns true if a lower rank of the copy holds the same shard. */
static bool is_duplicate(const struct lt_sharded_optim *p, int rank, size_t k)
{
    const lt_shard_spec *own = &p->spec[(size_t)rank * p->own.count + k];
    for (int r = 0; r < rank; r++)
        if (p->copy_of[r] == p->copy_of[rank]
            && lt_shard_spec_equal(own, &p->spec[(size_t)r * p->own.count + k]))
            return true;
    return false;
}

/* Numbers the distinct shards of the first copy; sets at[k] to the number of this rank's shard, or to
 * LT_SHARD_NOT_COUNTED. Returns their count. */
static int64_t assign_shard_numbers(const struct lt_sharded_optim *p, int64_t *at)
{
    const int me = lt_comm_rank(p->world);
    int64_t count = 0;
    for (size_t k = 0; k < p->own.count; k++) {
        at[k] = LT_SHARD_NOT_COUNTED;
        for (int r = 0; r < lt_comm_size(p->world); r++) {
            if (p->copy_of[r] != p->copy_of[0] || is_duplicate(p, r, k))
                continue;
            if (r == me)
                at[k] = count;
            count++;
        }
    }
    return count;
}

static lt_status check_attachable(const struct lt_sharded_optim *p, const lt_optim *o)
{
    bool fits = o->count == p->own.count;
    for (size_t k = 0; fits && k < o->count; k++)
        fits = o->slot[k].param == p->own.item[k];
    if (!fits)
        return lt_fail(LT_E_ARG, "%s: must be made over the same shards as lt_sharded_optim",
                       o->ops->name);
    if (!o->ops->elementwise)
        return lt_fail(LT_E_ARG, "%s: is not elementwise: make it over lt_sharded_optim_params()",
                       o->ops->name);
    if (o->state_dtype != LT_STATE_F32)
        return lt_fail(LT_E_ARG,
                       "%s: a state dtype below f32 needs whole parameters: make it over "
                       "lt_sharded_optim_params()",
                       o->ops->name);
    return p->optim || o->shard
               ? lt_fail(LT_E_ARG,
                         "%s: another optimizer is already attached, or its state is sharded",
                         o->ops->name)
               : LT_OK;
}

lt_status lt_sharded_optim_attach_shards(lt_sharded_optim *sharded, lt_optim *optim)
{
    LT_TRY(lt_comm_agree_on_status(sharded->world, check_attachable(sharded, optim)));
    int64_t *at = lt_alloc(sharded->own.count, sizeof *at);
    lt_status st = lt_comm_agree_on_status(sharded->world, at ? LT_OK : LT_E_NOMEM);
    if (st) {
        lt_free(at);
        return st;
    }
    sharded->shards = assign_shard_numbers(sharded, at);
    st = lt_optim_use_shard_norms(optim, sharded->world, at, (size_t)sharded->shards);
    sharded->optim = st ? NULL : optim;
    return lt_comm_agree_on_status(sharded->world, st);
}
