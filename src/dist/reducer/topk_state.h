/* Inside of --compress topk. */
#ifndef LT_DIST_REDUCER_TOPK_STATE_H
#define LT_DIST_REDUCER_TOPK_STATE_H

#include "dist/reducer/hierarchical.h"
#include "dist/reducer/pipeline.h"
#include "dist/reducer/sparse_codec.h"
#include "tensor/tensor.h"

#include "lather/detail/topology.h"
#include "lather/ext/reducer.h"

/* Of a bucket: what this rank works on, its node's shard for the ranks at its place in other nodes. */
typedef struct lt_topk_bucket {
    struct lt_tensor whole; /* the gradients of flat, without flags: flat's memory */
    lt_level_shard shard;   /* of equal places in all nodes */
    lt_sparse pack;
    lt_tensor *message, *arrived; /* u8 [pack.bytes], [nodes, pack.bytes] */
    /* What was not sent yet, unscaled, and what it will be when the update is applied; wide dtype. */
    void *residual, *next;
    uint32_t *index; /* [pack.count] of the selected */
    double scale;    /* of the gradients of this update */
    bool scaled;     /* there is a loss scale */
    bool dense;      /* of this update */
    bool is_dense;   /* of every update: it sends no more bytes so */
    bool finished;   /* next is the finished update's */
    bool non_finite; /* the update's numbers are not all finite: next is worth nothing */
} lt_topk_bucket;

typedef struct lt_topk {
    lt_reducer base;
    double density;
    bool no_feedback; /* residuals stay zero: a control */
    lt_nodes nodes;   /* where base.nodes is NULL */
    lt_level_comms comms;
    lt_stages *stages;
    int64_t *bytes;        /* [nodes] scratch */
    lt_dtype wide;         /* of residuals and sums: f64 on a device of f64, else f32 */
    void *sum, *workspace; /* of the longest shard */
    /* [params] this node's residual in the shape of each trained parameter, else NULL: between a visit or
     * a gather and the next update, or open. NULL: none. */
    lt_tensor **kept;
} lt_topk;

static inline const lt_nodes *lt_topk_nodes(const lt_topk *t)
{
    return t->base.nodes ? t->base.nodes : &t->nodes;
}

static inline lt_topk_bucket *lt_topk_bucket_of(const lt_topk *t, size_t bucket)
{
    return (lt_topk_bucket *)t->base.bucket[bucket].own;
}

/* Host memory of a tensor that may be NULL. */
static inline void *lt_topk_data(const lt_tensor *tensor)
{
    return tensor ? lt_tensor_view(tensor).data : NULL;
}

/* topk_exchange.c: from the node's shard to the mean over all, in the shard. Collective among peers. */
LT_MUST_CHECK lt_status lt_topk_exchange(lt_topk *t, lt_topk_bucket *b);
/* Says which gradient of this rank is not finite. */
void lt_topk_name_non_finite(const lt_topk *t, const lt_reducer_bucket *bucket, bool scaled);

/* topk_state.c: entries of the ops' table. */
lt_status lt_topk_gather(lt_reducer *self);
lt_status lt_topk_visit(lt_reducer *self, lt_state_visitor *visitor);
lt_status lt_topk_loaded(lt_reducer *self);
void lt_topk_drop_kept(lt_topk *t);

#endif
