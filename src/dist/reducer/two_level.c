/* The mean in two levels: reduce-scatter in each node, all-reduce among the ranks with the same place in their nodes,
 * all-gather in each node. With n ranks on each of m nodes a rank sends 2 (m-1)/m of a bucket's n-th part to other
 * nodes; by one all-reduce over all ranks that is up to n times as much.
 *
 * Terms are added in a fixed order, ranks of a node first, then nodes, and the sum is divided once by all ranks. Each
 * level rounds to the communication dtype. In f16, where a sum overflows before its mean does, both levels make means.
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
    lt_level_comms comms;
    lt_stages *stages;
} two_level;

typedef struct bucket {
    lt_level_shard shard; /* of flat */
    lt_request *request;  /* among peers */
} bucket;

static two_level *of(lt_reducer *self)
{
    return (two_level *)self;
}

static bucket *own_of(lt_reducer *self, size_t index)
{
    return self->bucket[index].own;
}

static lt_status configure(lt_reducer *self)
{
    if (*self->argument)
        return lt_fail(LT_E_ARG, "--compress: reducer two-level takes no argument, not '%s'",
                       self->argument);
    LT_TRY(lt_reducer_need_even_nodes(self, "allreduce"));
    return lt_level_comms_open(&of(self)->comms, self->nodes, self->comm);
}

static bool makes_means(const lt_tensor *flat)
{
    return lt_tensor_dtype(flat) == LT_F16;
}

static lt_status scatter(lt_reducer *self, size_t index)
{
    const bucket *b = own_of(self, index);
    const lt_tensor *flat = self->bucket[index].flat;
    const lt_reduce op = makes_means(flat) ? LT_REDUCE_MEAN : LT_REDUCE_SUM;
    return lt_comm_reducescatter(of(self)->comms.scatter, flat, b->shard.tensor, b->shard.count,
                                 op);
}

static void divide_bf16(uint16_t *x, int64_t n, int by)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = lt_bf16_from_f32(lt_f32_from_bf16(x[i]) / (float)by);
}

static void divide_wide(void *x, int64_t n, lt_dtype dtype, int by)
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

/* A quotient, as the means of one all-reduce are; a device, whose sums have an order of their own, multiplies. */
static lt_status divide(const lt_reducer *self, lt_tensor *shard)
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
        divide_wide(view.data, n, view.dtype, ranks);
    return LT_OK;
}

/* The next bucket's is begun while this one's runs: while one waits for its slowest peer, the card is not idle. */
static lt_status begin_among_peers(lt_reducer *self, size_t index)
{
    bucket *b = own_of(self, index);
    if (!b->shard.tensor) /* of no peer either */
        return LT_OK;
    return lt_comm_allreduce_begin(of(self)->comms.peers, b->shard.tensor,
                                   makes_means(b->shard.tensor) ? LT_REDUCE_MEAN : LT_REDUCE_SUM,
                                   &b->request);
}

static lt_status end_among_peers(lt_reducer *self, size_t index)
{
    bucket *b = own_of(self, index);
    LT_TRY(lt_request_wait(&b->request));
    return !b->shard.tensor || makes_means(b->shard.tensor) ? LT_OK : divide(self, b->shard.tensor);
}

static lt_status gather(lt_reducer *self, size_t index)
{
    const bucket *b = own_of(self, index);
    return lt_comm_allgather(of(self)->comms.gather, b->shard.tensor, self->bucket[index].flat,
                             b->shard.count);
}

static lt_status open(lt_reducer *self)
{
    static lt_stage_fn *const stages[] = {scatter, begin_among_peers, end_among_peers, gather};
    for (size_t i = 0; i < self->buckets; i++)
        LT_TRY(lt_level_shard_open(&own_of(self, i)->shard, of(self)->comms.scatter,
                                   self->bucket[i].flat, lt_tensor_count(self->bucket[i].flat)));
    return lt_stages_open(&of(self)->stages, self, stages, sizeof stages / sizeof *stages);
}

static lt_status begin(lt_reducer *self, size_t index)
{
    return lt_stages_begin(of(self)->stages, index);
}

static lt_status finish(lt_reducer *self, size_t index)
{
    return lt_stages_finish(of(self)->stages, index);
}

static void sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    lt_level_comms_sent(&((const two_level *)self)->comms, out);
}

static void close(lt_reducer *self)
{
    two_level *t = of(self);
    lt_stages_close(&t->stages);
    lt_level_comms_close(&t->comms); /* before the shards that a failure left in flight */
    for (size_t i = 0; i < self->buckets && self->bucket[i].own; i++)
        lt_level_shard_close(&own_of(self, i)->shard);
}

const lt_reducer_ops lt_reducer_two_level = {
    .kind = "two-level",
    .bytes = sizeof(two_level),
    .bucket_bytes = sizeof(bucket),
    .reduces_flags = true,
    .capturable = true,
    .configure = configure,
    .open = open,
    .begin = begin,
    .finish = finish,
    .sent = sent,
    .close = close,
};
