/* The exchange after a step of a divided optimizer, and what only owners know. */

#include "base/alloc.h"
#include "base/trace.h"
#include "dist/agree.h"
#include "placed.h"
#include "tensor/tensor.h"

#include "lather/ext/comm.h"

#include <stdio.h>

/* A segment's status flag: an lt_status, or that the rank has skipped its step. */
enum { SKIPPED = 100 };

typedef enum direction { PACK, UNPACK } direction;

/* One batched kernel for all parts (or this rank's) that have a gradient: copies between the parameters and
 * a flat tensor in which this rank's segment begins at `origin`. */
static lt_status each_part(lt_optim *o, const lt_tensor *flat, int64_t origin, bool all,
                           direction to, double beta)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    lt_shard *s = o->shard;
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const lt_part *p = &s->part[i];
        if (!p->slot->param->has_grad || (!all && p->owner != s->rank))
            continue;
        const lt_view value = lt_shard_part(o, i, p->slot->param->value);
        const lt_view place = lt_shard_flat(o, i, flat, p->at - origin);
        s->job[count++] = (lt_vec_job){
            .op = LT_VEC_AXPBY,
            .alpha = 1,
            .beta = beta,
            .a = to == PACK ? value : place,
            .y = to == PACK ? place : value,
        };
    }
    return count ? be->vec(ctx, s->job, count, o->scalars) : LT_OK;
}

lt_status lt_shard_begin(lt_optim *o)
{
    lt_shard *s = o->shard;
    if (s->placed)
        return lt_placed_before(o);
    if (!s->differences)
        return LT_OK;
    const int64_t origin = s->begin[s->rank];
    LT_TRY(each_part(o, s->old, origin, false, PACK, 0));
    return each_part(o, s->mine, origin, false, PACK, 0);
}

/* This rank's changed parts, or their differences, to its segment. */
static lt_status pack(lt_optim *o)
{
    lt_shard *s = o->shard;
    if (s->placed)
        return lt_placed_pack(o);
    const int64_t origin = s->begin[s->rank];
    if (s->differences) {
        LT_TRY(each_part(o, s->mine, origin, false, PACK, -1)); /* new - old */
        return each_part(o, s->old, origin, false, UNPACK, 0);
    }
    if (s->config.shard_params)
        return LT_OK;
    if (!o->ops->parts || s->config.gather_params)
        return each_part(o, s->mine, origin, false, PACK, 0);
    return LT_OK; /* it wrote there itself */
}

/* The flag of a rank whose segment begins at `at` of a flat tensor. */
static lt_view flag_of(const lt_shard *s, int rank, const lt_tensor *flat, int64_t at)
{
    lt_view v = lt_tensor_view(flat);
    v.data = (char *)v.data + lt_dtype_size(v.dtype) * (size_t)(at + s->elements[rank] - 1);
    v.shape = LT_SHAPE(1);
    return v;
}

static lt_status write_flag(const lt_optim *o, int flag)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    const lt_view v = flag_of(o->shard, o->shard->rank, o->shard->mine, 0);
    return be->fill(ctx, flag, &v);
}

static lt_status read_flag(const lt_optim *o, int rank, int *flag)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    if (o->shard->placed) {
        *flag = (int)o->shard->placed->header_of[rank];
        return LT_OK;
    }
    const lt_view v = flag_of(o->shard, rank, o->shard->whole, o->shard->begin[rank]);
    float narrow = 0;
    double wide = 0;
    LT_TRY(be->copy(ctx, v.dtype == LT_F64 ? (void *)&wide : &narrow, v.data,
                    lt_dtype_size(v.dtype), LT_COPY_OUT));
    LT_TRY(be->sync(ctx));
    *flag = (int)(v.dtype == LT_F64 ? wide : (double)narrow);
    return LT_OK;
}

static lt_status gather(lt_shard *s)
{
    lt_request *request = NULL;
    const lt_tensor *mine = s->comm_own ? s->comm_own : s->mine;
    lt_tensor *whole = s->comm_whole ? s->comm_whole : s->whole;
    const uint64_t sent = lt_comm_bytes(s->group);
    if (s->comm_own)
        LT_TRY(lt_tensor_copy(s->comm_own, s->mine));
    LT_TRY(lt_comm_allgather_begin(s->group, mine, whole, s->elements, &request));
    LT_TRY(lt_request_wait(&request));
    if (s->owns_group) /* the run's communicator counts all */
        s->config.comm->bytes += lt_comm_bytes(s->group) - sent;
    return s->comm_whole ? lt_tensor_copy(s->whole, s->comm_whole) : LT_OK;
}

/* Reads all status flags: the first rank that failed, and how many skipped the step. */
static lt_status read_flags(const lt_optim *o, int *failed, int *skipped)
{
    const lt_shard *s = o->shard;
    *failed = -1;
    *skipped = 0;
    for (int r = 0; r < s->ranks; r++) {
        int flag = 0;
        LT_TRY(read_flag(o, r, &flag));
        *skipped += flag == SKIPPED;
        if (flag && flag != SKIPPED && *failed < 0)
            *failed = r;
    }
    return LT_OK;
}

static lt_status exchange_flags(lt_optim *o, lt_status st, bool skipped, int *failed, int *skips)
{
    const int flag = st ? (int)st : skipped ? SKIPPED : 0;
    if (o->shard->placed) {
        LT_TRY(lt_placed_send(o, flag));
        return read_flags(o, failed, skips);
    }
    LT_TRY(write_flag(o, flag));
    LT_TRY(gather(o->shard));
    return read_flags(o, failed, skips);
}

/* All gathered parts to the parameters. */
static lt_status spread(lt_optim *o)
{
    lt_shard *s = o->shard;
    if (s->placed)
        return lt_placed_spread(o);
    if (s->config.shard_params)
        return s->adds_updates ? each_part(o, s->updates, 0, false, UNPACK, 1) : LT_OK;
    const bool params = !s->differences && (!o->ops->parts || s->config.gather_params);
    return each_part(o, s->whole, 0, true, UNPACK, params ? 0 : 1);
}

/* Inside a captured graph no status is exchanged: nothing can fail there, and kernels read whether the step is
 * skipped, which is the same on all ranks. */
static lt_status capture_exchange(lt_optim *o, lt_status st)
{
    LT_TRY(st);
    LT_TRY(pack(o));
    LT_TRY(write_flag(o, 0));
    LT_TRY(gather(o->shard));
    return spread(o);
}

static lt_status exchange(lt_optim *o, lt_status st, bool skipped)
{
    lt_shard *s = o->shard;
    int failed = -1, skips = 0;
    char text[512];
    if (o->device->capturing)
        return capture_exchange(o, st);
    if (st && o->device->backend->graphs) { /* others may replay theirs, and read no flags */
        snprintf(text, sizeof text, "%s", lt_error_message());
        lt_comm_abort(s->group);
        return lt_fail(st, "%s", text);
    }
    if (!st && !skipped)
        st = pack(o);
    snprintf(text, sizeof text, "%s", st ? lt_error_message() : "");
    lt_status met = exchange_flags(o, st, skipped, &failed, &skips);
    if (met) { /* or the others would wait for ever */
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
    return spread(o);
}

lt_status lt_shard_finish(lt_optim *o, lt_status st, bool skipped)
{
    const int64_t begin = lt_clock_nanoseconds(), span = lt_trace_begin();
    st = exchange(o, st, skipped);
    o->shard->seconds = (double)(lt_clock_nanoseconds() - begin) * 1e-9;
    lt_trace_end(span, LT_PROFILE_OPTIM, "gather", 0);
    return st;
}

/* --- Numbers --- */

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
    LT_TRY(lt_comm_agree(s->config.comm, all ? LT_OK : LT_E_NOMEM));
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
