/* Which gradients there are. On the host a rank reads that in every update. A recorded update cannot:
 * it takes what the one before it found, and adds up on the device how far what arrives is from that.
 * The sum is read where the host waits anyway: before an evaluation and before a checkpoint. */

#include "base/alloc.h"
#include "dist/data_parallel/data_parallel.h"
#include "tensor/tensor.h"

static size_t bytes_of_flags(const lt_data_parallel *dp)
{
    return dp->members * sizeof(double);
}

static lt_status make_expected(lt_data_parallel *dp)
{
    const lt_shape shape = LT_SHAPE((int64_t)dp->members);
    if (!dp->odd)
        LT_TRY(lt_tensor_new(&dp->odd, dp->device, LT_F64, shape));
    return dp->expected ? LT_OK : lt_tensor_new(&dp->expected, dp->device, LT_F64, shape);
}

/* For the next recording. */
static lt_status expect(lt_data_parallel *dp)
{
    LT_TRY(make_expected(dp));
    double *negative = lt_alloc(dp->members, sizeof *negative);
    if (!negative)
        return LT_E_NOMEM;
    for (size_t i = 0; i < dp->members; i++)
        negative[i] = -dp->present_host[i];
    lt_status st = lt_tensor_write(dp->expected, negative, bytes_of_flags(dp));
    lt_free(negative);
    return st;
}

/* odd += (present - expected)^2, in f64; present is not wanted any more. */
static lt_status compare(lt_data_parallel *dp)
{
    const lt_backend *be = dp->device->backend;
    void *ctx = dp->device->ctx;
    const lt_vec_job jobs[] = {
        {.op = LT_VEC_AXPBY,
         .alpha = 1,
         .beta = 1,
         .a = lt_dp_flat(dp->expected),
         .y = lt_dp_flat(dp->present)},
        {.op = LT_VEC_SQUARE,
         .alpha = 1,
         .beta = 1,
         .a = lt_dp_flat(dp->present),
         .y = lt_dp_flat(dp->odd)},
    };
    if (!be->vec)
        return lt_fail(LT_E_UNSUPPORTED, "data parallel: backend %s has no kernel for vec",
                       be->name);
    LT_TRY(be->vec(ctx, &jobs[0], 1, NULL)); /* the second reads what the first writes */
    return be->vec(ctx, &jobs[1], 1, NULL);
}

lt_status lt_dp_note_present(lt_data_parallel *dp)
{
    if (dp->device->capturing) {
        if (!dp->expected)
            return lt_fail(LT_E_UNSUPPORTED, "data parallel: an update must run as it is before it "
                                             "is recorded");
        dp->recorded = true;
        return compare(dp);
    }
    LT_TRY(lt_tensor_read(dp->present, dp->present_host, bytes_of_flags(dp)));
    return dp->device->backend->graphs ? expect(dp) : LT_OK;
}

lt_status lt_dp_check_present(const lt_data_parallel *dp)
{
    if (!dp->recorded)
        return LT_OK;
    double *odd = lt_alloc(dp->members, sizeof *odd);
    if (!odd)
        return LT_E_NOMEM;
    lt_status st = lt_tensor_read(dp->odd, odd, bytes_of_flags(dp));
    for (size_t i = 0; i < dp->members && !st; i++)
        if (!(odd[i] <= 0))
            st = lt_fail(LT_E_COMM,
                         "data parallel: other ranks had a gradient of %s than when the update was "
                         "recorded",
                         dp->member[dp->order[i]].param->name);
    lt_free(odd);
    return st;
}
