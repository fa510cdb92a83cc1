/* Exchange after a step with sharded state, and of counters that only owners know. */

#include "base/alloc.h"
#include "base/trace.h"
#include "dist/consensus.h"
#include "optim/slots.h"
#include "shard.h"
#include "tensor/tensor.h"

#include "lather/ext/comm.h"

#include <stdio.h>

/* Status flag of a segment: an lt_status, or SKIPPED if the rank skipped its step. */
enum { SKIPPED = 100 };

/* Reads all status flags: sets the first rank that failed (or -1) and the number of ranks that skipped. */
static lt_status read_flags(const lt_optim *o, int *failed, int *skipped)
{
    const lt_shard *s = o->shard;
    *failed = -1;
    *skipped = 0;
    for (int r = 0; r < s->ranks; r++) {
        int flag = 0;
        LT_TRY(s->ops->flag(o, r, &flag));
        *skipped += flag == SKIPPED;
        if (flag && flag != SKIPPED && *failed < 0)
            *failed = r;
    }
    return LT_OK;
}

static lt_status send_and_read_flags(lt_optim *o, lt_status st, bool skipped, int *failed,
                                     int *skips)
{
    const int flag = st ? (int)st : skipped ? SKIPPED : 0;
    LT_TRY(o->shard->ops->send(o, flag));
    return read_flags(o, failed, skips);
}

/* Exchanges within a captured graph, without a status: nothing can fail there, and kernels read if the step is
 * skipped, which is the same on all ranks. */
static lt_status exchange_in_captured_graph(lt_optim *o, lt_status st)
{
    LT_TRY(st);
    const lt_shard_ops *ops = o->shard->ops;
    LT_TRY(ops->pack(o));
    LT_TRY(ops->send(o, 0));
    return ops->unpack(o);
}

static lt_status exchange_or_share_failure(lt_optim *o, lt_status st, bool skipped)
{
    lt_shard *s = o->shard;
    int failed = -1, skips = 0;
    char text[512];
    if (o->device->capturing)
        return exchange_in_captured_graph(o, st);
    /* other ranks may replay a graph, which reads no flags */
    if (st && o->device->backend->graphs) {
        snprintf(text, sizeof text, "%s", lt_error_message());
        lt_comm_abort(s->group);
        return lt_fail(st, "%s", text);
    }
    if (!st && !skipped)
        st = s->ops->pack(o);
    snprintf(text, sizeof text, "%s", st ? lt_error_message() : "");
    lt_status met = send_and_read_flags(o, st, skipped, &failed, &skips);
    if (met) { /* otherwise the other ranks would wait forever */
        lt_comm_abort(s->group);
        return st ? lt_fail(st, "%s", text) : met;
    }
    if (failed >= 0)
        return lt_comm_share_failure(s->group, failed, s->first,
                                     st ? lt_fail(st, "%s", text) : LT_OK);
    if (skips == s->ranks)
        return LT_OK;
    if (skips)
        return lt_fail(LT_E_COMM, "%s: gradients differ: %d of %d ranks skip this step",
                       o->ops->name, skips, s->ranks);
    return s->ops->unpack(o);
}

lt_status lt_shard_finish_step(lt_optim *o, lt_status st, bool skipped)
{
    const int64_t begin = lt_clock_nanoseconds(), span = lt_trace_begin();
    st = exchange_or_share_failure(o, st, skipped);
    o->shard->seconds = (double)(lt_clock_nanoseconds() - begin) * 1e-9;
    lt_trace_end(span, LT_PROFILE_OPTIM, "gather", 0);
    return st;
}

/* --- Sums and counters --- */

lt_status lt_optim_sum_over_owners(const lt_optim *o, lt_tensor *sum)
{
    lt_request *request = NULL;
    if (!o->shard)
        return LT_OK;
    LT_TRY(lt_comm_allreduce_begin(o->shard->group, sum, LT_REDUCE_SUM, &request));
    return lt_request_wait(&request);
}

static lt_status sum_over_ranks(const lt_optim *o, int64_t *number, size_t count)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    LT_TRY(lt_tensor_new(&t, o->device, LT_I64, LT_SHAPE((int64_t)count)));
    lt_status st = lt_tensor_write(t, number, count * sizeof *number);
    if (!st)
        st = lt_comm_allreduce_begin(o->shard->group, t, LT_REDUCE_SUM, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(t, number, count * sizeof *number);
    lt_tensor_free(&t);
    return st;
}

lt_status lt_shard_share_counters(lt_optim *o)
{
    const lt_shard *s = o->shard;
    int64_t *counter[LT_PART_COUNTERS];
    if (!s || !o->ops->parts)
        return LT_OK;
    int64_t *all = lt_alloc(s->count * LT_PART_COUNTERS, sizeof *all);
    LT_TRY(lt_comm_agree_on_status(s->config.comm, all ? LT_OK : LT_E_NOMEM));
    for (size_t i = 0; i < s->count; i++) {
        o->ops->parts->counters(o, i, counter);
        for (int k = 0; k < LT_PART_COUNTERS && s->part[i].owner == s->rank; k++)
            all[i * LT_PART_COUNTERS + (size_t)k] = *counter[k];
    }
    lt_status st = sum_over_ranks(o, all, s->count * LT_PART_COUNTERS);
    for (size_t i = 0; i < s->count && !st; i++) {
        o->ops->parts->counters(o, i, counter);
        for (int k = 0; k < LT_PART_COUNTERS; k++)
            *counter[k] = all[i * LT_PART_COUNTERS + (size_t)k];
    }
    lt_free(all);
    return st;
}
