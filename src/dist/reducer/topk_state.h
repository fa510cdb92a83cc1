/* Private declarations of --compress topk. */
#ifndef LT_DIST_REDUCER_TOPK_STATE_H
#define LT_DIST_REDUCER_TOPK_STATE_H

#include "dist/reducer/hierarchical.h"
#include "dist/reducer/pipeline.h"
#include "dist/reducer/sparse_codec.h"
#include "tensor/tensor.h"

#include "lather/detail/topology.h"
#include "lather/ext/reducer.h"

/* State of a bucket of gradients. */
typedef struct lt_topk_bucket {
    struct lt_tensor whole; /* view of the gradients in flat, without flags */
    lt_hier_shard shard;    /* this rank's shard in its node; its peers hold the same elements */
    lt_sparse pack;         /* layout of the message */
    lt_tensor *message, *arrived; /* u8: own [pack.bytes], all nodes' [nodes, pack.bytes] */
    /* Error feedback without loss scale, current and after this update; wide dtype. */
    void *residual, *next;
    uint32_t *index; /* [pack.count] indices of the selected elements */
    double scale;    /* loss scale of this update */
    bool scaled;     /* a loss scale is in use */
    bool dense;      /* this update sends all elements */
    bool is_dense;   /* every update sends all elements, as a sparse message is not smaller */
    bool finished;   /* `next` belongs to the finished update */
    bool non_finite; /* an element of the update is not finite, so next is invalid */
} lt_topk_bucket;

typedef struct lt_topk_reducer {
    lt_reducer base;
    double density;
    bool no_feedback; /* keep error feedback zero, for comparison */
    lt_nodes nodes;   /* each rank as a node, used if base.nodes is NULL */
    lt_hier_comms comms;
    lt_pipeline *pipeline;
    int64_t *bytes;        /* [nodes] bytes of each node's message */
    lt_dtype wide;         /* dtype of error feedback and sums: f64 on a device of f64, else f32 */
    void *sum, *workspace; /* buffers sized for the longest shard */
    /* [params] this node's error feedback in the shape of each trained parameter (NULL for others); exists from a visit
     * or gather until the next update or open, else NULL. */
    lt_tensor **gathered;
} lt_topk_reducer;

static inline const lt_nodes *lt_topk_nodes(const lt_topk_reducer *t)
{
    return t->base.nodes ? t->base.nodes : &t->nodes;
}

static inline lt_topk_bucket *lt_topk_bucket_of(const lt_topk_reducer *t, size_t bucket)
{
    return (lt_topk_bucket *)t->base.bucket[bucket].own;
}

/* Returns the tensor's host memory. */
static inline void *lt_topk_host_data(const lt_tensor *tensor)
{
    return lt_tensor_view(tensor).data;
}

/* topk_exchange.c: turns the shard, its node's mean, into the mean over all ranks. Collective among peers. */
LT_MUST_CHECK lt_status lt_topk_exchange(lt_topk_reducer *t, lt_topk_bucket *b);
/* Logs the first gradient of this rank that is not finite. */
void lt_topk_log_non_finite(const lt_topk_reducer *t, const lt_reducer_bucket *bucket, bool scaled);

/* topk_state.c: functions of the reducer's table. */
lt_status lt_topk_gather(lt_reducer *self);
lt_status lt_topk_visit(lt_reducer *self, lt_state_visitor *visitor);
lt_status lt_topk_finish_load(lt_reducer *self);
void lt_topk_free_gathered(lt_topk_reducer *t);

#endif
