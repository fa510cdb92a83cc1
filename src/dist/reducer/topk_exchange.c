/* Exchange of --compress topk between nodes: w = shard + error feedback; its largest elements are sent to the peers, the
 * rest becomes the next error feedback. w has the loss scale of the gradients, error feedback has none. */

#include "dist/comm/comm.h"
#include "dist/comm/element.h"
#include "dist/reducer/topk_state.h"
#include "tensor/backend/select.h"

#include "lather/log.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Returns true if elements first to first + n - 1 are finite: none has an exponent of all ones. */
static bool is_finite(lt_dtype dtype, const void *x, int64_t first, int64_t n)
{
    const uint16_t *half = (const uint16_t *)x + first, all = dtype == LT_F16 ? 0x7c00 : 0x7f80;
    const float *f = (const float *)x + first;
    bool bad = false;
    if (dtype == LT_F64)
        for (int64_t i = 0; i < n; i++)
            bad |= !isfinite(((const double *)x)[first + i]);
    else if (dtype == LT_F32)
        for (int64_t i = 0; i < n; i++)
            bad |= !(fabsf(f[i]) <= FLT_MAX);
    else
        for (int64_t i = 0; i < n; i++)
            bad |= (half[i] & all) == all;
    return !bad;
}

/* Computes w = shard + error feedback in b->next; returns false if an element is not finite. */
static bool add_residual(const lt_topk_reducer *t, lt_topk_bucket *b)
{
    const int nodes = lt_topk_nodes(t)->count;
    const float *f = lt_topk_host_data(b->shard.tensor), *e = b->residual;
    float *next = b->next;
    bool bad = false;
    if (b->pack.dtype == LT_F32 && t->wide == LT_F32) {
        for (int64_t i = 0; i < b->shard.elements; i++) {
            next[i] = f[i] / (float)nodes + e[i] * (float)b->scale;
            bad |= !(fabsf(next[i]) <= FLT_MAX);
        }
        return !bad;
    }
    for (int64_t i = 0; i < b->shard.elements; i++)
        lt_element_set(t->wide, b->next, i,
                       lt_element(b->pack.dtype, f, i) / nodes
                           + lt_element(t->wide, e, i) * b->scale);
    return is_finite(t->wide, b->next, 0, b->shard.elements);
}

/* Copies the values of `from`, of the wide dtype, to the shard, in its dtype. */
static void narrow_to_shard(const lt_topk_reducer *t, const lt_topk_bucket *b, const void *from)
{
    void *shard = lt_topk_host_data(b->shard.tensor);
    if (b->pack.dtype == t->wide) {
        memcpy(shard, from, (size_t)b->shard.elements * lt_dtype_size(t->wide));
        return;
    }
    for (int64_t i = 0; i < b->shard.elements; i++)
        lt_element_set(b->pack.dtype, shard, i, lt_element(t->wide, from, i));
}

static void remove_loss_scale(const lt_topk_reducer *t, lt_topk_bucket *b)
{
    for (int64_t i = 0; i < b->shard.elements && b->scale != 1; i++)
        lt_element_set(t->wide, b->next, i, lt_element(t->wide, b->next, i) / b->scale);
}

/* All-reduces w = shard + error feedback uncompressed, which leaves no error feedback. */
static lt_status exchange_all(lt_topk_reducer *t, lt_topk_bucket *b)
{
    narrow_to_shard(t, b, b->next);
    memset(b->next, 0, (size_t)b->shard.elements * lt_dtype_size(t->wide));
    return lt_comm_allreduce(t->comms.peers, b->shard.tensor, LT_REDUCE_SUM);
}

static lt_status select_largest(const lt_topk_reducer *t, const lt_topk_bucket *b)
{
    const int64_t count = b->pack.count;
    if (t->wide == LT_F32)
        return lt_select_topk(b->next, b->shard.elements, count, b->index, t->workspace);
    return lt_select_topk_f64(b->next, b->shard.elements, count, b->index);
}

/* Adds the messages in the order of nodes, for bitwise identical sums on all ranks. */
static lt_status add_messages(lt_topk_reducer *t, lt_topk_bucket *b)
{
    const unsigned char *arrived = lt_topk_host_data(b->arrived);
    const bool is_wide = b->pack.dtype == t->wide;
    void *sum = is_wide ? lt_topk_host_data(b->shard.tensor) : t->sum;
    memset(sum, 0, (size_t)b->shard.elements * lt_dtype_size(t->wide));
    for (int n = 0; n < lt_topk_nodes(t)->count; n++)
        LT_TRY(lt_sparse_add_message(&b->pack, arrived + n * b->pack.bytes, 1, sum, t->wide));
    if (!is_wide)
        narrow_to_shard(t, b, sum);
    return LT_OK;
}

static lt_status exchange_largest(lt_topk_reducer *t, lt_topk_bucket *b)
{
    int64_t *count = t->bytes;
    lt_request *request = NULL;
    for (int n = 0; n < lt_topk_nodes(t)->count; n++)
        count[n] = b->pack.bytes;
    LT_TRY(select_largest(t, b));
    lt_sparse_encode(&b->pack, b->next, b->index, lt_topk_host_data(b->message));
    LT_TRY(lt_comm_allgather_begin(t->comms.peers, b->message, b->arrived, count, &request));
    /* Error feedback also keeps the rounding error of 16-bit values. */
    lt_status st =
        lt_sparse_add_message(&b->pack, lt_topk_host_data(b->message), -1, b->next, t->wide);
    remove_loss_scale(t, b);
    const lt_status received = lt_request_wait(&request);
    if (st || received)
        return st ? st : received;
    return add_messages(t, b);
}

lt_status lt_topk_exchange(lt_topk_reducer *t, lt_topk_bucket *b)
{
    b->non_finite = b->shard.elements && !add_residual(t, b);
    b->finished = true;
    if (!b->shard.elements)
        return LT_OK;
    return b->dense ? exchange_all(t, b) : exchange_largest(t, b);
}

void lt_topk_log_non_finite(const lt_topk_reducer *t, const lt_reducer_bucket *bucket, bool scaled)
{
    const lt_dtype dtype = lt_tensor_dtype(bucket->flat);
    const void *flat = lt_topk_host_data(bucket->flat);
    for (size_t p = 0; p < bucket->parts; p++) {
        const lt_reducer_part *part = &bucket->part[p];
        if (is_finite(dtype, flat, part->offset, part->elements))
            continue;
        lt_log(
            scaled ? LT_LOG_DEBUG : LT_LOG_WARN, "dist",
            "compress topk: rank %d: the gradient of %s is not finite; error feedback is unchanged",
            lt_comm_rank(t->base.comm), part->param->name);
        return;
    }
}
