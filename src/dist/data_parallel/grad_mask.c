/* Which parameters have a gradient on any rank. An eager update reads that on the host. A captured update
 * cannot: it assumes what the last eager one had, and sums the squared deviation on the device. That sum is
 * read where the host synchronizes anyway, before an evaluation and before a checkpoint. */

#include "base/alloc.h"
#include "dist/data_parallel/state.h"
#include "tensor/tensor.h"

static size_t bytes_of_flags(const lt_data_parallel *dp)
{
    return dp->members * sizeof(double);
}

static lt_status make_expected(lt_data_parallel *dp)
{
    const lt_shape shape = LT_SHAPE((int64_t)dp->members);
    if (!dp->deviation)
        LT_TRY(lt_tensor_new(&dp->deviation, dp->device, LT_F64, shape));
    return dp->expected ? LT_OK : lt_tensor_new(&dp->expected, dp->device, LT_F64, shape);
}

/* For the next graph capture. */
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

/* deviation += (present - expected)^2, in f64; present is overwritten. */
static lt_status compare(lt_data_parallel *dp)
{
    const lt_backend *be = dp->device->backend;
    void *ctx = dp->device->ctx;
    const lt_vec_job jobs[] = {
        {.op = LT_VEC_AXPBY,
         .alpha = 1,
         .beta = 1,
         .a = lt_flat(dp->expected),
         .y = lt_flat(dp->present)},
        {.op = LT_VEC_SQUARE,
         .alpha = 1,
         .beta = 1,
         .a = lt_flat(dp->present),
         .y = lt_flat(dp->deviation)},
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
            return lt_fail(LT_E_UNSUPPORTED, "data parallel: an update must run eagerly before it "
                                             "is captured");
        dp->captured = true;
        return compare(dp);
    }
    LT_TRY(lt_tensor_read(dp->present, dp->present_host, bytes_of_flags(dp)));
    return dp->device->backend->graphs ? expect(dp) : LT_OK;
}

lt_status lt_dp_check_present(const lt_data_parallel *dp)
{
    if (!dp->captured)
        return LT_OK;
    double *deviation = lt_alloc(dp->members, sizeof *deviation);
    if (!deviation)
        return LT_E_NOMEM;
    lt_status st = lt_tensor_read(dp->deviation, deviation, bytes_of_flags(dp));
    for (size_t i = 0; i < dp->members && !st; i++)
        if (!(deviation[i] <= 0))
            st = lt_fail(
                LT_E_COMM,
                "data parallel: the ranks that have a gradient of %s are others than when the "
                "update was captured",
                dp->member[dp->order[i]].param->name);
    lt_free(deviation);
    return st;
}
