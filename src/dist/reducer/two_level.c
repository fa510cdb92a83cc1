/* Hierarchical all-reduce: reduce-scatter within each node, all-reduce among peers (the ranks with the same local rank),
 * all-gather within each node. With n ranks on each of m nodes a rank sends 2 (m-1)/m of an n-th of a bucket to other
 * nodes; a flat all-reduce sends up to n times as much.
 *
 * The order of addition is fixed: ranks of a node, then nodes. The sum is divided once, by the number of ranks. Each
 * level rounds to the communication dtype. In f16, where a sum may overflow although its mean does not, both levels
 * average instead.
 * Source: Jia et al., "Highly Scalable Deep Learning Training System with Mixed-Precision: Training ImageNet in Four
 * Minutes", 2018 (hierarchical all-reduce). */

#include "base/alloc.h"
#include "dist/comm/comm.h"
#include "dist/reducer/hierarchical.h"
#include "dist/reducer/kinds.h"
#include "dist/reducer/pipeline.h"
#include "tensor/backend/dtype.h"
#include "tensor/tensor.h"

#include "lather/detail/view.h"

typedef struct two_level {
    lt_reducer base;
    lt_hier_comms comms;
    lt_pipeline *pipeline;
} two_level;

typedef struct bucket {
    lt_hier_shard shard; /* this rank's shard of flat within its node */
    lt_request *request; /* all-reduce among peers */
} bucket;

static two_level *two_level_of(lt_reducer *self)
{
    return (two_level *)self;
}

static bucket *bucket_state(lt_reducer *self, size_t index)
{
    return self->bucket[index].own;
}

static lt_status configure_two_level(lt_reducer *self)
{
    if (*self->argument)
        return lt_fail(LT_E_ARG, "--compress: reducer two-level takes no argument, not '%s'",
                       self->argument);
    LT_TRY(lt_reducer_check_even_nodes(self, "allreduce"));
    return lt_hier_comms_open(&two_level_of(self)->comms, self->nodes, self->comm);
}

static bool is_averaged_per_level(const lt_tensor *flat)
{
    return lt_tensor_dtype(flat) == LT_F16;
}

static lt_status reduce_scatter_in_node(lt_reducer *self, size_t index)
{
    const bucket *b = bucket_state(self, index);
    const lt_tensor *flat = self->bucket[index].flat;
    const lt_reduce op = is_averaged_per_level(flat) ? LT_REDUCE_MEAN : LT_REDUCE_SUM;
    return lt_comm_reducescatter(two_level_of(self)->comms.scatter, flat, b->shard.tensor,
                                 b->shard.count, op);
}

static void divide_bf16(uint16_t *x, int64_t n, int by)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = lt_bf16_from_f32(lt_f32_from_bf16(x[i]) / (float)by);
}

static void divide_f32_or_f64(void *x, int64_t n, lt_dtype dtype, int by)
{
    float *f = x;
    double *d = x;
    if (dtype == LT_F32)
        for (int64_t i = 0; i < n; i++)
            f[i] /= (float)by;
    else
        for (int64_t i = 0; i < n; i++)
            d[i] /= by;
}

/* Divides by the number of ranks, as a flat all-reduce does; a device, whose order of addition differs anyway,
 * multiplies. */
static lt_status divide_by_ranks(const lt_reducer *self, lt_tensor *shard)
{
    const lt_backend *be = self->device->backend;
    const lt_view view = lt_tensor_view(shard);
    const int64_t n = lt_tensor_count(shard);
    const int ranks = self->comm->size;
    if (!be->host_memory)
        return be->scale(self->device->ctx, 1.0 / ranks, &view, &view);
    if (view.dtype == LT_BF16)
        divide_bf16(view.data, n, ranks);
    else
        divide_f32_or_f64(view.data, n, view.dtype, ranks);
    return LT_OK;
}

/* Separate begin and finish stages let the next bucket's all-reduce start while this one waits for its slowest peer,
 * which keeps the NIC busy. */
static lt_status begin_allreduce(lt_reducer *self, size_t index)
{
    bucket *b = bucket_state(self, index);
    if (!b->shard.tensor) /* empty on all peers */
        return LT_OK;
    return lt_comm_allreduce_begin(
        two_level_of(self)->comms.peers, b->shard.tensor,
        is_averaged_per_level(b->shard.tensor) ? LT_REDUCE_MEAN : LT_REDUCE_SUM, &b->request);
}

static lt_status finish_allreduce(lt_reducer *self, size_t index)
{
    bucket *b = bucket_state(self, index);
    LT_TRY(lt_request_wait(&b->request));
    return !b->shard.tensor || is_averaged_per_level(b->shard.tensor)
               ? LT_OK
               : divide_by_ranks(self, b->shard.tensor);
}

static lt_status allgather_in_node(lt_reducer *self, size_t index)
{
    const bucket *b = bucket_state(self, index);
    return lt_comm_allgather(two_level_of(self)->comms.gather, b->shard.tensor,
                             self->bucket[index].flat, b->shard.count);
}

static lt_status open_two_level(lt_reducer *self)
{
    static lt_stage_fn *const stages[] = {reduce_scatter_in_node, begin_allreduce, finish_allreduce,
                                          allgather_in_node};
    for (size_t i = 0; i < self->buckets; i++)
        LT_TRY(lt_hier_shard_open(&bucket_state(self, i)->shard, two_level_of(self)->comms.scatter,
                                  self->bucket[i].flat, lt_tensor_count(self->bucket[i].flat)));
    return lt_pipeline_open(&two_level_of(self)->pipeline, self, stages,
                            sizeof stages / sizeof *stages);
}

static lt_status begin_bucket(lt_reducer *self, size_t index)
{
    return lt_pipeline_begin(two_level_of(self)->pipeline, index);
}

static lt_status finish_bucket(lt_reducer *self, size_t index)
{
    return lt_pipeline_finish(two_level_of(self)->pipeline, index);
}

static void bytes_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    lt_hier_comms_bytes_sent(&((const two_level *)self)->comms, out);
}

static void close_two_level(lt_reducer *self)
{
    two_level *t = two_level_of(self);
    lt_pipeline_close(&t->pipeline);
    lt_hier_comms_close(&t->comms); /* before the shards: a failure may have left them in flight */
    for (size_t i = 0; i < self->buckets && self->bucket[i].own; i++)
        lt_hier_shard_close(&bucket_state(self, i)->shard);
}

const lt_reducer_ops lt_reducer_two_level = {
    .kind = "two-level",
    .bytes = sizeof(two_level),
    .bucket_bytes = sizeof(bucket),
    .reduces_flags = true,
    .capturable = true,
    .configure = configure_two_level,
    .open = open_two_level,
    .begin = begin_bucket,
    .finish = finish_bucket,
    .sent = bytes_sent,
    .close = close_two_level,
};
