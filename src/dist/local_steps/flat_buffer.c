/* Flat buffer: the elements of all trained parameters, concatenated in memory order, and each rank's shard of it. */

#include "dist/comm/comm.h"
#include "dist/comm/flat.h"
#include "dist/data_parallel/state.h"
#include "dist/local_steps/state.h"
#include "tensor/tensor.h"

lt_status lt_local_axpby(const lt_local_steps *l, double alpha, lt_view x, double beta, lt_view y)
{
    const lt_backend *be = l->device->backend;
    const lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = alpha, .beta = beta, .a = x, .y = y};
    if (!be->vec)
        return lt_fail(LT_E_UNSUPPORTED, "local steps: backend %s lacks the kernel vec", be->name);
    return be->vec(l->device->ctx, &job, 1, NULL);
}

/* Copies parameter i's elements in this rank's shard. */
static lt_status pack_param(const lt_local_steps *l, size_t i, const lt_tensor *shard)
{
    const int64_t end = l->first + l->count[l->local];
    const int64_t from = l->begin[i] > l->first ? l->begin[i] : l->first;
    const int64_t to = l->begin[i + 1] < end ? l->begin[i + 1] : end;
    if (from >= to)
        return LT_OK;
    return lt_local_axpby(l, 1, lt_flat_slice(l->param[i]->value, from - l->begin[i], to - from), 0,
                          lt_flat_slice(shard, from - l->first, to - from));
}

lt_status lt_local_pack(const lt_local_steps *l, lt_tensor *shard)
{
    for (size_t i = 0; i < l->params; i++)
        LT_TRY(pack_param(l, i, shard));
    return LT_OK;
}

lt_status lt_local_unpack(const lt_local_steps *l, const lt_tensor *whole)
{
    for (size_t i = 0; i < l->params; i++) {
        lt_tensor *value = l->param[i]->value;
        LT_TRY(lt_local_axpby(l, 1,
                              lt_flat_slice(whole, l->begin[i], l->begin[i + 1] - l->begin[i]), 0,
                              lt_flat_view(value)));
        lt_tensor_bump_version(value);
    }
    return LT_OK;
}

lt_status lt_local_gather(const lt_local_steps *l, const lt_tensor *shard, lt_tensor **whole)
{
    lt_tensor *all = NULL;
    lt_status st =
        lt_tensor_new(&all, l->device, lt_tensor_dtype(shard), LT_SHAPE(l->begin[l->params]));
    if (!st)
        st = lt_comm_allgather(l->node, shard, all, l->count);
    if (st)
        lt_tensor_free(&all);
    else
        *whole = all;
    return st;
}

/* --- Running statistics --- */

lt_status lt_local_merge_statistics(lt_local_steps *l)
{
    int64_t count;
    if (!l->statistics || l->config.dist_bn == LT_DIST_BN_NONE)
        return LT_OK;
    LT_TRY(lt_dp_copy_statistics(l->all, l->statistic, false, &count));
    LT_TRY(lt_dp_merge_statistics(l->node, l->statistic, l->config.dist_bn));
    LT_TRY(lt_dp_merge_statistics(l->peers, l->statistic, l->config.dist_bn));
    return lt_dp_copy_statistics(l->all, l->statistic, true, &count);
}
