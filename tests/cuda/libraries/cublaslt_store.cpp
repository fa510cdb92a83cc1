/* Handles and descriptors of the stand-in for cuBLASLt. Source: the cuBLASLt API reference. */

#include "cublaslt.h"

#include <cstring>

struct cublasLtContext {
    int unused;
};

using namespace blaslt;

open_things blaslt::things;

namespace
{

template <class T, class U> cublasStatus_t set(T &to, const void *from, size_t bytes, U)
{
    U value;
    if (!from || bytes != sizeof value)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&value, from, sizeof value);
    to = (T)value;
    return CUBLAS_STATUS_SUCCESS;
}

} /* namespace */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (!standin_allowed(__func__) || standin_fails(__func__))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = things.add(new cublasLtContext{});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    things.remove(handle, __func__);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    auto made = new operation{};
    made->compute = compute;
    made->scale = scale;
    made->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = things.add(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    things.remove(d, __func__);
    delete static_cast<operation *>(d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t name, const void *from,
                                              size_t bytes)
{
    things.need(d, __func__);
    auto op = static_cast<operation *>(d);
    switch (name) {
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return set(op->pointer_mode, from, bytes, int32_t{});
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(op->transpose_a, from, bytes, int32_t{});
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(op->transpose_b, from, bytes, int32_t{});
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(op->epilogue, from, bytes, uint32_t{});
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(op->bias, from, bytes, (const void *)nullptr);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(op->bias_type, from, bytes, int32_t{});
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading)
{
    auto made = new layout{};
    made->type = type;
    made->rows = (int64_t)rows;
    made->columns = (int64_t)columns;
    made->leading = leading;
    made->batches = 1;
    *out = things.add(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    things.remove(l, __func__);
    delete static_cast<layout *>(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t d,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void *from, size_t bytes)
{
    things.need(d, __func__);
    auto l = static_cast<layout *>(d);
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set(l->order, from, bytes, int32_t{});
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(l->batches, from, bytes, int32_t{});
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(l->batch_stride, from, bytes, int64_t{});
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    auto made = new preference{};
    made->schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    for (uint32_t &a : made->alignment)
        a = 256;
    *out = things.add(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    things.remove(p, __func__);
    delete static_cast<preference *>(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t d,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *from, size_t bytes)
{
    things.need(d, __func__);
    auto p = static_cast<preference *>(d);
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(p->workspace, from, bytes, uint64_t{});
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(p->schemes, from, bytes, uint32_t{});
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(p->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], from, bytes,
                   uint32_t{});
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}
