/* Synchronized batch norm: statistics over all ranks' batches; and running statistics made equal on all ranks.
 * Moments are combined by Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for
 * computing sample variances", 1979, equations 2.1, in rank order: all ranks get the same bits. */

#include "base/alloc.h"
#include "dist/comm/comm.h"
#include "dist/data_parallel/state.h"
#include "tensor/tensor.h"

/* Count, mean and sum of squared deviations from the mean. */
typedef struct moments {
    double count, mean, m2;
} moments;

static moments combine_moments(moments a, moments b)
{
    double count = a.count + b.count;
    if (!(count > 0))
        return a;
    double delta = b.mean - a.mean, part = b.count / count;
    return (moments){count, a.mean + delta * part, a.m2 + b.m2 + delta * delta * a.count * part};
}

/* Combines all [ranks][3][channels] into the first rank's moments. */
static void combine_rank_moments(double *all, int ranks, int64_t channels)
{
    for (int64_t c = 0; c < channels; c++) {
        moments sum = {all[c], all[channels + c], all[2 * channels + c]};
        for (int r = 1; r < ranks; r++) {
            const double *x = all + 3 * channels * r + c;
            sum = combine_moments(sum, (moments){x[0], x[channels], x[2 * channels]});
        }
        all[c] = sum.count;
        all[channels + c] = sum.mean;
        all[2 * channels + c] = sum.m2;
    }
}

static lt_status gather_moments(lt_data_parallel *dp, const lt_tensor *own, lt_tensor *whole)
{
    int ranks = lt_comm_size(dp->norm_comm);
    int64_t *count = NULL;
    LT_TRY(LT_ALLOC(&count, ranks));
    for (int r = 0; r < ranks; r++)
        count[r] = lt_tensor_count(own);
    lt_status st = lt_comm_allgather(dp->norm_comm, own, whole, count);
    lt_free(count);
    return st;
}

/* Computes norm_share and norm_part. They follow from the batch sizes, so they are equal in every layer. */
static lt_status compute_shares(lt_data_parallel *dp, const lt_tensor *whole)
{
    const int ranks = lt_comm_size(dp->norm_comm), mine = lt_comm_rank(dp->norm_comm);
    double *host = lt_alloc(1, lt_tensor_bytes(whole)), sum = 0;
    if (!dp->norm_part)
        dp->norm_part = lt_alloc((size_t)ranks, sizeof *dp->norm_part);
    if (!host || !dp->norm_part) {
        lt_free(host);
        return LT_E_NOMEM;
    }
    const int64_t stride = lt_tensor_count(whole) / ranks;
    lt_status st = lt_tensor_read(whole, host, lt_tensor_bytes(whole));
    for (int r = 0; r < ranks; r++) {
        sum += host[stride * r];
        dp->norm_part[r] = sum > 0 ? host[stride * r] / sum : 0;
    }
    dp->norm_share = host[stride * mine] / sum;
    lt_free(host);
    return st;
}

/* Combines the moments b into a, on the device; workspace: two rows. */
static lt_status combine_on_device(const lt_data_parallel *dp, const lt_view a[3],
                                   const lt_view b[3], const lt_view workspace[2], double part)
{
    enum { COUNT, MEAN, M2 };
    const lt_backend *be = dp->device->backend;
    void *ctx = dp->device->ctx;
    const lt_view delta = workspace[0], square = workspace[1];
    const lt_vec_job jobs[] = {
        {.op = LT_VEC_AXPBY, .alpha = 1, .a = b[MEAN], .y = delta},
        {.op = LT_VEC_AXPBY, .alpha = -1, .beta = 1, .a = a[MEAN], .y = delta},
        {.op = LT_VEC_AXPBY, .alpha = part, .beta = 1, .a = delta, .y = a[MEAN]},
        {.op = LT_VEC_SQUARE, .alpha = part, .a = delta, .y = square},
        {.op = LT_VEC_MUL, .alpha = 1, .a = square, .b = a[COUNT], .y = square},
        {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 1, .a = square, .y = a[M2]},
        {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 1, .a = b[M2], .y = a[M2]},
        {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 1, .a = b[COUNT], .y = a[COUNT]},
    };
    const lt_vec_list list = {.job = jobs, .count = sizeof jobs / sizeof *jobs};
    if (be->vec_lists)
        return be->vec_lists(ctx, &list, 1, NULL);
    for (size_t i = 0; i < list.count; i++)
        LT_TRY(be->vec(ctx, &jobs[i], 1, NULL));
    return LT_OK;
}

/* Like merge_on_host(), for devices with graphs: while capturing, the host reuses the previous pass's shares. */
static lt_status merge_on_device(lt_data_parallel *dp, lt_tensor *whole, lt_tensor *x)
{
    const int64_t channels = lt_tensor_count(x) / 3;
    lt_tensor *scratch = NULL;
    if (!dp->device->capturing)
        LT_TRY(compute_shares(dp, whole));
    if (!dp->norm_part)
        return lt_fail(LT_E_UNSUPPORTED,
                       "data parallel: synchronized batch norm: run a step eagerly before "
                       "capturing one");
    lt_status st = lt_tensor_new(&scratch, dp->device, LT_F64, LT_SHAPE(2 * channels));
    for (int r = 1; r < lt_comm_size(dp->norm_comm) && !st; r++) {
        const lt_view a[3] = {lt_flat_slice(whole, 0, channels),
                              lt_flat_slice(whole, channels, channels),
                              lt_flat_slice(whole, 2 * channels, channels)};
        const int64_t first = r * (3 * channels);
        const lt_view b[3] = {lt_flat_slice(whole, first, channels),
                              lt_flat_slice(whole, first + channels, channels),
                              lt_flat_slice(whole, first + 2 * channels, channels)};
        const lt_view workspace[2] = {lt_flat_slice(scratch, 0, channels),
                                      lt_flat_slice(scratch, channels, channels)};
        st = combine_on_device(dp, a, b, workspace, dp->norm_part[r]);
    }
    lt_tensor_free(&scratch);
    return st ? st : lt_dp_cast(dp, lt_flat_slice(whole, 0, 3 * channels), lt_flat_view(x));
}

/* Combines whole (f64 moments of all ranks) on the host into x. */
static lt_status merge_on_host(lt_data_parallel *dp, lt_tensor *whole, lt_tensor *x)
{
    int64_t channels = lt_tensor_count(x) / 3;
    double *host = lt_alloc(1, lt_tensor_bytes(whole));
    if (!host)
        return LT_E_NOMEM;
    lt_status st = lt_tensor_read(whole, host, lt_tensor_bytes(whole));
    if (!st) {
        double own = host[3 * channels * lt_comm_rank(dp->norm_comm)];
        combine_rank_moments(host, lt_comm_size(dp->norm_comm), channels);
        dp->norm_share = own / host[0];
        st = lt_tensor_write(whole, host, lt_tensor_bytes(whole));
    }
    lt_free(host);
    return st ? st : lt_dp_cast(dp, lt_flat_slice(whole, 0, 3 * channels), lt_flat_view(x));
}

static lt_status merge_moments(lt_data_parallel *dp, lt_tensor *x)
{
    const lt_backend *be = dp->device->backend;
    int64_t count = lt_tensor_count(x);
    lt_tensor *own = NULL, *whole = NULL;
    lt_status st = lt_tensor_new(&own, dp->device, LT_F64, LT_SHAPE(count));
    if (!st)
        st = lt_tensor_new(&whole, dp->device, LT_F64,
                           LT_SHAPE(count * lt_comm_size(dp->norm_comm)));
    if (!st)
        st = lt_dp_cast(dp, lt_flat_view(x), lt_flat_view(own));
    if (!st)
        st = gather_moments(dp, own, whole);
    if (!st)
        st = be->graphs && be->vec ? merge_on_device(dp, whole, x) : merge_on_host(dp, whole, x);
    lt_tensor_free(&own);
    lt_tensor_free(&whole);
    return st;
}

/* Sums x over ranks, scaled by this rank's share of all counts, as the caller divides by its own count. */
static lt_status merge_sums(lt_data_parallel *dp, lt_tensor *x)
{
    lt_view view = lt_flat_view(x);
    LT_TRY(lt_comm_allreduce(dp->norm_comm, x, LT_REDUCE_SUM));
    return dp->device->backend->scale(dp->device->ctx, dp->norm_share, &view, &view);
}

static lt_status reduce_over_ranks(void *context, lt_norm_reduce op, lt_tensor *x)
{
    return op == LT_NORM_REDUCE_MOMENTS ? merge_moments(context, x) : merge_sums(context, x);
}

/* Opens a separate communicator for batch norm, as a rank that lacks a gradient begins its buckets later than others,
 * between other layers. */
lt_status lt_dp_open_norm_comm(lt_data_parallel *dp)
{
    if (!dp->config.sync_bn || lt_comm_size(dp->comm) == 1)
        return LT_OK;
    LT_TRY(lt_comm_split(dp->comm, 0, lt_comm_rank(dp->comm), &dp->norm_comm));
    lt_tape_on_norm_reduce(dp->tape, reduce_over_ranks, dp);
    return LT_OK;
}

void lt_dp_close_norm_comm(lt_data_parallel *dp)
{
    if (dp->norm_comm)
        lt_tape_on_norm_reduce(dp->tape, NULL, NULL);
    lt_comm_close(&dp->norm_comm);
    lt_free(dp->norm_part);
    lt_tensor_free(&dp->statistics);
}

lt_status lt_dp_copy_statistics(const lt_params *params, const lt_tensor *flat, bool back,
                                int64_t *count)
{
    *count = 0;
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        if (p->role != LT_PARAM_STAT || p->frozen) /* frozen: equal on all ranks already */
            continue;
        const lt_device *d = p->value->device;
        const int64_t elements = lt_tensor_count(p->value);
        const lt_view own = lt_flat_view(p->value),
                      place = flat ? lt_flat_slice(flat, *count, elements) : own;
        if (flat)
            LT_TRY(d->backend->cast(d->ctx, back ? &place : &own, back ? &own : &place));
        if (back)
            lt_tensor_bump_version(p->value);
        *count += elements;
    }
    return LT_OK;
}

lt_status lt_dp_merge_statistics(lt_comm *comm, lt_tensor *flat, lt_dist_bn how)
{
    if (lt_comm_size(comm) == 1)
        return LT_OK;
    return how == LT_DIST_BN_BROADCAST ? lt_comm_broadcast(comm, flat, 0)
                                       : lt_comm_allreduce(comm, flat, LT_REDUCE_MEAN);
}

lt_status lt_data_parallel_sync_statistics(lt_data_parallel *dp)
{
    int64_t count;
    LT_TRY(lt_dp_check_grad_mask(dp));
    if (dp->config.dist_bn == LT_DIST_BN_NONE || lt_comm_size(dp->comm) == 1)
        return LT_OK;
    LT_TRY(lt_dp_copy_statistics(dp->params, dp->statistics, false, &count));
    if (!count)
        return LT_OK;
    if (!dp->statistics) {
        LT_TRY(lt_tensor_new(&dp->statistics, dp->device, lt_device_master_dtype(dp->device),
                             LT_SHAPE(count)));
        LT_TRY(lt_dp_copy_statistics(dp->params, dp->statistics, false, &count));
    }
    LT_TRY(lt_dp_merge_statistics(dp->comm, dp->statistics, dp->config.dist_bn));
    return lt_dp_copy_statistics(dp->params, dp->statistics, true, &count);
}
