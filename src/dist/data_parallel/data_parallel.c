/* Data parallelism: buckets of gradients are all-reduced while backward still computes others.
 * Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
 * section 3.2.
 *
 * All ranks start the buckets' all-reduces in the same order, whatever the order of their gradients: a bucket starts
 * when all its gradients are final and the previous bucket has started. Buckets still incomplete after backward (a
 * parameter without a gradient, a rank without a batch) start in lt_data_parallel_finish(). */

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/data_parallel/state.h"
#include "dist/reducer/kinds.h"
#include "tensor/tensor.h"

#include <stdio.h>

enum { DEFAULT_BUCKET = 25 << 20 };

typedef lt_status bucket_fn(lt_reducer *reducer, size_t bucket);

/* Begins or finishes a bucket and updates bytes_on_comm. */
static lt_status call_reducer(lt_data_parallel *dp, bucket_fn *fn, size_t bucket)
{
    const uint64_t before = lt_comm_bytes(dp->comm);
    lt_status st = fn(dp->reducer, bucket);
    dp->bytes_on_comm += lt_comm_bytes(dp->comm) - before;
    return st;
}

/* Waits for the next bucket and adds the wait to `exposed`. */
static lt_status wait_for_next_bucket(lt_data_parallel *dp)
{
    double begin = lt_clock_seconds();
    lt_status st = call_reducer(dp, dp->reducer->ops->finish, dp->finished++);
    dp->exposed += lt_clock_seconds() - begin;
    return st;
}

/* Waits for buckets in flight and discards their results. */
static void discard_in_flight(lt_data_parallel *dp)
{
    while (dp->finished < dp->started)
        (void)!wait_for_next_bucket(dp);
}

static lt_tensor *bucket_tensor(const lt_data_parallel *dp, size_t bucket)
{
    return dp->reducer->bucket[bucket].flat;
}

/* Returns a bucket's flags, 1 per gradient that exists: this rank's, after the reduction their mean over ranks. */
static lt_view bucket_flags(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    const size_t bucket = (size_t)(b - dp->bucket);
    if (!dp->reducer->ops->reduces_flags)
        return lt_flat_slice(dp->grad_mask, (int64_t)b->first, (int64_t)b->count);
    return lt_flat_slice(bucket_tensor(dp, bucket), dp->reducer->bucket[bucket].elements,
                         (int64_t)b->count);
}

static lt_view grad_view(const lt_dp_member *m)
{
    return lt_flat_view(m->param->grad);
}

static lt_view bucket_slice(const lt_data_parallel *dp, const lt_dp_member *m)
{
    return lt_flat_slice(bucket_tensor(dp, m->bucket), m->offset, lt_tensor_count(m->param->grad));
}

/* Copies a gradient to its bucket; with dp->job, start_bucket() copies all gradients of the bucket at once. */
static lt_status pack_gradient(lt_data_parallel *dp, lt_dp_member *m)
{
    m->is_packed = dp->begun = true;
    dp->bucket[m->bucket].pending--;
    LT_TRY(lt_dp_measure_norm(dp, m));
    if (dp->scatter)
        return lt_dp_pack_scatter_gradient(dp, m);
    return dp->job ? LT_OK : lt_dp_cast(dp, grad_view(m), bucket_slice(dp, m));
}

static lt_status pack_bucket(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    size_t listed = 0;
    for (size_t i = 0; i < b->count && dp->job; i++) {
        const lt_dp_member *m = &dp->member[dp->order[b->first + i]];
        if (m->is_packed)
            lt_dp_list_copy(dp, &listed, grad_view(m), bucket_slice(dp, m));
    }
    return lt_dp_copy_listed(dp, listed);
}

/* Returns one of a bucket's flags. */
static lt_view flag_at(lt_view flags, size_t index)
{
    flags.data = (char *)flags.data + index * lt_dtype_size(flags.dtype);
    flags.shape = LT_SHAPE(1);
    return flags;
}

/* Sets a bucket's flags, zeroes missing gradients and, with dp->job, copies the others. */
static lt_status fill_flags_and_zeros(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    const lt_view flags = bucket_flags(dp, b);
    LT_TRY(lt_dp_fill(dp, 1, flags));
    for (size_t i = 0; i < b->count && b->pending; i++) {
        const lt_dp_member *m = &dp->member[dp->order[b->first + i]];
        if (m->is_packed)
            continue;
        LT_TRY(lt_dp_fill(dp, 0, bucket_slice(dp, m)));
        LT_TRY(lt_dp_fill(dp, 0, flag_at(flags, i)));
    }
    return pack_bucket(dp, b);
}

/* Waits for the next bucket's reduction, copies its flags to grad_mask and unpacks transient gradients. */
static lt_status finish_bucket(lt_data_parallel *dp, lt_dp_bucket *b)
{
    LT_TRY(wait_for_next_bucket(dp));
    if (!dp->reducer->ops->reduces_flags)
        return LT_OK;
    LT_TRY(lt_dp_cast(dp, dp->scatter ? lt_dp_reduced_flags(dp, b) : bucket_flags(dp, b),
                      lt_flat_slice(dp->grad_mask, (int64_t)b->first, (int64_t)b->count)));
    return lt_dp_has_transient_gradients(dp) ? lt_dp_unpack_scatter_bucket(dp, b) : LT_OK;
}

static lt_status start_bucket(lt_data_parallel *dp, lt_dp_bucket *b)
{
    LT_TRY(dp->scatter ? lt_dp_fill_scatter_bucket(dp, b) : fill_flags_and_zeros(dp, b));
    LT_TRY(lt_dp_zero_norms(dp, b));
    if (lt_dp_has_micro_batch_count(dp) && dp->started + 1 == dp->buckets)
        LT_TRY(lt_dp_write_micro_batch_count(dp));
    dp->begun = true;
    LT_TRY(call_reducer(dp, dp->reducer->ops->begin, dp->started++));
    while (lt_dp_has_transient_gradients(dp)
           && dp->finished + 1 < dp->started) /* keep one in flight */
        LT_TRY(finish_bucket(dp, &dp->bucket[dp->finished]));
    return LT_OK;
}

/* Packs a final gradient and starts the buckets that it completes. */
static lt_status add_final_gradient(lt_data_parallel *dp, lt_dp_member *m)
{
    LT_TRY(pack_gradient(dp, m));
    while (dp->started < dp->buckets && !dp->bucket[dp->started].pending)
        LT_TRY(start_bucket(dp, &dp->bucket[dp->started]));
    return LT_OK;
}

static lt_dp_member *find_member(lt_data_parallel *dp, const lt_param *param)
{
    for (size_t i = 0; i < dp->members; i++)
        if (dp->member[i].param == param)
            return &dp->member[i];
    return NULL;
}

static void on_grad_final(void *context, lt_param *param)
{
    lt_data_parallel *dp = context;
    lt_dp_member *m = find_member(dp, param);
    if (!m)
        return;
    if (!dp->bucket) {
        if (!m->is_ordered)
            dp->order[dp->ordered++] = (size_t)(m - dp->member);
        m->is_ordered = true;
        return;
    }
    if (!dp->last || dp->config.no_overlap || dp->status || m->is_packed)
        return;
    dp->status = add_final_gradient(dp, m);
    if (dp->status) /* returned by finish; the thread's message may be overwritten until then */
        snprintf(dp->message, sizeof dp->message, "%s", lt_error_message());
}

static lt_status list_trained_params(lt_data_parallel *dp)
{
    size_t count = 0;
    for (size_t i = 0; i < dp->params->count; i++)
        count += lt_param_is_trained(dp->params->item[i]);
    if (!count)
        return lt_fail(LT_E_ARG, "data parallel: the model has no trainable parameter");
    LT_TRY(LT_ALLOC(&dp->member, count));
    LT_TRY(LT_ALLOC(&dp->order, count));
    LT_TRY(LT_ALLOC(&dp->grad_mask_host, count));
    for (size_t i = 0; i < dp->params->count; i++)
        if (lt_param_is_trained(dp->params->item[i]))
            dp->member[dp->members++].param = dp->params->item[i];
    if (dp->device->backend->graphs && dp->device->backend->vec) {
        LT_TRY(LT_ALLOC(&dp->job, count));
    }
    return lt_tensor_new(&dp->grad_mask, dp->device, LT_F64, LT_SHAPE((int64_t)count));
}

static lt_status make_reducer(lt_data_parallel *dp)
{
    LT_TRY(lt_dp_check_drop_compute(dp));
    if (dp->config.needed)
        return lt_dp_make_backup_reducer(dp);
    if (lt_dp_has_micro_batch_count(dp))
        LT_TRY(lt_tensor_new(&dp->mean_computed, dp->device, LT_F64, LT_SHAPE(1)));
    return lt_reducer_new(&dp->reducer, &(lt_reducer_config){.comm = dp->comm,
                                                             .device = dp->device,
                                                             .nodes = dp->config.nodes,
                                                             .params = dp->params,
                                                             .allreduce = dp->config.allreduce,
                                                             .compress = dp->config.compress});
}

static lt_status set_up_data_parallel(lt_data_parallel *dp)
{
    LT_TRY(list_trained_params(dp));
    LT_TRY(lt_dp_allocate_norms(dp));
    LT_TRY(lt_dp_check_same_params(dp));
    LT_TRY(make_reducer(dp));
    LT_TRY(lt_dp_broadcast_values(dp->comm, dp->params));
    return lt_dp_open_norm_comm(dp);
}

lt_status lt_data_parallel_new(lt_data_parallel **out, lt_comm *comm, const lt_params *params,
                               lt_tape *tape, const lt_data_parallel_config *config)
{
    lt_data_parallel_config c = config ? *config : (lt_data_parallel_config){0};
    if (c.dtype != LT_F32 && c.dtype != LT_BF16 && c.dtype != LT_F16)
        return lt_fail(LT_E_ARG,
                       "data parallel: the communication dtype is %s, want f32, bf16 or f16",
                       lt_dtype_name(c.dtype));
    lt_data_parallel *dp = NULL;
    LT_TRY(LT_ALLOC(&dp, 1));
    c.bucket_bytes = c.bucket_bytes ? c.bucket_bytes : DEFAULT_BUCKET;
    dp->comm = comm;
    dp->tape = tape;
    dp->device = lt_tape_device(tape);
    dp->params = params;
    dp->config = c;
    dp->computed = c.micro_batches;
    dp->dtype = c.dtype == LT_F32 ? lt_device_master_dtype(dp->device) : c.dtype;
    lt_status st = set_up_data_parallel(dp);
    if (st) {
        lt_data_parallel_free(&dp);
        return st;
    }
    lt_tape_on_grad_ready(tape, on_grad_final, dp);
    *out = dp;
    return LT_OK;
}

void lt_data_parallel_free(lt_data_parallel **data_parallel)
{
    lt_data_parallel *dp = *data_parallel;
    *data_parallel = NULL;
    if (!dp)
        return;
    lt_tape_on_grad_ready(dp->tape, NULL, NULL);
    discard_in_flight(dp);
    lt_reducer_free(&dp->reducer);
    lt_dp_close_norm_comm(dp);
    lt_tensor_free(&dp->norm);
    lt_tensor_free(&dp->mean_computed);
    lt_tensor_free(&dp->deviation);
    lt_tensor_free(&dp->expected);
    lt_tensor_free(&dp->grad_mask);
    lt_free(dp->job);
    lt_free(dp->bucket);
    lt_free(dp->grad_mask_host);
    lt_free(dp->order);
    lt_free(dp->member);
    lt_free(dp);
}

lt_status lt_data_parallel_shard_gradients(lt_data_parallel *dp, const lt_gradient_parts *parts)
{
    LT_TRY(lt_dp_open_scatter(dp, parts));
    return lt_dp_has_transient_gradients(dp) ? lt_dp_make_buckets(dp) : LT_OK;
}

/* Resets the buckets' progress for the next update. */
static void reset_buckets(lt_data_parallel *dp)
{
    dp->started = dp->finished = 0;
    dp->last = dp->begun = false;
    dp->status = LT_OK;
    for (size_t i = 0; i < dp->members; i++)
        dp->member[i].is_packed = false;
    for (size_t i = 0; i < dp->buckets; i++)
        dp->bucket[i].pending = dp->bucket[i].count;
}

/* An unfinished update is a failed graph capture: its requests never ran and are freed. */
void lt_data_parallel_begin(lt_data_parallel *dp, bool last)
{
    if (dp->begun) {
        discard_in_flight(dp);
        reset_buckets(dp);
    }
    dp->last = last;
}

/* Starts the buckets that backward did not start. */
static lt_status start_remaining_buckets(lt_data_parallel *dp)
{
    if (dp->status)
        return lt_fail(dp->status, "%s", dp->message);
    if (!dp->bucket)
        LT_TRY(lt_dp_make_buckets(dp));
    for (size_t i = 0; i < dp->members; i++)
        if (dp->member[i].param->has_grad && !dp->member[i].is_packed)
            LT_TRY(pack_gradient(dp, &dp->member[i]));
    while (dp->started < dp->buckets)
        LT_TRY(start_bucket(dp, &dp->bucket[dp->started]));
    return LT_OK;
}

/* Waits for all buckets; reduces the flags concurrently if the reducer does not. */
static lt_status finish_all_buckets(lt_data_parallel *dp)
{
    lt_request *flags = NULL;
    if (!dp->reducer->ops->reduces_flags)
        LT_TRY(lt_comm_allreduce_begin(dp->comm, dp->grad_mask, LT_REDUCE_MEAN, &flags));
    lt_status st = LT_OK;
    while (dp->finished < dp->buckets && !st)
        st = finish_bucket(dp, &dp->bucket[dp->finished]);
    lt_status last = lt_request_wait(&flags);
    return st ? st : last;
}

static lt_status unpack_gradients(lt_data_parallel *dp)
{
    size_t listed = 0;
    LT_TRY(lt_dp_read_grad_mask(dp));
    for (size_t i = 0; i < dp->members; i++) {
        const lt_dp_member *m = &dp->member[dp->order[i]];
        m->param->has_grad = dp->grad_mask_host[i] > 0;
        if (!m->param->has_grad || lt_dp_has_transient_gradients(dp))
            continue;
        if (dp->scatter)
            LT_TRY(lt_dp_unpack_scatter_gradient(dp, m, &listed));
        else if (dp->job)
            lt_dp_list_copy(dp, &listed, bucket_slice(dp, m), grad_view(m));
        else
            LT_TRY(lt_dp_cast(dp, bucket_slice(dp, m), grad_view(m)));
    }
    return lt_dp_copy_listed(dp, listed);
}

lt_status lt_data_parallel_finish(lt_data_parallel *dp)
{
    if (lt_comm_size(dp->comm) == 1 && !dp->config.alone_too)
        return LT_OK;
    lt_status st = start_remaining_buckets(dp);
    if (!st)
        st = finish_all_buckets(dp);
    if (!st)
        st = unpack_gradients(dp);
    if (!st && lt_dp_has_micro_batch_count(dp))
        st = lt_dp_rescale_gradients(dp);
    if (!st && dp->backup)
        st = lt_dp_end_backup_update(dp);
    if (!st)
        reset_buckets(dp);
    dp->reduced = !st;
    return st;
}

double lt_data_parallel_wait_seconds(lt_data_parallel *dp)
{
    double exposed = dp->exposed;
    dp->exposed = 0;
    return exposed;
}

lt_status lt_data_parallel_commit(lt_data_parallel *dp, bool applied)
{
    const bool reduced = dp->reduced;
    dp->reduced = false;
    return reduced && dp->reducer->ops->commit ? dp->reducer->ops->commit(dp->reducer, applied)
                                               : LT_OK;
}

void lt_data_parallel_compress(lt_data_parallel *dp, bool on)
{
    dp->reducer->dense = !on;
}

lt_status lt_data_parallel_use_sum(lt_data_parallel *dp)
{
    const char *other = dp->config.sync_bn                ? "synchronized batch norm"
                        : lt_dp_has_micro_batch_count(dp) ? "a deadline"
                        : dp->dtype != lt_device_master_dtype(dp->device) ? "16-bit gradients"
                        : dp->reducer->ops != &lt_reducer_plain && !dp->scatter
                            ? dp->reducer->ops->kind
                            : NULL;
    if (other)
        return lt_fail(LT_E_UNSUPPORTED,
                       "data parallel: with %s the sum of gradients depends on the number of ranks",
                       other);
    dp->reducer->op = LT_REDUCE_SUM;
    dp->config.dist_bn = LT_DIST_BN_NONE;
    return LT_OK;
}

void lt_data_parallel_set_loss_scale(lt_data_parallel *dp, const lt_tensor *scale)
{
    dp->reducer->loss_scale = scale;
}

bool lt_data_parallel_is_capturable(const lt_data_parallel *dp)
{
    return dp->reducer->ops->capturable && !lt_dp_has_micro_batch_count(dp);
}

lt_status lt_data_parallel_visit(lt_data_parallel *dp, lt_state_visitor *visitor)
{
    return dp->reducer->ops->visit ? dp->reducer->ops->visit(dp->reducer, visitor) : LT_OK;
}

lt_status lt_data_parallel_gather_state(lt_data_parallel *dp)
{
    return dp->reducer->ops->gather ? dp->reducer->ops->gather(dp->reducer) : LT_OK;
}

lt_status lt_data_parallel_finish_load(lt_data_parallel *dp)
{
    return dp->reducer->ops->loaded ? dp->reducer->ops->loaded(dp->reducer) : LT_OK;
}

void lt_data_parallel_bytes_sent(const lt_data_parallel *dp, lt_reducer_bytes *out)
{
    dp->reducer->ops->sent(dp->reducer, out);
}

uint64_t lt_data_parallel_subgroup_bytes(const lt_data_parallel *dp)
{
    lt_reducer_bytes sent;
    lt_data_parallel_bytes_sent(dp, &sent);
    return sent.within + sent.between - dp->bytes_on_comm;
}
