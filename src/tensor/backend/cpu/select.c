/* The largest magnitudes of a vector of f32 without gaps; else ref's. */

#include "tensor/backend/select.h"

#include "tensor/backend/cpu/internal.h"

lt_status lt_cpu_topk_select(void *ctx, const lt_view *x, const lt_view *index)
{
    const int64_t n = x->shape.dim[0], count = index->shape.dim[0];
    if (x->dtype != LT_F32 || (x->stride[0] != 1 && n != 1) || (index->stride[0] != 1 && count != 1)
        || n > INT32_MAX)
        return lt_backend_ref()->topk_select(ctx, x, index);
    void *workspace = lt_cpu_scratch(ctx, LT_CPU_PARTIAL, lt_select_workspace(n));
    return workspace ? lt_select_topk(x->data, n, count, index->data, workspace) : LT_E_NOMEM;
}
