/* DropCompute: the mean over the computed micro-batches, and the deadline that maximizes their number per second.
 * Giladi et al., "DropCompute: simple and more robust distributed synchronous training via compute variance
 * reduction", 2023, arXiv 2306.10598.
 *
 * The last bucket has one more element for the count, so that one all-reduce carries gradients and count. */

#include "base/alloc.h"
#include "dist/data_parallel/state.h"
#include "tensor/tensor.h"

#include "lather/stragglers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- The count --- */

/* Returns the micro-batch count's view: the element after the flags of the last bucket. */
static lt_view micro_batch_count_view(const lt_data_parallel *dp)
{
    const lt_reducer_bucket *b = &dp->reducer->bucket[dp->buckets - 1];
    return lt_flat_slice(b->flat, b->elements + (int64_t)b->parts, 1);
}

lt_status lt_dp_check_drop_compute(const lt_data_parallel *dp)
{
    const lt_data_parallel_config *c = &dp->config;
    if (!lt_dp_has_micro_batch_count(dp))
        return LT_OK;
    if (c->sync_bn)
        return lt_fail(LT_E_ARG,
                       "data parallel: synchronized batch norm needs all micro-batches of all "
                       "ranks, so it cannot be combined with a deadline (drop compute)");
    if (c->compress && strcmp(c->compress, "off") != 0)
        return lt_fail(LT_E_ARG,
                       "data parallel: a deadline (drop compute) cannot be combined with "
                       "compression %s",
                       c->compress);
    if (dp->dtype != LT_F32 && dp->dtype != LT_F64)
        return lt_fail(LT_E_ARG,
                       "data parallel: a deadline (drop compute) needs communication dtype f32, "
                       "got %s",
                       lt_dtype_name(dp->dtype));
    return LT_OK;
}

lt_status lt_dp_write_micro_batch_count(const lt_data_parallel *dp)
{
    return lt_dp_fill(dp, (double)dp->computed, micro_batch_count_view(dp));
}

/* Rescales gradients, now (sum over computed micro-batches) / (ranks * M), to means over the computed micro-batches;
 * no-op if all were computed. */
lt_status lt_dp_rescale_gradients(lt_data_parallel *dp)
{
    const double ranks = lt_comm_size(dp->comm), planned = (double)dp->config.micro_batches;
    const lt_backend *be = dp->device->backend;
    double mean;
    LT_TRY(lt_dp_cast(dp, micro_batch_count_view(dp), lt_flat_view(dp->mean_computed)));
    LT_TRY(lt_tensor_read(dp->mean_computed, &mean, sizeof mean));
    dp->all_computed = llround(mean * ranks);
    dp->computed = dp->config.micro_batches;
    if (dp->all_computed < 1)
        return lt_fail(LT_E_ARG, "data parallel: no rank computed a micro-batch");
    const double factor = planned * ranks / (double)dp->all_computed;
    for (size_t i = 0; i < dp->members && factor > 1; i++) {
        const lt_param *p = dp->member[i].param;
        const lt_view g = lt_flat_view(p->grad);
        if (p->has_grad)
            LT_TRY(be->vec(dp->device->ctx,
                           &(lt_vec_job){.op = LT_VEC_AXPBY, .alpha = factor, .a = g, .y = g}, 1,
                           NULL));
    }
    return LT_OK;
}

void lt_data_parallel_set_computed(lt_data_parallel *dp, int64_t micro_batches)
{
    dp->computed = micro_batches;
}

int64_t lt_data_parallel_total_computed(const lt_data_parallel *dp)
{
    return dp->all_computed;
}

/* --- The deadline --- */

enum { CANDIDATES = 512 };

lt_drop_plan lt_drop_predict(const lt_drop_latencies *l, double deadline)
{
    double seconds = 0, kept = 0, all = 0;
    const double *t = l->seconds;
    for (int u = 0; u < l->updates; u++) {
        double longest = 0;
        for (int r = 0; r < l->ranks; r++, t += l->micro_batches) {
            double sum = 0;
            for (int m = 0; m < l->micro_batches; m++) {
                if (m && deadline > 0 && sum >= deadline)
                    break;
                sum += t[m];
                kept++;
            }
            longest = sum > longest ? sum : longest;
        }
        seconds += longest + l->rest;
    }
    all = (double)l->updates * l->ranks * l->micro_batches;
    return (lt_drop_plan){.deadline = deadline,
                          .step = seconds / (l->updates > 0 ? l->updates : 1),
                          .kept = all > 0 ? kept / all : 1};
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Lists, ascending, the seconds that each rank took for its first 1 to M-1 of M micro-batches. Returns the count. */
static size_t list_prefix_sums(const lt_drop_latencies *l, double *sum)
{
    size_t count = 0;
    const int64_t rows = (int64_t)l->updates * l->ranks;
    for (int64_t row = 0; row < rows; row++) {
        double before = 0;
        for (int m = 0; m + 1 < l->micro_batches; m++) {
            before += l->seconds[row * l->micro_batches + m];
            sum[count++] = before;
        }
    }
    qsort(sum, count, sizeof *sum, compare_doubles);
    return count;
}

lt_drop_plan lt_drop_choose(const lt_drop_latencies *l)
{
    lt_drop_plan best = lt_drop_predict(l, 0);
    const double whole = best.kept / best.step;
    const size_t most = (size_t)l->updates * (size_t)l->ranks * (size_t)l->micro_batches;
    double *sum = lt_alloc(most ? most : 1, sizeof *sum);
    best.gain = 1;
    if (!sum) /* use no deadline */
        return best;
    const size_t count = list_prefix_sums(l, sum);
    const size_t tried = count < CANDIDATES ? count : CANDIDATES;
    for (size_t i = 0; i < tried; i++) {
        lt_drop_plan p = lt_drop_predict(l, sum[i * count / tried]);
        p.gain = p.kept / p.step / whole;
        if (p.gain > best.gain)
            best = p;
    }
    lt_free(sum);
    return best;
}
