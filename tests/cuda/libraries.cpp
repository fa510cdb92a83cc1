/* The calls of cuBLAS and cuSOLVER on the host, executed at once and without their headers, so that their callers can
 * be tested without a device or a toolkit. libraries/loops.h computes. */

#include "libraries/eigen.h"
#include "libraries/loops.h"

#include <cublas_v2.h>
#include <cusolverDn.h>

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)handle;
    return mode > CUBLAS_TF32_TENSOR_OP_MATH;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode)
{
    (void)handle;
    return mode > CUBLAS_POINTER_MODE_DEVICE; /* both are followed: memory is the host's */
}

cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *params)
{
    *params = NULL;
    return 0;
}

cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params)
{
    (void)params;
    return 0;
}

#define FAKE_GEMM(letter, real)                                                                    \
    cublasStatus_t cublas##letter##gemmBatched(                                                    \
        cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k,  \
        const real *alpha, const real *const *a, int lda, const real *const *b, int ldb,           \
        const real *beta, real *const *c, int ldc, int count)                                      \
    {                                                                                              \
        (void)handle;                                                                              \
        const loop_gemm<real> g = {opa != CUBLAS_OP_N, opb != CUBLAS_OP_N, m, n, k, lda, ldb, ldc, \
                                   (double)*alpha,     (double)*beta};                             \
        for (int i = 0; i < count; i++)                                                            \
            loop_multiply(g, a[i], b[i], c[i]);                                                    \
        return 0;                                                                                  \
    }
FAKE_GEMM(S, float)
FAKE_GEMM(D, double)

#define FAKE_STRIDED_GEMM(letter, real)                                                            \
    cublasStatus_t cublas##letter##gemmStridedBatched(                                             \
        cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k,  \
        const real *alpha, const real *a, int lda, long long int a_apart, const real *b, int ldb,  \
        long long int b_apart, const real *beta, real *c, int ldc, long long int c_apart,          \
        int count)                                                                                 \
    {                                                                                              \
        (void)handle;                                                                              \
        const loop_gemm<real> g = {opa != CUBLAS_OP_N, opb != CUBLAS_OP_N, m, n, k, lda, ldb, ldc, \
                                   (double)*alpha,     (double)*beta};                             \
        for (int i = 0; i < count; i++)                                                            \
            loop_multiply(g, a + i * a_apart, b + i * b_apart, c + i * c_apart);                   \
        return 0;                                                                                  \
    }
FAKE_STRIDED_GEMM(S, float)
FAKE_STRIDED_GEMM(D, double)

#define FAKE_TRSM(letter, real)                                                                    \
    cublasStatus_t cublas##letter##trsmBatched(                                                    \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t op, \
        cublasDiagType_t diag, int m, int n, const real *alpha, const real *const *a, int lda,     \
        real *const *b, int ldb, int count)                                                        \
    {                                                                                              \
        (void)handle, (void)side, (void)uplo, (void)diag;                                          \
        for (int i = 0; i < count && op == CUBLAS_OP_N; i++)                                       \
            loop_substitute(m, n, (double)*alpha, a[i], lda, b[i], ldb);                           \
        return op != CUBLAS_OP_N;                                                                  \
    }
FAKE_TRSM(S, float)
FAKE_TRSM(D, double)

#define FAKE_POTRF(letter, real)                                                               \
    cusolverStatus_t cusolverDn##letter##potrfBatched(cusolverDnHandle_t handle,               \
                                                      cublasFillMode_t uplo, int n, real *a[], \
                                                      int lda, int *info, int count)           \
    {                                                                                          \
        (void)handle, (void)uplo;                                                              \
        for (int i = 0; i < count; i++)                                                        \
            info[i] = loop_cholesky(n, a[i], lda);                                             \
        return 0;                                                                              \
    }
FAKE_POTRF(S, float)
FAKE_POTRF(D, double)

#define FAKE_QR(letter, real)                                                                      \
    cusolverStatus_t cusolverDn##letter##geqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          real *a, int lda, int *count)            \
    {                                                                                              \
        (void)handle, (void)m, (void)a, (void)lda;                                                 \
        *count = n;                                                                                \
        return 0;                                                                                  \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##orgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          int k, const real *a, int lda,           \
                                                          const real *tau, int *count)             \
    {                                                                                              \
        (void)handle, (void)m, (void)k, (void)a, (void)lda, (void)tau;                             \
        *count = n;                                                                                \
        return 0;                                                                                  \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##geqrf(cusolverDnHandle_t handle, int m, int n, real *a,   \
                                               int lda, real *tau, real *work, int count,          \
                                               int *info)                                          \
    {                                                                                              \
        (void)handle, (void)work;                                                                  \
        *info = count < n;                                                                         \
        loop_reflect(m, n, a, lda, tau);                                                           \
        return *info;                                                                              \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##orgqr(cusolverDnHandle_t handle, int m, int n, int k,     \
                                               real *a, int lda, const real *tau, real *work,      \
                                               int count, int *info)                               \
    {                                                                                              \
        (void)handle, (void)work;                                                                  \
        *info = count < n;                                                                         \
        loop_form_q(m, n, k, a, lda, tau);                                                         \
        return *info;                                                                              \
    }
FAKE_QR(S, float)
FAKE_QR(D, double)

cusolverStatus_t cusolverDnXsyevBatched_bufferSize(cusolverDnHandle_t handle,
                                                   cusolverDnParams_t params,
                                                   cusolverEigMode_t mode, cublasFillMode_t uplo,
                                                   int64_t n, cudaDataType type_a, const void *a,
                                                   int64_t lda, cudaDataType type_w, const void *w,
                                                   cudaDataType compute, size_t *device,
                                                   size_t *host, int64_t count)
{
    (void)handle, (void)params, (void)mode, (void)uplo, (void)a, (void)lda, (void)w, (void)count;
    *device = (size_t)n;
    *host = 0;
    return type_a != type_w || compute != type_a;
}

cusolverStatus_t cusolverDnXsyevBatched(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                        cusolverEigMode_t mode, cublasFillMode_t uplo, int64_t n,
                                        cudaDataType type_a, void *a, int64_t lda,
                                        cudaDataType type_w, void *w, cudaDataType compute,
                                        void *device, size_t device_bytes, void *host,
                                        size_t host_bytes, int *info, int64_t count)
{
    (void)handle, (void)params, (void)mode, (void)uplo, (void)type_w, (void)compute, (void)device;
    (void)device_bytes, (void)host, (void)host_bytes;
    for (int64_t i = 0; i < count; i++)
        info[i] = type_a == CUDA_R_64F
                      ? loop_eigen(n, (double *)a + i * n * lda, lda, (double *)w + i * n)
                      : loop_eigen(n, (float *)a + i * n * lda, lda, (float *)w + i * n);
    return 0;
}
