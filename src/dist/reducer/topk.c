/* Top-k compression, --compress topk:DENSITY. Shi, Zhou, Song et al., "Towards Scalable Distributed Training of Deep
 * Learning on Public Cloud Clusters", MLSys 2021, section 3.2 (HiTopKComm): reduce-scatter a bucket within each node;
 * all-gather the largest elements of each shard among its peers in other nodes, and sum them; all-gather the shards within
 * each node. Error feedback adds the unsent elements to the next update: Stich, Cordonnier and Jaggi, "Sparsified SGD
 * with Memory", NeurIPS 2018, algorithm 1.
 *
 * Error feedback changes only in commit_residual(true): a skipped update leaves it unchanged. */

#include "base/alloc.h"
#include "base/parallel.h"
#include "dist/comm/comm.h"
#include "dist/reducer/costs.h"
#include "dist/reducer/kinds.h"
#include "dist/reducer/topk_state.h"
#include "tensor/backend/select.h"

#include "lather/log.h"

#include <stdlib.h>
#include <string.h>

static lt_topk_reducer *topk_of(lt_reducer *self)
{
    return (lt_topk_reducer *)self;
}

static lt_status parse_argument(lt_topk_reducer *t)
{
    char *end;
    const char *text = t->base.argument;
    t->density = strtod(text, &end);
    t->no_feedback = !strcmp(end, ",no-feedback");
    if (end == text || (*end && !t->no_feedback) || !(t->density > 0 && t->density <= 1))
        return lt_fail(LT_E_ARG,
                       "--compress topk:%s: want topk:DENSITY or topk:DENSITY,no-feedback, "
                       "with a density in (0,1]",
                       text);
    return LT_OK;
}

static lt_status configure_topk(lt_reducer *self)
{
    lt_topk_reducer *t = topk_of(self);
    t->wide = lt_device_master_dtype(self->device);
    LT_TRY(parse_argument(t));
    if (!self->device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "--compress topk: needs a device with host memory (ref or cpu), got %s",
                       self->device->name);
    LT_TRY(self->nodes ? lt_reducer_check_even_nodes(self, "compress")
                       : lt_comm_nodes(&t->nodes, self->comm, 1));
    LT_TRY(LT_ALLOC(&t->bytes, (size_t)lt_topk_nodes(t)->count));
    return lt_hier_comms_open(&t->comms, lt_topk_nodes(t), self->comm);
}

/* Returns true if a dense all-reduce sends no more: the all-gather of m nodes' messages sends (m-1) message bytes, the
 * dense all-reduce 2 (m-1)/m shard bytes. */
static bool is_dense(const lt_topk_reducer *t, const lt_topk_bucket *b)
{
    const int64_t nodes = lt_topk_nodes(t)->count;
    const int64_t dense = 2 * b->shard.elements * (int64_t)lt_dtype_size(b->pack.dtype);
    return nodes == 1 || nodes * b->pack.bytes >= dense;
}

static lt_status make_memory(const lt_topk_reducer *t, lt_topk_bucket *b)
{
    const int nodes = lt_topk_nodes(t)->count;
    const size_t n = (size_t)b->shard.elements, size = lt_dtype_size(t->wide);
    b->residual = lt_alloc(n + 1, size);
    b->next = lt_alloc(n + 1, size);
    b->index = lt_alloc((size_t)b->pack.count + 1, sizeof *b->index);
    if (!b->residual || !b->next || !b->index)
        return LT_E_NOMEM;
    if (!n || b->is_dense)
        return LT_OK;
    LT_TRY(lt_tensor_new(&b->message, t->base.device, LT_U8, LT_SHAPE(b->pack.bytes)));
    return lt_tensor_new(&b->arrived, t->base.device, LT_U8, LT_SHAPE(nodes, b->pack.bytes));
}

static lt_status open_bucket(const lt_topk_reducer *t, const lt_reducer_bucket *bucket)
{
    lt_topk_bucket *b = bucket->own;
    LT_TRY(lt_hier_shard_open(&b->shard, t->comms.scatter, bucket->flat, bucket->elements));
    b->whole = *bucket->flat;
    b->whole.shape = LT_SHAPE(bucket->elements);
    b->pack =
        lt_sparse_layout(b->shard.elements, lt_sparse_count_selected(t->density, b->shard.elements),
                         lt_tensor_dtype(bucket->flat));
    b->is_dense = is_dense(t, b);
    return make_memory(t, b);
}

static lt_status reduce_scatter_in_node(lt_reducer *self, size_t bucket)
{
    lt_topk_reducer *t = topk_of(self);
    lt_topk_bucket *b = lt_topk_bucket_of(t, bucket);
    lt_topk_log_non_finite(t, &self->bucket[bucket], b->scaled);
    return lt_comm_reducescatter(t->comms.scatter, &b->whole, b->shard.tensor, b->shard.count,
                                 LT_REDUCE_MEAN);
}

static lt_status exchange_between_nodes(lt_reducer *self, size_t bucket)
{
    lt_parallel_set_threads(1); /* the tape uses the others */
    return lt_topk_exchange(topk_of(self), lt_topk_bucket_of(topk_of(self), bucket));
}

static lt_status allgather_in_node(lt_reducer *self, size_t bucket)
{
    lt_topk_reducer *t = topk_of(self);
    lt_topk_bucket *b = lt_topk_bucket_of(t, bucket);
    return lt_comm_allgather(t->comms.gather, b->shard.tensor, &b->whole, b->shard.count);
}

static lt_status open_topk(lt_reducer *self)
{
    static lt_stage_fn *const stages[] = {reduce_scatter_in_node, exchange_between_nodes,
                                          allgather_in_node};
    lt_topk_reducer *t = topk_of(self);
    int64_t longest = 1;
    bool all_dense = true;
    for (size_t i = 0; i < self->buckets; i++) {
        LT_TRY(open_bucket(t, &self->bucket[i]));
        const lt_topk_bucket *b = lt_topk_bucket_of(t, i);
        longest = b->shard.elements > longest ? b->shard.elements : longest;
        all_dense = all_dense && b->is_dense;
    }
    t->sum = lt_alloc((size_t)longest, lt_dtype_size(t->wide));
    t->workspace = lt_alloc(1, lt_select_workspace(longest));
    if (!t->sum || !t->workspace)
        return LT_E_NOMEM;
    if (all_dense)
        lt_log(
            LT_LOG_INFO, "dist",
            "compress topk: with %d nodes and density %g compressed gradients are not smaller, so "
            "they are sent uncompressed",
            lt_topk_nodes(t)->count, t->density);
    LT_TRY(lt_topk_finish_load(self));
    return lt_pipeline_open(&t->pipeline, self, stages, sizeof stages / sizeof *stages);
}

static lt_status begin_bucket(lt_reducer *self, size_t bucket)
{
    lt_topk_reducer *t = topk_of(self);
    lt_topk_bucket *b = lt_topk_bucket_of(t, bucket);
    lt_topk_free_gathered(t);
    b->dense = b->is_dense || self->dense;
    b->finished = false;
    b->scale = self->loss_scale ? *(const double *)lt_topk_host_data(self->loss_scale) : 1;
    b->scaled = b->scale > 1; /* without a loss scale an overflow is worth a warning */
    return lt_pipeline_begin(t->pipeline, bucket);
}

static lt_status finish_bucket(lt_reducer *self, size_t bucket)
{
    return lt_pipeline_finish(topk_of(self)->pipeline, bucket);
}

/* Keeps the error feedback of parameters without a gradient on any rank: they were not updated. */
static void keep_unused_residual(const lt_topk_reducer *t, const lt_reducer_bucket *bucket,
                                 lt_topk_bucket *b)
{
    const int64_t size = (int64_t)lt_dtype_size(t->wide);
    int64_t from, to;
    for (size_t p = 0; p < bucket->parts; p++) {
        const lt_reducer_part *part = &bucket->part[p];
        if (part->param->has_grad || !lt_hier_shard_intersects(&b->shard, part, &from, &to))
            continue;
        const int64_t at = (from - b->shard.first) * size;
        memcpy((char *)b->next + at, (const char *)b->residual + at, (size_t)((to - from) * size));
    }
}

static lt_status commit_residual(lt_reducer *self, bool applied)
{
    lt_topk_reducer *t = topk_of(self);
    for (size_t i = 0; i < self->buckets; i++) {
        lt_topk_bucket *b = lt_topk_bucket_of(t, i);
        if (applied && b->finished && !b->non_finite && !t->no_feedback) {
            keep_unused_residual(t, &self->bucket[i], b);
            void *old = b->residual;
            b->residual = b->next;
            b->next = old;
        }
        b->finished = false;
    }
    return LT_OK;
}

static void bytes_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    lt_hier_comms_bytes_sent(&((const lt_topk_reducer *)self)->comms, out);
}

static void close_topk(lt_reducer *self)
{
    lt_topk_reducer *t = topk_of(self);
    lt_pipeline_close(&t->pipeline);
    for (size_t i = 0; i < self->buckets; i++) {
        lt_topk_bucket *b = lt_topk_bucket_of(t, i);
        if (!b)
            continue;
        lt_hier_shard_close(&b->shard);
        lt_tensor_free(&b->message);
        lt_tensor_free(&b->arrived);
        lt_free(b->residual);
        lt_free(b->next);
        lt_free(b->index);
    }
    lt_topk_free_gathered(t);
    lt_free(t->sum);
    lt_free(t->workspace);
    lt_free(t->bytes);
    lt_hier_comms_close(&t->comms);
    lt_nodes_clear(&t->nodes);
}

const lt_reducer_ops lt_reducer_topk = {
    .kind = "topk",
    .cost = &lt_cost_topk,
    .bytes = sizeof(lt_topk_reducer),
    .bucket_bytes = sizeof(lt_topk_bucket),
    .configure = configure_topk,
    .open = open_topk,
    .begin = begin_bucket,
    .finish = finish_bucket,
    .commit = commit_residual,
    .gather = lt_topk_gather,
    .visit = lt_topk_visit,
    .loaded = lt_topk_finish_load,
    .sent = bytes_sent,
    .close = close_topk,
};
