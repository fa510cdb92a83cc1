/* Mask of the parameters that have a gradient on any rank. An eager update reads it on the host. A captured update
 * cannot: it assumes the last eager update's mask and accumulates the squared deviation on the device. That sum is
 * checked where the host synchronizes anyway, before an evaluation or a checkpoint. */

#include "base/alloc.h"
#include "dist/data_parallel/state.h"
#include "tensor/tensor.h"

static size_t mask_bytes(const lt_data_parallel *dp)
{
    return dp->members * sizeof(double);
}

static lt_status allocate_expected_mask(lt_data_parallel *dp)
{
    const lt_shape shape = LT_SHAPE((int64_t)dp->members);
    if (!dp->deviation)
        LT_TRY(lt_tensor_new(&dp->deviation, dp->device, LT_F64, shape));
    return dp->expected ? LT_OK : lt_tensor_new(&dp->expected, dp->device, LT_F64, shape);
}

/* Records the mask that the next graph capture assumes. */
static lt_status record_expected_mask(lt_data_parallel *dp)
{
    LT_TRY(allocate_expected_mask(dp));
    double *negative = NULL;
    LT_TRY(LT_ALLOC(&negative, dp->members));
    for (size_t i = 0; i < dp->members; i++)
        negative[i] = -dp->grad_mask_host[i];
    lt_status st = lt_tensor_write(dp->expected, negative, mask_bytes(dp));
    lt_free(negative);
    return st;
}

/* deviation += (grad_mask - assumed)^2, in f64; overwrites grad_mask. */
static lt_status accumulate_deviation(lt_data_parallel *dp)
{
    const lt_backend *be = dp->device->backend;
    void *ctx = dp->device->ctx;
    const lt_vec_job jobs[] = {
        {.op = LT_VEC_AXPBY,
         .alpha = 1,
         .beta = 1,
         .a = lt_flat_view(dp->expected),
         .y = lt_flat_view(dp->grad_mask)},
        {.op = LT_VEC_SQUARE,
         .alpha = 1,
         .beta = 1,
         .a = lt_flat_view(dp->grad_mask),
         .y = lt_flat_view(dp->deviation)},
    };
    if (!be->vec)
        return lt_fail(LT_E_UNSUPPORTED, "data parallel: backend %s lacks the kernel vec",
                       be->name);
    LT_TRY(be->vec(ctx, &jobs[0], 1, NULL)); /* the second reads what the first writes */
    return be->vec(ctx, &jobs[1], 1, NULL);
}

lt_status lt_dp_read_grad_mask(lt_data_parallel *dp)
{
    if (dp->device->capturing) {
        if (!dp->expected)
            return lt_fail(LT_E_UNSUPPORTED,
                           "data parallel: run an update eagerly before capturing one");
        dp->captured = true;
        return accumulate_deviation(dp);
    }
    LT_TRY(lt_tensor_read(dp->grad_mask, dp->grad_mask_host, mask_bytes(dp)));
    return dp->device->backend->graphs ? record_expected_mask(dp) : LT_OK;
}

lt_status lt_dp_check_grad_mask(const lt_data_parallel *dp)
{
    if (!dp->captured)
        return LT_OK;
    double *deviation = NULL;
    LT_TRY(LT_ALLOC(&deviation, dp->members));
    lt_status st = lt_tensor_read(dp->deviation, deviation, mask_bytes(dp));
    for (size_t i = 0; i < dp->members && !st; i++)
        if (!(deviation[i] <= 0))
            st = lt_fail(
                LT_E_COMM,
                "data parallel: the ranks that have a gradient of %s changed since the update was "
                "captured",
                dp->member[dp->order[i]].param->name);
    lt_free(deviation);
    return st;
}
