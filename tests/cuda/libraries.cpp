/* cuBLAS's and cuSOLVER's calls as plain loops on the host, column-major as theirs, so that what stands
 * around them can be tested without a device. Sums are taken in double. */

#include "lather/ext/backend.h"

#include <cublas_v2.h>
#include <cusolverDn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* With beta 0 what is in c does not count. */
#define FAKE_GEMM(letter, real)                                                                   \
    cublasStatus_t cublas##letter##gemmBatched(                                                   \
        cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k, \
        const real *alpha, const real *const *a, int lda, const real *const *b, int ldb,          \
        const real *beta, real *const *c, int ldc, int count)                                     \
    {                                                                                             \
        (void)handle;                                                                             \
        for (int64_t e = 0; e < (int64_t)count * n * m; e++) {                                    \
            int64_t batch = e / ((int64_t)n * m), j = e / m % n, i = e % m;                       \
            double sum = 0;                                                                       \
            for (int64_t l = 0; l < k; l++) {                                                     \
                double x = (double)a[batch][opa == CUBLAS_OP_N ? i + l * lda : l + i * lda];      \
                double y = (double)b[batch][opb == CUBLAS_OP_N ? l + j * ldb : j + l * ldb];      \
                sum += x * y;                                                                     \
            }                                                                                     \
            real *out = &c[batch][i + j * ldc];                                                   \
            double kept = *beta != 0 ? (double)*beta * (double)*out : 0;                          \
            *out = (real)((double)*alpha * sum + kept);                                           \
        }                                                                                         \
        return 0;                                                                                 \
    }
FAKE_GEMM(S, float)
FAKE_GEMM(D, double)

/* Left, lower, not transposed: forward substitution. */
#define FAKE_TRSM(letter, real)                                                                    \
    cublasStatus_t cublas##letter##trsmBatched(                                                    \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t op, \
        cublasDiagType_t diag, int m, int n, const real *alpha, const real *const *a, int lda,     \
        real *const *b, int ldb, int count)                                                        \
    {                                                                                              \
        (void)handle, (void)side, (void)uplo, (void)diag;                                          \
        if (op != CUBLAS_OP_N)                                                                     \
            return 1;                                                                              \
        for (int64_t e = 0; e < (int64_t)count * n * m; e++) {                                     \
            int64_t batch = e / ((int64_t)n * m), j = e / m % n, i = e % m;                        \
            double sum = (double)*alpha * (double)b[batch][i + j * ldb];                           \
            for (int64_t l = 0; l < i; l++)                                                        \
                sum -= (double)a[batch][i + l * lda] * (double)b[batch][l + j * ldb];              \
            b[batch][i + j * ldb] = (real)(sum / (double)a[batch][i * (lda + 1)]);                 \
        }                                                                                          \
        return 0;                                                                                  \
    }
FAKE_TRSM(S, float)
FAKE_TRSM(D, double)

/* The upper triangle is left as it was. */
#define FAKE_POTRF(letter, real)                                                               \
    static int factorize_##letter(real *a, int n, int lda)                                     \
    {                                                                                          \
        for (int64_t j = 0; j < n; j++)                                                        \
            for (int64_t i = j; i < n; i++) {                                                  \
                double sum = (double)a[i + j * lda];                                           \
                for (int64_t k = 0; k < j; k++)                                                \
                    sum -= (double)a[i + k * lda] * (double)a[j + k * lda];                    \
                if (i == j && !(sum > 0))                                                      \
                    return (int)j + 1;                                                         \
                a[i + j * lda] = (real)(i == j ? sqrt(sum) : sum / (double)a[j * (lda + 1)]);  \
            }                                                                                  \
        return 0;                                                                              \
    }                                                                                          \
    cusolverStatus_t cusolverDn##letter##potrfBatched(cusolverDnHandle_t handle,               \
                                                      cublasFillMode_t uplo, int n, real *a[], \
                                                      int lda, int *info, int count)           \
    {                                                                                          \
        (void)handle, (void)uplo;                                                              \
        for (int i = 0; i < count; i++)                                                        \
            info[i] = factorize_##letter(a[i], n, lda);                                        \
        return 0;                                                                              \
    }
FAKE_POTRF(S, float)
FAKE_POTRF(D, double)

/* Gram-Schmidt, twice, with the signs of every other column turned: q waits in the work memory, the
 * diagonal of r is where it belongs. */
static void orthonormalize(double *q, double *diagonal, int n)
{
    for (int64_t k = 0; k < n; k++) {
        double *mine = q + k * n, length = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < k; j++) {
                double dot = 0;
                for (int64_t i = 0; i < n; i++)
                    dot += q[j * n + i] * mine[i];
                for (int64_t i = 0; i < n; i++)
                    mine[i] -= dot * q[j * n + i];
            }
        for (int64_t i = 0; i < n; i++)
            length += mine[i] * mine[i];
        diagonal[k] = k % 2 ? sqrt(length) : -sqrt(length);
        for (int64_t i = 0; i < n; i++)
            mine[i] /= diagonal[k];
    }
}

#define FAKE_QR(letter, real)                                                                      \
    cusolverStatus_t cusolverDn##letter##geqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          real *a, int lda, int *count)            \
    {                                                                                              \
        (void)handle, (void)a, (void)lda;                                                          \
        *count = m * n;                                                                            \
        return 0;                                                                                  \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##orgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          int k, const real *a, int lda,           \
                                                          const real *tau, int *count)             \
    {                                                                                              \
        (void)handle, (void)m, (void)n, (void)a, (void)lda, (void)tau;                             \
        *count = k;                                                                                \
        return 0;                                                                                  \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##geqrf(cusolverDnHandle_t handle, int m, int n, real *a,   \
                                               int lda, real *tau, real *work, int count,          \
                                               int *info)                                          \
    {                                                                                              \
        (void)handle, (void)tau;                                                                   \
        double *q = (double *)calloc((size_t)(n * (n + 1)), sizeof *q);                            \
        *info = !q || m != n || lda != n || count < n * n;                                         \
        for (int i = 0; i < n * n && !*info; i++)                                                  \
            q[i] = (double)a[i];                                                                   \
        if (!*info)                                                                                \
            orthonormalize(q, q + (int64_t)n * n, n);                                              \
        for (int i = 0; i < n * n && !*info; i++)                                                  \
            work[i] = (real)q[i];                                                                  \
        for (int i = 0; i < n && !*info; i++)                                                      \
            a[i * (n + 1)] = (real)q[n * n + i];                                                   \
        free(q);                                                                                   \
        return *info;                                                                              \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##orgqr(cusolverDnHandle_t handle, int m, int n, int k,     \
                                               real *a, int lda, const real *tau, real *work,      \
                                               int work_count, int *info)                          \
    {                                                                                              \
        (void)handle, (void)m, (void)k, (void)lda, (void)tau, (void)work_count;                    \
        for (int i = 0; i < n * n; i++)                                                            \
            a[i] = work[i];                                                                        \
        *info = 0;                                                                                 \
        return 0;                                                                                  \
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

static lt_view view_of(void *data, lt_dtype dtype, int ndim, int64_t n)
{
    lt_view v = {};
    v.data = data;
    v.dtype = dtype;
    v.shape.ndim = ndim;
    v.shape.dim[0] = v.shape.dim[1] = n;
    v.stride[0] = ndim == 2 ? n : 1;
    v.stride[1] = 1;
    return v;
}

/* One matrix, by ref's solver; the vectors become columns in their order of memory. */
static int solve(void *a, void *w, int64_t n, lt_dtype dtype)
{
    const size_t size = lt_dtype_size(dtype), square = (size_t)(n * n);
    void *copy = calloc(square, size), *vectors = calloc(square, size);
    if (!copy || !vectors)
        return 1;
    memcpy(copy, a, square * size);
    lt_eigh_job job = {};
    job.a = view_of(copy, dtype, 2, n);
    job.values = view_of(w, dtype, 1, n);
    job.vectors = view_of(vectors, dtype, 2, n);
    lt_status st = lt_backend_ref()->eigh(NULL, &job, 1);
    for (int64_t i = 0; i < n * n && !st && !job.status; i++)
        memcpy((char *)a + (size_t)(i % n * n + i / n) * size, (char *)vectors + (size_t)i * size,
               size);
    free(copy);
    free(vectors);
    return st || job.status;
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
    const lt_dtype dtype = type_a == CUDA_R_64F ? LT_F64 : LT_F32;
    const size_t size = lt_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++)
        info[i] = solve((char *)a + (size_t)(i * n * lda) * size,
                        (char *)w + (size_t)(i * n) * size, n, dtype);
    return 0;
}
