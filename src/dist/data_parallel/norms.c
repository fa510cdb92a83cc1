/* Norms of this rank's gradients, measured when they are final, before the reduction. */

#include "dist/data_parallel/state.h"
#include "tensor/tensor.h"

lt_status lt_dp_allocate_norms(lt_data_parallel *dp)
{
    if (!dp->config.norms)
        return LT_OK;
    if (!dp->device->backend->frobenius)
        return lt_fail(LT_E_UNSUPPORTED,
                       "data parallel: gradient norms need a backend with frobenius, %s lacks it",
                       lt_device_name(dp->device));
    return lt_tensor_new(&dp->norm, dp->device, LT_F64, LT_SHAPE((int64_t)dp->members));
}

lt_status lt_dp_measure_norm(const lt_data_parallel *dp, const lt_dp_member *m)
{
    if (!dp->norm)
        return LT_OK;
    const lt_view grad = lt_tensor_view(m->param->grad);
    const lt_view out = lt_flat_slice(dp->norm, m - dp->member, 1);
    return dp->device->backend->frobenius(dp->device->ctx, &grad, 1, &out);
}

lt_status lt_dp_zero_norms(const lt_data_parallel *dp, const lt_dp_bucket *b)
{
    for (size_t i = 0; i < b->count && b->pending && dp->norm; i++) {
        const lt_dp_member *m = &dp->member[dp->order[b->first + i]];
        if (!m->is_packed)
            LT_TRY(lt_dp_fill(dp, 0, lt_flat_slice(dp->norm, m - dp->member, 1)));
    }
    return LT_OK;
}

lt_tensor *lt_data_parallel_norms(const lt_data_parallel *dp)
{
    return dp->norm;
}
