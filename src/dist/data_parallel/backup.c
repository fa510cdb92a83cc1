/* Backup workers: a reducer that averages over the first ranks to finish an update. Chen et al., "Revisiting Distributed
 * Synchronous SGD", 2016, arXiv 1604.00981.
 *
 * All buckets of an update are one partial reduction (dist/collectives/partial_reduce.h). It begins with the update, so
 * that this rank's chunks are reduced while it still computes. */

#include "base/alloc.h"
#include "dist/collectives/partial_reduce.h"
#include "dist/data_parallel/state.h"
#include "tensor/statistics.h"
#include "tensor/tensor.h"

#include "lather/stragglers.h"

#include <string.h>

struct lt_dp_backup {
    lt_reducer base;
    lt_comm *group; /* used by `partial` only */
    lt_partial *partial;
    lt_tape *tape;
    int needed;
    bool begun, complete;      /* state of this update */
    int64_t number;            /* sequence number of the last update */
    bool *set, has_set;        /* [size] participants that the caller gave for this update */
    lt_statistics *statistics; /* running statistics before this update */
    bool has_statistics;
    lt_reducer_bytes sent;
    lt_data_parallel_contributions terms;
};

static void cancel_late_backward(void *context)
{
    const lt_dp_backup *b = context;
    lt_tape_cancel(b->tape);
}

/* --- The reducer --- */

static lt_status open_partial_reduction(lt_reducer *self)
{
    lt_dp_backup *b = (lt_dp_backup *)self;
    const size_t buckets = self->buckets;
    int64_t *elements = lt_alloc(buckets, sizeof *elements);
    const void **in = lt_alloc(buckets, sizeof *in);
    lt_status st = elements && in ? LT_OK : LT_E_NOMEM;
    for (size_t i = 0; i < buckets && !st; i++) {
        elements[i] = lt_tensor_count(self->bucket[i].flat);
        in[i] = lt_tensor_view(self->bucket[i].flat).data;
    }
    const lt_partial_config config = {.comm = b->group,
                                      .needed = b->needed,
                                      .dtype = lt_tensor_dtype(self->bucket[0].flat),
                                      .buckets = buckets,
                                      .elements = elements,
                                      .in = in,
                                      .late = cancel_late_backward,
                                      .context = b};
    if (!st)
        st = lt_partial_new(&b->partial, &config);
    lt_free(elements);
    lt_free(in);
    return st;
}

static lt_status begin_update(lt_dp_backup *b)
{
    b->begun = true;
    b->complete = false;
    return lt_partial_begin(b->partial, b->number, b->has_set ? b->set : NULL);
}

static lt_status begin_bucket(lt_reducer *self, size_t bucket)
{
    lt_dp_backup *b = (lt_dp_backup *)self;
    if (!b->begun)
        LT_TRY(begin_update(b));
    lt_partial_mark_ready(b->partial, bucket);
    return LT_OK;
}

static void count_bytes(lt_dp_backup *b)
{
    const lt_partial_counts c = lt_partial_byte_counts(b->partial);
    b->sent.between += c.sent;
    b->terms.received += c.received;
    b->terms.used += c.used;
    b->terms.dropped += c.dropped;
}

/* Copies a bucket's mean to its tensor; the first call of an update waits for all buckets. */
static lt_status finish_bucket(lt_reducer *self, size_t bucket)
{
    lt_dp_backup *b = (lt_dp_backup *)self;
    lt_tensor *flat = self->bucket[bucket].flat;
    if (!b->complete) {
        LT_TRY(lt_partial_wait(b->partial));
        b->complete = true;
        count_bytes(b);
    }
    memcpy(lt_tensor_view(flat).data, lt_partial_bucket_mean(b->partial, bucket),
           lt_tensor_bytes(flat));
    lt_tensor_bump_version(flat);
    return LT_OK;
}

static void bytes_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    *out = ((const lt_dp_backup *)self)->sent;
}

static void close_backup(lt_reducer *self)
{
    lt_dp_backup *b = (lt_dp_backup *)self;
    lt_partial_free(&b->partial);
    lt_statistics_free(&b->statistics);
    lt_comm_close(&b->group);
    lt_free(b->set);
}

static const lt_reducer_ops ops = {
    .kind = "backup",
    .bytes = sizeof(lt_dp_backup),
    .reduces_flags = true,
    .begin = begin_bucket,
    .finish = finish_bucket,
    .sent = bytes_sent,
    .close = close_backup,
    .open = open_partial_reduction,
};

static lt_status check_config(const lt_data_parallel *dp)
{
    const lt_data_parallel_config *c = &dp->config;
    const int ranks = lt_comm_size(dp->comm);
    if (!lt_linked_get_endpoint(dp->comm))
        return lt_fail(LT_E_UNSUPPORTED,
                       "data parallel: backup workers need a communicator built on messages "
                       "(threads, mpi), not %s",
                       dp->comm->ops->kind);
    if (c->needed < 1 || c->needed > ranks)
        return lt_fail(LT_E_ARG, "data parallel: %d of %d ranks needed for an update, want 1 to %d",
                       c->needed, ranks, ranks);
    if (c->sync_bn)
        return lt_fail(
            LT_E_ARG,
            "data parallel: synchronized batch norm waits for all ranks, so it cannot be "
            "combined with updates of the first %d of %d",
            c->needed, ranks);
    if (c->micro_batches)
        return lt_fail(LT_E_ARG, "data parallel: use either backup workers or a deadline (drop "
                                 "compute), not both");
    if (c->compress && strcmp(c->compress, "off") != 0)
        return lt_fail(LT_E_ARG,
                       "data parallel: backup workers cannot be combined with compression %s: a "
                       "late rank's error feedback would be lost",
                       c->compress);
    return LT_OK;
}

lt_status lt_dp_make_backup_reducer(lt_data_parallel *dp)
{
    LT_TRY(check_config(dp));
    lt_dp_backup *b = NULL;
    LT_TRY(LT_ALLOC(&b, 1));
    b->base =
        (lt_reducer){.ops = &ops, .comm = dp->comm, .device = dp->device, .params = dp->params};
    b->tape = dp->tape;
    b->needed = dp->config.needed;
    dp->reducer = &b->base;
    dp->backup = b;
    LT_TRY(LT_ALLOC(&b->set, (size_t)lt_comm_size(dp->comm)));
    return lt_comm_split(dp->comm, 0, lt_comm_rank(dp->comm), &b->group);
}

/* --- Update --- */

lt_status lt_data_parallel_begin_update(lt_data_parallel *dp, int64_t number, const bool *set)
{
    lt_dp_backup *b = dp->backup;
    if (!b)
        return LT_OK;
    LT_ASSERT(!b->begun);
    b->number = number;
    b->has_set = set;
    if (set)
        memcpy(b->set, set, (size_t)lt_comm_size(dp->comm) * sizeof *set);
    if (!b->statistics)
        LT_TRY(lt_statistics_new(&b->statistics, dp->params));
    LT_TRY(lt_statistics_save(b->statistics));
    b->has_statistics = true;
    return b->partial ? begin_update(b) : LT_OK;
}

/* Ends an update. An excluded rank restores its running statistics, so that they do not depend on its progress. */
lt_status lt_dp_end_backup_update(lt_data_parallel *dp)
{
    lt_dp_backup *b = dp->backup;
    if (b->has_statistics && !lt_partial_participants(b->partial)[lt_comm_rank(dp->comm)])
        LT_TRY(lt_statistics_restore(b->statistics));
    b->begun = b->has_set = b->has_statistics = false;
    b->number++;
    return LT_OK;
}

bool lt_data_parallel_is_late(const lt_data_parallel *dp)
{
    return dp->backup && dp->backup->begun && lt_partial_is_late(dp->backup->partial);
}

const bool *lt_data_parallel_participants(const lt_data_parallel *dp)
{
    return dp->backup && dp->backup->partial ? lt_partial_participants(dp->backup->partial) : NULL;
}

lt_data_parallel_contributions lt_data_parallel_count_contributions(const lt_data_parallel *dp)
{
    return dp->backup ? dp->backup->terms : (lt_data_parallel_contributions){0};
}
