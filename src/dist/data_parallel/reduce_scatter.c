/* Gradients of which each rank receives only the parts that it owns: buckets are reduce-scattered (ZeRO stage 2).
 * Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 5.2.
 *
 * A bucket has a chunk per rank: the rank's parts of the bucket's gradients, in the order of the gradients, then the
 * flags of all gradients, so that every rank learns which exist. Sums are in rank order and bitwise identical to those
 * of an all-reduce. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "dist/data_parallel/state.h"
#include "dist/reducer/kinds.h"
#include "tensor/tensor.h"

#include "lather/detail/gradient_parts.h"

#include <inttypes.h>
#include <stdio.h>

/* Chunks of a bucket. */
typedef struct chunks {
    int64_t *count; /* [ranks] elements of each rank's chunk */
    lt_tensor *own; /* the mean of this rank's chunk */
    lt_request *request;
} chunks;

/* A reducer that leaves the mean in the chunks, not in the bucket. */
struct lt_dp_scatter {
    lt_reducer base;
    lt_reducer_bytes sent;
    lt_gradient_parts parts;
    size_t *first;      /* [members + 1] index of each member's first part */
    int64_t *at;        /* [parts] element offset of each part in its bucket */
    chunks *chunks;     /* [max_buckets] */
    size_t max_buckets; /* upper bound of the number of buckets */
    int ranks, rank;
};

/* --- Parts --- */

static lt_status check_gradient_parts(const lt_data_parallel *dp, const lt_dp_scatter *d,
                                      size_t index)
{
    const lt_param *param = dp->member[index].param;
    const int64_t want = lt_tensor_count(param->grad);
    int64_t elements = 0;
    for (size_t i = d->first[index]; i < d->first[index + 1]; i++) {
        const lt_gradient_part *p = &d->parts.part[i];
        if (p->owner < 0 || p->owner >= d->ranks)
            return lt_fail(LT_E_ARG, "data parallel: a part of %s has owner %d, want 0 to %d",
                           param->name, p->owner, d->ranks - 1);
        elements += p->elements;
    }
    if (elements != want)
        return lt_fail(LT_E_ARG,
                       "data parallel: the parts of %s have %" PRId64 " elements, it has %" PRId64,
                       param->name, elements, want);
    return LT_OK;
}

static lt_status assign_parts_to_members(const lt_data_parallel *dp, lt_dp_scatter *d)
{
    size_t next = 0;
    for (size_t i = 0; i < dp->members; i++) {
        d->first[i] = next;
        while (next < d->parts.count && d->parts.part[next].param == dp->member[i].param)
            next++;
        d->first[i + 1] = next;
        LT_TRY(check_gradient_parts(dp, d, i));
    }
    if (next != d->parts.count)
        return lt_fail(LT_E_ARG,
                       "data parallel: only the first %zu of %zu parts follow the order of the "
                       "parameters",
                       next, d->parts.count);
    return LT_OK;
}

static lt_status check_same_partition(const lt_data_parallel *dp, const lt_dp_scatter *d)
{
    char text[64];
    uint32_t sum = 0;
    for (size_t i = 0; i < d->parts.count; i++) {
        const int64_t what[] = {d->parts.part[i].elements, d->parts.part[i].owner};
        sum = lt_crc32c(sum, what, sizeof what);
    }
    snprintf(text, sizeof text, "%zu parts, sum %08x", d->parts.count, (unsigned)sum);
    return lt_comm_check_same(dp->comm, "the partition of gradients", text);
}

/* Enlarges dp->job, if used, to one copy per part. */
static lt_status grow_copy_jobs(lt_data_parallel *dp, size_t count)
{
    if (!dp->job || count <= dp->members)
        return LT_OK;
    lt_free(dp->job);
    return LT_ALLOC(&dp->job, count);
}

static lt_status prepare_scatter(lt_data_parallel *dp, lt_dp_scatter *d)
{
    if (dp->bucket || dp->begun)
        return lt_fail(LT_E_ARG,
                       "data parallel: shard gradients before the first update, not after it");
    if (dp->reducer->ops != &lt_reducer_plain)
        return lt_fail(
            LT_E_ARG,
            "data parallel: sharded gradients cannot be combined with reducer %s; use no "
            "compression and a flat all-reduce",
            dp->reducer->ops->kind);
    if (lt_dp_has_micro_batch_count(dp))
        return lt_fail(LT_E_ARG,
                       "data parallel: sharded gradients cannot be combined with a deadline");
    d->max_buckets = dp->members;
    LT_TRY(LT_ALLOC(&d->first, dp->members + 1));
    LT_TRY(LT_ALLOC(&d->at, d->parts.count));
    LT_TRY(LT_ALLOC(&d->chunks, d->max_buckets));
    LT_TRY(assign_parts_to_members(dp, d));
    LT_TRY(check_same_partition(dp, d));
    return grow_copy_jobs(dp, d->parts.count);
}

bool lt_dp_has_transient_gradients(const lt_data_parallel *dp)
{
    return dp->scatter && dp->scatter->parts.releases;
}

/* --- The reducer --- */

static lt_status begin_bucket(lt_reducer *self, size_t bucket)
{
    lt_dp_scatter *d = (lt_dp_scatter *)self;
    const lt_nodes *nodes = self->nodes;
    const lt_tensor *flat = self->bucket[bucket].flat;
    chunks *s = &d->chunks[bucket];
    LT_TRY(lt_comm_reducescatter_begin(self->comm, flat, s->own, s->count, self->op, &s->request));
    for (int r = 0; r < d->ranks; r++)
        if (r != d->rank)
            *(nodes && nodes->of[r] == nodes->index ? &d->sent.within : &d->sent.between) +=
                (uint64_t)s->count[r] * lt_dtype_size(lt_tensor_dtype(flat));
    return LT_OK;
}

static lt_status finish_bucket(lt_reducer *self, size_t bucket)
{
    return lt_request_wait(&((lt_dp_scatter *)self)->chunks[bucket].request);
}

static void bytes_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    *out = ((const lt_dp_scatter *)self)->sent;
}

static void close_scatter(lt_reducer *self)
{
    lt_dp_scatter *d = (lt_dp_scatter *)self;
    for (size_t i = 0; i < d->max_buckets && d->chunks; i++) {
        lt_tensor_free(&d->chunks[i].own);
        lt_free(d->chunks[i].count);
    }
    lt_free(d->chunks);
    lt_free(d->parts.part);
    lt_free(d->first);
    lt_free(d->at);
}

static const lt_reducer_ops ops = {
    .kind = "scattered",
    .bytes = sizeof(lt_dp_scatter),
    .reduces_flags = true,
    .capturable = true,
    .begin = begin_bucket,
    .finish = finish_bucket,
    .sent = bytes_sent,
    .close = close_scatter,
};

static lt_dp_scatter *new_scatter(const lt_data_parallel *dp, const lt_gradient_parts *parts)
{
    lt_dp_scatter *d = lt_alloc(1, sizeof *d);
    if (!d) {
        lt_free(parts->part);
        return NULL;
    }
    d->base.ops = &ops;
    d->base.comm = dp->comm;
    d->base.device = dp->device;
    d->base.nodes = dp->config.nodes;
    d->base.params = dp->params;
    d->base.op = dp->reducer->op;
    d->parts = *parts;
    d->parts.releases = parts->releases && lt_comm_size(dp->comm) > 1; /* one rank owns all */
    d->ranks = lt_comm_size(dp->comm);
    d->rank = lt_comm_rank(dp->comm);
    return d;
}

lt_status lt_dp_open_scatter(lt_data_parallel *dp, const lt_gradient_parts *parts)
{
    lt_dp_scatter *d = new_scatter(dp, parts);
    if (!d)
        return LT_E_NOMEM;
    lt_reducer *reducer = &d->base;
    lt_status st = prepare_scatter(dp, d);
    if (!st) {
        reducer = dp->reducer;
        dp->reducer = &d->base;
        dp->scatter = d;
    }
    lt_reducer_free(&reducer);
    return st;
}

/* --- Buckets --- */

static size_t member_at(const lt_data_parallel *dp, const lt_dp_bucket *b, size_t i)
{
    return dp->order[b->first + i];
}

/* Returns the element offset of a rank's chunk. */
static int64_t chunk_offset(const chunks *s, int rank)
{
    int64_t begin = 0;
    for (int r = 0; r < rank; r++)
        begin += s->count[r];
    return begin;
}

static chunks *bucket_chunks(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    return &dp->scatter->chunks[b - dp->bucket];
}

static lt_tensor *bucket_tensor(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    return dp->reducer->bucket[b - dp->bucket].flat;
}

/* Lays out the chunks: each rank's parts, then the flags. */
static void lay_out_chunks(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    const lt_dp_scatter *d = dp->scatter;
    const chunks *s = bucket_chunks(dp, b);
    for (size_t i = 0; i < b->count; i++) {
        const size_t m = member_at(dp, b, i);
        for (size_t k = d->first[m]; k < d->first[m + 1]; k++) {
            int64_t *count = &s->count[d->parts.part[k].owner];
            d->at[k] = *count;
            *count += d->parts.part[k].elements;
        }
    }
    for (int r = 0; r < d->ranks; r++)
        s->count[r] += (int64_t)b->count;
    for (size_t i = 0; i < b->count; i++) {
        const size_t m = member_at(dp, b, i);
        for (size_t k = d->first[m]; k < d->first[m + 1]; k++)
            d->at[k] += chunk_offset(s, d->parts.part[k].owner);
    }
}

static void release_bucket(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    lt_tensor_free_memory(bucket_tensor(dp, b));
    lt_tensor_free_memory(bucket_chunks(dp, b)->own);
}

lt_status lt_dp_make_scatter_bucket(lt_data_parallel *dp, const lt_dp_bucket *b)
{
    const lt_dp_scatter *d = dp->scatter;
    chunks *s = bucket_chunks(dp, b);
    LT_TRY(LT_ALLOC(&s->count, d->ranks));
    lay_out_chunks(dp, b);
    lt_tensor **flat = &dp->reducer->bucket[b - dp->bucket].flat;
    LT_TRY(lt_tensor_new(flat, dp->device, dp->dtype, LT_SHAPE(chunk_offset(s, d->ranks))));
    LT_TRY(lt_tensor_new(&s->own, dp->device, dp->dtype, LT_SHAPE(s->count[d->rank])));
    if (d->parts.releases)
        release_bucket(dp, b);
    return LT_OK;
}

lt_view lt_dp_reduced_flags(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    const chunks *s = bucket_chunks(dp, b);
    const int64_t flags = (int64_t)b->count;
    return lt_flat_slice(s->own, s->count[dp->scatter->rank] - flags, flags);
}

/* --- Update --- */

/* Appends the copy to dp->job if used, else copies. */
static lt_status copy_or_list(const lt_data_parallel *dp, size_t *listed, lt_view from, lt_view to)
{
    if (!dp->job)
        return lt_dp_cast(dp, from, to);
    lt_dp_list_copy(dp, listed, from, to);
    return LT_OK;
}

/* Allocates a gradient of which this rank owns a part, and unpacks it. */
static lt_status unpack_gradient(const lt_data_parallel *dp, const lt_dp_member *m, size_t *listed)
{
    const lt_dp_scatter *d = dp->scatter;
    const size_t index = (size_t)(m - dp->member);
    bool mine = false;
    for (size_t k = d->first[index]; k < d->first[index + 1]; k++)
        mine = mine || d->parts.part[k].owner == d->rank;
    if (mine)
        LT_TRY(lt_tensor_allocate_raw(m->param->grad));
    return lt_dp_unpack_scatter_gradient(dp, m, listed);
}

lt_status lt_dp_unpack_scatter_bucket(lt_data_parallel *dp, const lt_dp_bucket *b)
{
    size_t listed = 0;
    for (size_t i = 0; i < b->count; i++)
        LT_TRY(unpack_gradient(dp, &dp->member[member_at(dp, b, i)], &listed));
    LT_TRY(lt_dp_copy_listed(dp, listed));
    release_bucket(dp, b);
    return LT_OK;
}

/* Copies a gradient to its owners' chunks. */
static lt_status pack_gradient(const lt_data_parallel *dp, const lt_dp_member *m, size_t *listed)
{
    const lt_dp_scatter *d = dp->scatter;
    const lt_gradient_parts *p = &d->parts;
    const size_t index = (size_t)(m - dp->member);
    for (size_t k = d->first[index]; k < d->first[index + 1]; k++)
        LT_TRY(copy_or_list(dp, listed, p->of(p->context, k, m->param->grad),
                            p->flat(p->context, k, dp->reducer->bucket[m->bucket].flat, d->at[k])));
    return LT_OK;
}

lt_status lt_dp_pack_scatter_gradient(const lt_data_parallel *dp, const lt_dp_member *m)
{
    size_t listed = 0;
    if (dp->job)
        return LT_OK;
    LT_TRY(lt_tensor_allocate_raw(dp->reducer->bucket[m->bucket].flat));
    LT_TRY(pack_gradient(dp, m, &listed));
    if (lt_dp_has_transient_gradients(dp))
        lt_tensor_free_memory(m->param->grad);
    return LT_OK;
}

static lt_status fill_flags(const lt_data_parallel *dp, const lt_dp_bucket *b, size_t i,
                            size_t count, double value)
{
    for (int r = 0; r < dp->scatter->ranks; r++) {
        const int64_t flags = chunk_offset(bucket_chunks(dp, b), r + 1) - (int64_t)b->count;
        LT_TRY(lt_dp_fill(dp, value,
                          lt_flat_slice(bucket_tensor(dp, b), flags + (int64_t)i, (int64_t)count)));
    }
    return LT_OK;
}

/* Zeroes the parts and the flag of a member without a gradient on this rank. */
static lt_status zero_missing_gradient(const lt_data_parallel *dp, const lt_dp_bucket *b, size_t i)
{
    const lt_dp_scatter *d = dp->scatter;
    const size_t m = member_at(dp, b, i);
    for (size_t k = d->first[m]; k < d->first[m + 1]; k++)
        LT_TRY(lt_dp_fill(
            dp, 0, lt_flat_slice(bucket_tensor(dp, b), d->at[k], d->parts.part[k].elements)));
    return fill_flags(dp, b, i, 1, 0);
}

lt_status lt_dp_fill_scatter_bucket(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    size_t listed = 0;
    LT_TRY(lt_tensor_allocate_raw(bucket_tensor(dp, b)));
    LT_TRY(lt_tensor_allocate_raw(bucket_chunks(dp, b)->own));
    LT_TRY(fill_flags(dp, b, 0, b->count, 1));
    for (size_t i = 0; i < b->count; i++) {
        const lt_dp_member *m = &dp->member[member_at(dp, b, i)];
        if (!m->is_packed)
            LT_TRY(zero_missing_gradient(dp, b, i));
        else if (dp->job)
            LT_TRY(pack_gradient(dp, m, &listed));
    }
    LT_TRY(lt_dp_copy_listed(dp, listed));
    for (size_t i = 0; i < b->count && dp->job && lt_dp_has_transient_gradients(dp); i++)
        lt_tensor_free_memory(dp->member[member_at(dp, b, i)].param->grad);
    return LT_OK;
}

lt_status lt_dp_unpack_scatter_gradient(const lt_data_parallel *dp, const lt_dp_member *m,
                                        size_t *listed)
{
    const lt_dp_scatter *d = dp->scatter;
    const lt_gradient_parts *p = &d->parts;
    const chunks *s = &d->chunks[m->bucket];
    const size_t index = (size_t)(m - dp->member);
    const int64_t begin = chunk_offset(s, d->rank);
    for (size_t k = d->first[index]; k < d->first[index + 1]; k++)
        if (p->part[k].owner == d->rank)
            LT_TRY(copy_or_list(dp, listed, p->flat(p->context, k, s->own, d->at[k] - begin),
                                p->of(p->context, k, m->param->grad)));
    return LT_OK;
}
