/* Indices of gather and scatter_add in host memory. */
#ifndef LT_TENSOR_BACKEND_INDEX_AT_H
#define LT_TENSOR_BACKEND_INDEX_AT_H

#include "lather/detail/select_kernels.h"
#include "lather/ext/fail.h"
#include "lather/ops/loss.h"

static inline int32_t lt_index_at(const lt_view *index, int64_t a, int64_t i, int64_t b)
{
    return ((const int32_t *)
                index->data)[a * index->stride[0] + i * index->stride[1] + b * index->stride[2]];
}

/* Returns LT_E_ARG, with value and place, for the first index in row-major order outside 0..size-1. A list that strides
 * of 0 repeat is read once. */
static inline lt_status lt_index_check(const lt_index *index, int64_t size)
{
    const lt_view *v = &index->index;
    const int64_t outer = v->stride[0] ? v->shape.dim[0] : 1, m = v->shape.dim[1],
                  inner = v->stride[2] ? v->shape.dim[2] : 1;
    for (int64_t n = 0; n < outer * m * inner; n++) {
        const int32_t at = lt_index_at(v, n / inner / m, n / inner % m, n % inner);
        if ((at < 0 || at >= size) && !(index->ignore && at == LT_IGNORED_LABEL))
            return lt_fail(LT_E_ARG, "%s: index %d at position %lld, want 0..%lld", index->name, at,
                           (long long)n, (long long)size - 1);
    }
    return LT_OK;
}

#endif
