/* Checks before training that ranks agree on configuration and parameters, broadcast of the values, and layout of the
 * buckets. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "dist/comm/comm.h"
#include "dist/data_parallel/state.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 1024, SMALLEST_BUCKET = 1 << 20 };

/* Describes a parameter and its shard, which must be equal on all ranks that average its gradient. */
static const char *describe_param(const lt_param *p, char *text)
{
    char shape[LT_SHAPE_TEXT], box[LT_SHARD_SPEC_TEXT];
    const lt_shard_spec spec = lt_param_shard_spec(p);
    snprintf(text, TEXT, "%s %s%s%s%s", p->name, lt_shape_text(spec.logical, shape),
             p->spec ? ", shard " : "", p->spec ? lt_shard_spec_text(&spec, box) : "",
             p->frozen ? ", frozen" : "");
    return text;
}

static uint32_t checksum_params(const lt_params *params)
{
    char text[TEXT];
    uint32_t sum = 0;
    for (size_t i = 0; i < params->count; i++) {
        describe_param(params->item[i], text);
        sum = lt_crc32c(sum, text, strlen(text) + 1);
    }
    return sum;
}

static lt_status check_same_config(const lt_data_parallel *dp)
{
    const lt_data_parallel_config *c = &dp->config;
    char text[TEXT];
    snprintf(text, sizeof text,
             "buckets of %zu bytes, %s, dist_bn %d, sync_bn %d, allreduce %.64s, compress %.128s, "
             "%d ranks needed, %lld micro-batches",
             c->bucket_bytes, lt_dtype_name(dp->dtype), (int)c->dist_bn, c->sync_bn,
             c->allreduce ? c->allreduce : "flat", c->compress ? c->compress : "off", c->needed,
             (long long)c->micro_batches);
    return lt_comm_check_same(dp->comm, "data parallel", text);
}

lt_status lt_dp_check_same_params(const lt_data_parallel *dp)
{
    const lt_params *params = dp->params;
    char text[TEXT], what[64];
    LT_TRY(check_same_config(dp));
    snprintf(text, sizeof text, "%zu", params->count);
    LT_TRY(lt_comm_check_same(dp->comm, "the number of parameters", text));
    snprintf(text, sizeof text, "%08x", (unsigned)checksum_params(params));
    lt_status st = lt_comm_check_same(
        dp->comm, "the checksum of all parameters' names, shapes and shards", text);
    if (!st || st != LT_E_ARG)
        return st;
    for (size_t i = 0; i < params->count; i++) { /* name the first that differs */
        snprintf(what, sizeof what, "parameter %zu", i);
        LT_TRY(lt_comm_check_same(dp->comm, what, describe_param(params->item[i], text)));
    }
    return st;
}

lt_status lt_dp_broadcast_values(lt_comm *comm, const lt_params *params)
{
    for (size_t i = 0; i < params->count && lt_comm_size(comm) > 1; i++) {
        lt_tensor *value = params->item[i]->value;
        LT_TRY(lt_comm_broadcast(comm, value, 0));
        lt_tensor_bump_version(value);
    }
    return LT_OK;
}

/* Broadcasts rank 0's order: parameters whose gradient its backward finished, then the rest from the last layer. */
static lt_status broadcast_param_order(lt_data_parallel *dp)
{
    for (size_t i = dp->members; i-- > 0;)
        if (!dp->member[i].is_ordered)
            dp->order[dp->ordered++] = i;
    int64_t *host = lt_alloc(dp->members, sizeof *host);
    lt_status st =
        host ? lt_comm_broadcast_order(dp->comm, dp->order, host, dp->members) : LT_E_NOMEM;
    lt_free(host);
    return st;
}

static size_t grad_bytes(const lt_data_parallel *dp, size_t position)
{
    const lt_param *p = dp->member[dp->order[position]].param;
    return (size_t)lt_tensor_count(p->grad) * lt_dtype_size(dp->dtype);
}

/* Returns the byte limit of the next bucket: a quarter of the rest, so that the first exchange begins early, several
 * overlap, and the last, which little of backward overlaps, are small. */
static size_t bucket_byte_limit(const lt_data_parallel *dp, size_t rest)
{
    size_t limit = rest / 4 > SMALLEST_BUCKET ? rest / 4 : SMALLEST_BUCKET;
    return limit < dp->config.bucket_bytes ? limit : dp->config.bucket_bytes;
}

/* Lists the bucket's gradients for the reducer. */
static lt_status list_bucket_gradients(const lt_data_parallel *dp, const lt_dp_bucket *b,
                                       lt_reducer_bucket *out)
{
    lt_reducer_part *part = NULL;
    LT_TRY(LT_ALLOC(&part, b->count));
    for (size_t i = 0; i < b->count; i++) {
        const lt_dp_member *m = &dp->member[dp->order[b->first + i]];
        part[i] = (lt_reducer_part){m->param, m->offset, lt_tensor_count(m->param->grad)};
    }
    out->part = part;
    out->parts = b->count;
    return LT_OK;
}

/* Lays out the bucket that begins at position in the order; *rest: bytes of all gradients from there on. */
static lt_status lay_out_bucket(lt_data_parallel *dp, lt_dp_bucket *b, size_t position,
                                size_t *rest)
{
    lt_reducer_bucket *out = &dp->reducer->bucket[b - dp->bucket];
    size_t limit = bucket_byte_limit(dp, *rest), bytes = 0;
    b->first = position;
    while (position < dp->members && (!b->count || bytes + grad_bytes(dp, position) <= limit)) {
        lt_dp_member *m = &dp->member[dp->order[position]];
        bytes += grad_bytes(dp, position++);
        m->bucket = (size_t)(b - dp->bucket);
        m->offset = out->elements;
        out->elements += lt_tensor_count(m->param->grad);
        b->count++;
    }
    b->pending = b->count;
    *rest -= bytes;
    LT_TRY(list_bucket_gradients(dp, b, out));
    if (dp->scatter)
        return lt_dp_make_scatter_bucket(dp, b);
    const bool counts = lt_dp_has_micro_batch_count(dp) && position == dp->members;
    return lt_tensor_new(&out->flat, dp->device, dp->dtype,
                         LT_SHAPE(out->elements + (int64_t)b->count + counts));
}

lt_status lt_dp_make_buckets(lt_data_parallel *dp)
{
    size_t rest = 0, position = 0;
    LT_TRY(broadcast_param_order(dp));
    LT_TRY(LT_ALLOC(&dp->bucket, dp->members));
    LT_TRY(LT_ALLOC(&dp->reducer->bucket, dp->members));
    for (size_t i = 0; i < dp->members; i++)
        rest += grad_bytes(dp, i);
    while (position < dp->members) {
        lt_dp_bucket *b = &dp->bucket[dp->buckets++];
        dp->reducer->buckets = dp->buckets;
        LT_TRY(lay_out_bucket(dp, b, position, &rest));
        position += b->count;
    }
    return lt_reducer_open(dp->reducer);
}
