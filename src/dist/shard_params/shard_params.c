/* Sharded parameters: a value has memory at its owner, and on other ranks only while operations read it.
 * Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, stage 3; units and
 * prefetch: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
 *
 * 1. All ranks begin gathers in the same order. Until the second update this follows from identical passes on all ranks,
 *    which is checked; later passes must follow the recorded order.
 * 2. A unit remains present while the operation that read it runs, as one operation may read several.
 * 3. Values change in updates only and are released before each, so gathered values are never stale. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "dist/comm/comm.h"
#include "dist/consensus.h"
#include "dist/shard_params/units.h"
#include "tensor/tensor.h"

#include "lather/ext/comm.h"

#include <stdio.h>

enum { DEFAULT_UNIT = 25 << 20 };

static lt_sp_member *find_member(const lt_shard_params *sp, const lt_param *param)
{
    for (size_t i = 0; i < sp->members; i++)
        if (sp->member[i].of.param == param)
            return &sp->member[i];
    return NULL;
}

/* --- Reads --- */

static lt_status append_to_trace(lt_shard_params *sp, size_t unit)
{
    LT_TRY(LT_GROW(&sp->trace, &sp->trace_capacity, sp->traced + 1));
    sp->trace[sp->traced++] = unit;
    return LT_OK;
}

static const char *first_param_name(const lt_shard_params *sp, const lt_sp_unit *u)
{
    return lt_sp_member_at(sp, u, 0)->of.param->name;
}

/* Checks that a read of unit u follows the recorded order. */
static lt_status check_order(lt_shard_params *sp, const lt_sp_unit *u, const lt_param *param)
{
    const size_t index = (size_t)(u - sp->unit);
    if (sp->next < sp->traced && sp->trace[sp->next] == index) {
        sp->next++;
        return LT_OK;
    }
    return lt_fail(LT_E_ARG,
                   "shard-params: expected %s, got %s; every pass must read parameters in the same "
                   "order",
                   sp->next < sp->traced ? first_param_name(sp, &sp->unit[sp->trace[sp->next]])
                                         : "no parameter",
                   param->name);
}

static void release_unused_units(lt_shard_params *sp, int64_t operation)
{
    for (size_t i = 0; i < sp->units; i++)
        if (sp->unit[i].is_present && sp->unit[i].operation != operation)
            lt_sp_release_unit(sp, &sp->unit[i]);
}

static lt_status prefetch_next_unit(lt_shard_params *sp)
{
    if (sp->phase != LT_SP_FOLLOWING || sp->next == sp->traced || sp->config.no_prefetch)
        return LT_OK;
    return lt_sp_begin_gather(sp, &sp->unit[sp->trace[sp->next]]);
}

/* Gathers a unit and begins the next one. */
static lt_status gather_unit(lt_shard_params *sp, lt_sp_unit *u, const lt_param *param,
                             int64_t operation)
{
    if (sp->phase == LT_SP_FOLLOWING)
        LT_TRY(check_order(sp, u, param));
    else
        LT_TRY(append_to_trace(sp, (size_t)(u - sp->unit)));
    release_unused_units(sp, operation);
    if (u->is_begun)
        sp->stats.prefetched++;
    else
        LT_TRY(lt_sp_begin_gather(sp, u));
    LT_TRY(lt_sp_finish_gather(sp, u));
    return prefetch_next_unit(sp);
}

static void record_order(lt_shard_params *sp, lt_sp_member *m)
{
    if (sp->phase != LT_SP_UNORDERED || m->is_ordered)
        return;
    m->is_ordered = true;
    sp->order[sp->members + sp->ordered++] = (size_t)(m - sp->member);
}

static void end_pass(lt_shard_params *sp)
{
    if (sp->is_held)
        return;
    for (size_t i = 0; i < sp->units; i++)
        lt_sp_release_unit(sp, &sp->unit[i]);
    sp->next = 0;
    if (sp->phase != LT_SP_FOLLOWING)
        sp->traced = 0;
}

static lt_status on_read(void *context, lt_param *param, int64_t operation)
{
    lt_shard_params *sp = context;
    if (!param) {
        end_pass(sp);
        return LT_OK;
    }
    lt_sp_member *m = find_member(sp, param);
    if (!m || sp->is_held)
        return LT_OK;
    lt_sp_unit *u = &sp->unit[m->unit];
    record_order(sp, m);
    if (!u->is_present)
        LT_TRY(gather_unit(sp, u, param, operation));
    u->operation = operation;
    return LT_OK;
}

/* --- Between passes --- */

static void release_attached(const lt_shard_params *sp)
{
    for (size_t i = 0; i < sp->members; i++)
        if (sp->member[i].attached && sp->member[i].of.owner != sp->rank)
            lt_tensor_free_memory(sp->member[i].attached);
}

void lt_shard_params_release(lt_shard_params *sp)
{
    sp->is_held = false;
    release_attached(sp);
    end_pass(sp);
}

static lt_status gather_attached(lt_shard_params *sp, const lt_sp_member *m)
{
    const uint64_t before = lt_comm_bytes(sp->comm);
    LT_TRY(lt_tensor_allocate_raw(m->attached));
    LT_TRY(lt_comm_broadcast(sp->comm, m->attached, m->of.owner));
    sp->parent->bytes += lt_comm_bytes(sp->comm) - before;
    return LT_OK;
}

lt_status lt_shard_params_gather(lt_shard_params *sp)
{
    if (sp->is_held)
        return LT_OK;
    end_pass(sp);
    for (size_t i = 0; i < sp->units; i++) {
        LT_TRY(lt_sp_begin_gather(sp, &sp->unit[i]));
        LT_TRY(lt_sp_finish_gather(sp, &sp->unit[i]));
    }
    for (size_t i = 0; i < sp->members; i++)
        if (sp->member[i].attached)
            LT_TRY(gather_attached(sp, &sp->member[i]));
    sp->is_held = true;
    return LT_OK;
}

lt_status lt_shard_params_follow(lt_shard_params *sp, const lt_param *param, lt_tensor *tensor)
{
    lt_sp_member *m = find_member(sp, param);
    if (!m)
        return lt_fail(LT_E_ARG, "shard-params: %s is not a sharded parameter", param->name);
    if (!lt_shape_equal(lt_tensor_shape(tensor), lt_tensor_shape(param->value)))
        return lt_fail(LT_E_ARG,
                       "shard-params: a tensor attached to %s must have the parameter's shape",
                       param->name);
    m->attached = tensor;
    return LT_OK;
}

/* --- Agreement between ranks --- */

/* Appends the parameters that no pass has read, in the order of the list. */
static void append_unread_params(lt_shard_params *sp)
{
    for (size_t i = 0; i < sp->members; i++)
        if (!sp->member[i].is_ordered)
            record_order(sp, &sp->member[i]);
    for (size_t i = 0; i < sp->members; i++)
        sp->order[i] = sp->order[sp->members + i];
}

/* Broadcasts rank 0's order. */
static lt_status broadcast_param_order(lt_shard_params *sp)
{
    int64_t *host = lt_alloc(sp->members, sizeof *host);
    lt_status st = lt_comm_agree_on_status(sp->comm, host ? LT_OK : LT_E_NOMEM);
    append_unread_params(sp);
    if (!st)
        st = lt_comm_broadcast_order(sp->comm, sp->order, host, sp->members);
    lt_free(host);
    return st;
}

static lt_status check_same_trace(const lt_shard_params *sp)
{
    char text[64];
    const uint32_t sum = lt_crc32c(0, sp->trace, sp->traced * sizeof *sp->trace);
    snprintf(text, sizeof text, "%zu gathers, sum %08x", sp->traced, (unsigned)sum);
    return lt_comm_check_same(sp->comm, "the order in which a pass reads parameters", text);
}

lt_status lt_shard_params_begin_update(lt_shard_params *sp)
{
    lt_status st = LT_OK;
    const bool was_held = sp->is_held; /* if so, no order was recorded */
    if (!was_held && sp->traced && sp->phase == LT_SP_TRACING) {
        st = check_same_trace(sp);
        sp->phase = LT_SP_FOLLOWING;
    } else if (!was_held && sp->traced && sp->phase == LT_SP_UNORDERED) {
        st = broadcast_param_order(sp);
        if (!st) {
            end_pass(sp);
            st = lt_sp_make_units(sp, sp->config.unit_bytes);
        }
        sp->phase = LT_SP_TRACING;
    }
    lt_shard_params_release(sp);
    return st;
}

void lt_shard_params_stats_of(const lt_shard_params *sp, lt_shard_params_stats *out)
{
    *out = sp->stats;
}

/* --- Construction --- */

static lt_status check_owners(const lt_comm *comm, const lt_owned_param *list, size_t count)
{
    if (!count)
        return lt_fail(LT_E_ARG, "shard-params: empty list of parameters");
    for (size_t i = 0; i < count; i++)
        if (list[i].owner < 0 || list[i].owner >= lt_comm_size(comm))
            return lt_fail(LT_E_ARG, "shard-params: %s has owner %d, want 0 to %d",
                           list[i].param->name, list[i].owner, lt_comm_size(comm) - 1);
    return LT_OK;
}

static lt_status prepare_members(lt_shard_params *sp, const lt_owned_param *list)
{
    LT_TRY(LT_ALLOC(&sp->member, sp->members));
    LT_TRY(LT_ALLOC(&sp->order, 2 * sp->members));
    for (size_t i = 0; i < sp->members; i++) {
        sp->member[i].of = list[i];
        sp->order[i] = i;
        sp->stats.value_bytes += (int64_t)lt_tensor_bytes(list[i].param->value);
    }
    return lt_sp_make_units(sp, 1);
}

lt_status lt_shard_params_new(lt_shard_params **out, lt_comm *comm, lt_tape *tape,
                              const lt_owned_param *list, size_t count,
                              const lt_shard_params_config *config)
{
    LT_TRY(lt_comm_agree_on_status(comm, check_owners(comm, list, count)));
    lt_shard_params *sp = lt_alloc(1, sizeof *sp);
    LT_TRY(lt_comm_agree_on_status(comm, sp ? LT_OK : LT_E_NOMEM));
    LT_ASSERT(sp);
    sp->parent = comm;
    sp->tape = tape;
    sp->device = lt_tape_device(tape);
    sp->config = config ? *config : (lt_shard_params_config){0};
    if (!sp->config.unit_bytes)
        sp->config.unit_bytes = DEFAULT_UNIT;
    sp->rank = lt_comm_rank(comm);
    sp->ranks = lt_comm_size(comm);
    sp->members = count;
    sp->is_held = true;
    lt_status st = lt_comm_agree_on_status(comm, prepare_members(sp, list));
    if (!st)
        st = lt_comm_split(comm, 0, sp->rank, &sp->comm);
    if (st) {
        lt_shard_params_free(&sp);
        return st;
    }
    lt_tape_on_param_use(tape, on_read, sp);
    *out = sp;
    return LT_OK;
}

void lt_shard_params_free(lt_shard_params **shard)
{
    lt_shard_params *sp = *shard;
    *shard = NULL;
    if (!sp)
        return;
    lt_tape_on_param_use(sp->tape, NULL, NULL);
    lt_sp_free_units(sp);
    lt_comm_close(&sp->comm);
    lt_free(sp->trace);
    lt_free(sp->order);
    lt_free(sp->member);
    lt_free(sp);
}
