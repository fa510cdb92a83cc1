/* Strides of matrices, and copies of those that a gemm cannot read. */

#include "matmul_job.h"

enum { B = LT_MATMUL_BATCH, ROWS = LT_MATMUL_ROWS, COLS = LT_MATMUL_COLS };

bool lt_matmul_find_stride(const lt_view *v, bool *transposed, int64_t *stride)
{
    const int64_t rows = v->shape.dim[ROWS], cols = v->shape.dim[COLS];
    *transposed = false;
    *stride = rows == 1 ? cols : v->stride[ROWS];
    if ((cols == 1 || v->stride[COLS] == 1) && *stride >= cols)
        return true;
    *transposed = true;
    *stride = cols == 1 ? rows : v->stride[COLS];
    return (rows == 1 || v->stride[ROWS] == 1) && *stride >= rows;
}

lt_status lt_matmul_make_readable(lt_cpu *cpu, lt_cpu_slot slot, lt_dtype dtype, lt_view *v)
{
    bool transposed;
    int64_t stride;
    if (v->dtype == dtype && lt_matmul_find_stride(v, &transposed, &stride))
        return LT_OK;
    if (v->stride[B] == 0)
        v->shape.dim[B] = 1; /* one copy for all batches */
    size_t bytes = (size_t)lt_cpu_element_count(v) * lt_dtype_size(dtype);
    void *data = lt_cpu_scratch(cpu, slot, bytes);
    if (!data)
        return LT_E_NOMEM;
    lt_view copy = lt_cpu_dense_view(data, dtype, v->shape);
    LT_TRY(lt_cpu_cast(cpu, v, &copy));
    if (v->shape.dim[B] == 1)
        copy.stride[B] = 0;
    *v = copy;
    return LT_OK;
}
