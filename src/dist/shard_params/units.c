/* Units of sharded parameters, gathered at once. A unit in flight is a chunk per rank: the values that the rank owns, in
 * the order of the unit, each in memory order. */

#include "dist/shard_params/units.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/comm/flat.h"
#include "tensor/tensor.h"

#include "lather/detail/view.h"
#include "lather/ext/comm.h"

lt_sp_member *lt_sp_member_at(const lt_shard_params *sp, const lt_sp_unit *u, size_t i)
{
    return &sp->member[sp->order[u->first + i]];
}

/* --- Laying out --- */

static size_t param_bytes(const lt_sp_member *m)
{
    return lt_tensor_bytes(m->of.param->value);
}

void lt_sp_free_units(lt_shard_params *sp)
{
    for (size_t i = 0; i < sp->units; i++) {
        lt_sp_unit *u = &sp->unit[i];
        if (u->is_begun)
            (void)!lt_request_wait(&u->request);
        lt_tensor_free(&u->own);
        lt_tensor_free(&u->whole);
        lt_free(u->count_by_rank);
    }
    lt_free(sp->unit);
    sp->unit = NULL;
    sp->units = 0;
}

static lt_status new_flat_buffer(const lt_shard_params *sp, lt_tensor **flat, int64_t elements)
{
    if (!elements)
        return LT_OK;
    LT_TRY(lt_tensor_new(flat, sp->device, lt_device_master_dtype(sp->device), LT_SHAPE(elements)));
    lt_tensor_free_memory(*flat);
    return LT_OK;
}

/* Fills a unit that begins at order[u->first]. */
static lt_status lay_out_unit(lt_shard_params *sp, lt_sp_unit *u, size_t bytes)
{
    size_t used = 0;
    int64_t whole = 0;
    LT_TRY(LT_ALLOC(&u->count_by_rank, sp->ranks));
    for (size_t at = u->first; at < sp->members; at++) {
        lt_sp_member *m = &sp->member[sp->order[at]];
        if (u->count && used + param_bytes(m) > bytes)
            break;
        used += param_bytes(m);
        u->count++;
        u->count_by_rank[m->of.owner] += lt_tensor_count(m->of.param->value);
        m->unit = (size_t)(u - sp->unit);
    }
    for (int r = 0; r < sp->ranks; r++)
        whole += u->count_by_rank[r];
    LT_TRY(new_flat_buffer(sp, &u->own, u->count_by_rank[sp->rank]));
    return new_flat_buffer(sp, &u->whole, whole);
}

lt_status lt_sp_make_units(lt_shard_params *sp, size_t bytes)
{
    lt_sp_free_units(sp);
    LT_TRY(LT_ALLOC(&sp->unit, sp->members));
    for (size_t at = 0; at < sp->members;) {
        lt_sp_unit *u = &sp->unit[sp->units++];
        u->first = at;
        LT_TRY(lay_out_unit(sp, u, bytes));
        at += u->count;
    }
    sp->stats.units = (int64_t)sp->units;
    return LT_OK;
}

/* --- Gathering --- */

static lt_status copy_between_views(const lt_shard_params *sp, lt_view from, lt_view to)
{
    return sp->device->backend->cast(sp->device->ctx, &from, &to);
}

static void count_in_flight_bytes(lt_shard_params *sp, const lt_sp_unit *u, int sign)
{
    const lt_tensor *const flat[] = {u->own, u->whole};
    for (int i = 0; i < 2; i++)
        if (flat[i])
            sp->stats.flight_bytes += sign * (int64_t)lt_tensor_bytes(flat[i]);
}

static lt_status pack_own_values(const lt_shard_params *sp, const lt_sp_unit *u)
{
    int64_t at = 0;
    for (size_t i = 0; i < u->count && u->own; i++) {
        const lt_owned_param *p = &lt_sp_member_at(sp, u, i)->of;
        const int64_t count = lt_tensor_count(p->param->value);
        if (p->owner != sp->rank)
            continue;
        LT_TRY(copy_between_views(sp, lt_flat_slice(p->param->value, 0, count),
                                  lt_flat_slice(u->own, at, count)));
        at += count;
    }
    return LT_OK;
}

lt_status lt_sp_begin_gather(lt_shard_params *sp, lt_sp_unit *u)
{
    const uint64_t before = lt_comm_bytes(sp->comm);
    if (u->own)
        LT_TRY(lt_tensor_allocate_raw(u->own));
    LT_TRY(lt_tensor_allocate_raw(u->whole));
    LT_TRY(pack_own_values(sp, u));
    LT_TRY(lt_comm_allgather_begin(sp->comm, u->own, u->whole, u->count_by_rank, &u->request));
    sp->parent->bytes += lt_comm_bytes(sp->comm) - before;
    u->is_begun = true;
    count_in_flight_bytes(sp, u, 1);
    return LT_OK;
}

static void release_flats(lt_shard_params *sp, lt_sp_unit *u)
{
    count_in_flight_bytes(sp, u, -1);
    if (u->own)
        lt_tensor_free_memory(u->own);
    lt_tensor_free_memory(u->whole);
}

static lt_status unpack_rank(lt_shard_params *sp, const lt_sp_unit *u, int rank, int64_t at)
{
    for (size_t i = 0; i < u->count; i++) {
        const lt_owned_param *p = &lt_sp_member_at(sp, u, i)->of;
        lt_tensor *value = p->param->value;
        const int64_t count = lt_tensor_count(value);
        if (p->owner != rank)
            continue;
        if (!lt_tensor_has_memory(value))
            sp->stats.value_bytes += (int64_t)lt_tensor_bytes(value);
        LT_TRY(lt_tensor_allocate_raw(value));
        LT_TRY(copy_between_views(sp, lt_flat_slice(u->whole, at, count),
                                  lt_flat_slice(value, 0, count)));
        at += count;
    }
    return LT_OK;
}

lt_status lt_sp_finish_gather(lt_shard_params *sp, lt_sp_unit *u)
{
    int64_t at = 0;
    u->is_begun = false;
    const double begin = lt_clock_seconds();
    lt_status st = lt_request_wait(&u->request);
    sp->stats.exposed += lt_clock_seconds() - begin;
    for (int r = 0; r < sp->ranks && !st; r++) {
        if (r != sp->rank)
            st = unpack_rank(sp, u, r, at);
        at += u->count_by_rank[r];
    }
    release_flats(sp, u);
    u->is_present = !st;
    sp->stats.gathers += !st;
    return st;
}

void lt_sp_release_unit(lt_shard_params *sp, lt_sp_unit *u)
{
    if (u->is_begun) { /* discard it */
        u->is_begun = false;
        (void)!lt_request_wait(&u->request);
        release_flats(sp, u);
    }
    for (size_t i = 0; i < u->count; i++) {
        const lt_owned_param *p = &lt_sp_member_at(sp, u, i)->of;
        if (p->owner == sp->rank || !lt_tensor_has_memory(p->param->value))
            continue;
        sp->stats.value_bytes -= (int64_t)lt_tensor_bytes(p->param->value);
        lt_tensor_free_memory(p->param->value);
    }
    u->is_present = false;
}
