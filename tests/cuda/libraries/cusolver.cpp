/* A stand-in for the cuSOLVER calls of the backend: batched Cholesky factors, Householder QR, batched eigenvectors.
 * It checks the size of the workspace and overwrites its content. Source: the cuSOLVER API reference. */

#include "../standin/version.h"
#include "eigen.h"
#include "loops.h"
#include "open_things.h"

#include <algorithm>
#include <cusolverDn.h>
#include <limits>

struct cusolverDnContext {
    cudaStream_t stream;
};
struct cusolverDnParams {
    int unused;
};

namespace
{

open_things things;

/* Status of a call that a test made fail. */
cusolverStatus_t failure()
{
    return standin_no_memory() ? CUSOLVER_STATUS_ALLOC_FAILED : CUSOLVER_STATUS_EXECUTION_FAILED;
}

constexpr int SPOILT = 0xA5;

int work_of(int n)
{
    return 32 * n + 7;
}

size_t device_work(int64_t n, int64_t count, size_t size)
{
    return (size_t)(count * (2 * n + 3)) * size;
}

size_t host_work(int64_t count)
{
    return (size_t)count * 24;
}

/* Memory of a matrix by columns. */
template <class real> size_t square(int64_t n, int64_t lda)
{
    return (size_t)((n - 1) * lda + n) * sizeof(real);
}

template <class real> void set_identity(int64_t n, real *a, int64_t lda)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++)
            a[j * lda + i] = (real)(i == j);
}

template <class real>
cusolverStatus_t potrf(cusolverDnHandle_t handle, cublasFillMode_t fill, int n, real **a, int lda,
                       int *info, int count)
{
    things.need(handle, "potrfBatched");
    if (n < 1 || lda < n || count < 1)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (fill != CUBLAS_FILL_MODE_LOWER)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    if (standin_fails("cusolverDnPotrfBatched"))
        return failure();
    standin_check_device(a, (size_t)count * sizeof *a, "potrfBatched: a");
    standin_check_device(info, (size_t)count * sizeof *info, "potrfBatched: info");
    standin_queue(
        handle->stream,
        [=] {
            const uint64_t bytes = (uint64_t)count * n * n / 2 * sizeof(real);
            standin_moved(bytes, bytes, (double)count * n * n * n / 3, n);
            for (int i = 0; i < count && !standin_idle(); i++) {
                standin_check_device(a[i], square<real>(n, lda), "potrfBatched: a matrix");
                info[i] = 0;
                if (standin_dry())
                    set_identity<real>(n, a[i], lda);
                else
                    info[i] = loop_cholesky<real>(n, a[i], lda);
            }
        },
        "cusolver potrfBatched");
    return CUSOLVER_STATUS_SUCCESS;
}

/* Some releases of cuSOLVER read workspace that they did not write: a value other than zero there makes the result
 * NaN. */
template <class real> void read_work(const void *work, size_t bytes, real *a, size_t elements)
{
    const char *at = static_cast<const char *>(work);
    if (!standin_dry() && std::any_of(at, at + bytes, [](char byte) { return byte != 0; }))
        std::fill_n(a, elements, std::numeric_limits<real>::quiet_NaN());
}

/* Operands of geqrf and orgqr. */
template <class real> struct columns {
    int m, n, k;
    real *a;
    int lda;
    real *work;
    int count, *info;
};

template <class real>
cusolverStatus_t check(cusolverDnHandle_t handle, const columns<real> &c, const real *tau,
                       const char *what)
{
    things.need(handle, what);
    if (c.n < 1 || c.m < c.n || c.k < 1 || c.k > c.n || c.lda < c.m || c.count < work_of(c.n))
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (standin_fails(what))
        return failure();
    standin_check_device(c.a, (size_t)((c.n - 1) * c.lda + c.m) * sizeof(real), what);
    standin_check_device(tau, (size_t)c.k * sizeof(real), what);
    standin_check_device(c.work, (size_t)c.count * sizeof(real), what);
    standin_check_device(c.info, sizeof *c.info, what);
    return CUSOLVER_STATUS_SUCCESS;
}

template <class real>
cusolverStatus_t geqrf(cusolverDnHandle_t handle, const columns<real> &c, real *tau)
{
    const cusolverStatus_t st = check<real>(handle, c, tau, "cusolverDnGeqrf");
    if (!st)
        standin_queue(
            handle->stream,
            [=] {
                read_work(c.work, (size_t)c.count * sizeof(real), c.a, (size_t)c.m);
                memset(c.work, SPOILT, (size_t)c.count * sizeof(real));
                loop_reflect<real>(c.m, c.n, c.a, c.lda, tau);
                *c.info = 0;
            },
            "cusolver geqrf");
    return st;
}

template <class real>
cusolverStatus_t orgqr(cusolverDnHandle_t handle, const columns<real> &c, const real *tau)
{
    const cusolverStatus_t st = check<real>(handle, c, tau, "cusolverDnOrgqr");
    if (!st)
        standin_queue(
            handle->stream,
            [=] {
                read_work(c.work, (size_t)c.count * sizeof(real), c.a, (size_t)c.m);
                memset(c.work, SPOILT, (size_t)c.count * sizeof(real));
                loop_form_q<real>(c.m, c.n, c.k, c.a, c.lda, tau);
                *c.info = 0;
            },
            "cusolver orgqr");
    return st;
}

/* Matrices one after another. */
template <class real>
void solve_all(int64_t n, real *a, int64_t lda, real *w, int *info, int64_t count)
{
    if (standin_idle())
        return;
    for (int64_t i = 0; i < count && standin_dry(); i++) {
        set_identity<real>(n, a + i * n * lda, lda);
        std::fill(w + i * n, w + (i + 1) * n, (real)1);
        info[i] = 0;
    }
    for (int64_t i = 0; i < count && !standin_dry(); i++)
        info[i] = loop_eigen<real>(n, a + i * n * lda, lda, w + i * n);
}

struct types {
    cudaDataType a, w, compute;
};

bool fit(const types &t)
{
    return t.a == t.w && t.a == t.compute && (t.a == CUDA_R_32F || t.a == CUDA_R_64F);
}

} /* namespace */

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle)
{
    if (!standin_allowed(__func__) || standin_fails(__func__))
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    *handle = things.add(new cusolverDnContext{});
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle)
{
    things.remove(handle, __func__);
    delete handle;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream)
{
    things.need(handle, __func__);
    handle->stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t *params)
{
    if (standin_fails(__func__))
        return CUSOLVER_STATUS_ALLOC_FAILED;
    *params = things.add(new cusolverDnParams{});
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params)
{
    things.remove(params, __func__);
    delete params;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverGetProperty(libraryPropertyType type, int *value)
{
    *value = type == MAJOR_VERSION   ? CUSOLVER_VER_MAJOR
             : type == MINOR_VERSION ? CUSOLVER_VER_MINOR
                                     : CUSOLVER_VER_PATCH;
    *value = standin_property("cuSOLVER", type, *value);
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXsyevBatched_bufferSize(cusolverDnHandle_t handle,
                                                   cusolverDnParams_t params,
                                                   cusolverEigMode_t mode, cublasFillMode_t fill,
                                                   int64_t n, cudaDataType type_a, const void *,
                                                   int64_t lda, cudaDataType type_w, const void *,
                                                   cudaDataType compute, size_t *device,
                                                   size_t *host, int64_t count)
{
    things.need(handle, __func__);
    things.need(params, __func__);
    if (n < 1 || lda < n || count < 1 || !fit({type_a, type_w, compute})
        || mode != CUSOLVER_EIG_MODE_VECTOR || fill != CUBLAS_FILL_MODE_LOWER)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *device = device_work(n, count, type_a == CUDA_R_64F ? sizeof(double) : sizeof(float));
    *host = host_work(count);
    return CUSOLVER_STATUS_SUCCESS;
}

/* The host's work memory is used when the stream comes to it, as the reference says. */
cusolverStatus_t cusolverDnXsyevBatched(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                        cusolverEigMode_t mode, cublasFillMode_t fill, int64_t n,
                                        cudaDataType type_a, void *a, int64_t lda,
                                        cudaDataType type_w, void *w, cudaDataType compute,
                                        void *device, size_t device_bytes, void *host,
                                        size_t host_bytes, int *info, int64_t count)
{
    size_t need_device, need_host;
    const cusolverStatus_t st =
        cusolverDnXsyevBatched_bufferSize(handle, params, mode, fill, n, type_a, a, lda, type_w, w,
                                          compute, &need_device, &need_host, count);
    if (st || device_bytes < need_device || host_bytes < need_host)
        return st ? st : CUSOLVER_STATUS_INVALID_VALUE;
    if (!standin_allowed(__func__) || standin_fails(__func__))
        return failure();
    const size_t size = type_a == CUDA_R_64F ? sizeof(double) : sizeof(float);
    standin_check_device(a, (size_t)(count * n * lda) * size, "XsyevBatched: a");
    standin_check_device(w, (size_t)(count * n) * size, "XsyevBatched: w");
    standin_check_device(info, (size_t)count * sizeof *info, "XsyevBatched: info");
    standin_check_device(device, need_device, "XsyevBatched: work");
    standin_check_host(host, need_host, "XsyevBatched: the host's work");
    standin_queue(
        handle->stream,
        [=] {
            if (type_a == CUDA_R_64F)
                read_work(device, need_device, (double *)a, (size_t)n);
            else
                read_work(device, need_device, (float *)a, (size_t)n);
            memset(device, SPOILT, need_device);
            memset(host, SPOILT, need_host);
            if (type_a == CUDA_R_64F)
                solve_all<double>(n, (double *)a, lda, (double *)w, info, count);
            else
                solve_all<float>(n, (float *)a, lda, (float *)w, info, count);
        },
        "cusolver XsyevBatched");
    return CUSOLVER_STATUS_SUCCESS;
}

#define FACTORS(letter, real)                                                                      \
    cusolverStatus_t cusolverDn##letter##potrfBatched(cusolverDnHandle_t handle,                   \
                                                      cublasFillMode_t fill, int n, real **a,      \
                                                      int lda, int *info, int count)               \
    {                                                                                              \
        return potrf<real>(handle, fill, n, a, lda, info, count);                                  \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##geqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          real *, int lda, int *count)             \
    {                                                                                              \
        things.need(handle, __func__);                                                             \
        *count = work_of(n);                                                                       \
        return m < 1 || n < 1 || lda < m ? CUSOLVER_STATUS_INVALID_VALUE                           \
                                         : CUSOLVER_STATUS_SUCCESS;                                \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##geqrf(cusolverDnHandle_t handle, int m, int n, real *a,   \
                                               int lda, real *tau, real *work, int count,          \
                                               int *info)                                          \
    {                                                                                              \
        return geqrf<real>(handle, {m, n, n, a, lda, work, count, info}, tau);                     \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##orgqr_bufferSize(cusolverDnHandle_t handle, int m, int n, \
                                                          int k, const real *, int lda,            \
                                                          const real *, int *count)                \
    {                                                                                              \
        things.need(handle, __func__);                                                             \
        *count = work_of(n);                                                                       \
        return m < n || n < k || lda < m ? CUSOLVER_STATUS_INVALID_VALUE                           \
                                         : CUSOLVER_STATUS_SUCCESS;                                \
    }                                                                                              \
    cusolverStatus_t cusolverDn##letter##orgqr(cusolverDnHandle_t handle, int m, int n, int k,     \
                                               real *a, int lda, const real *tau, real *work,      \
                                               int count, int *info)                               \
    {                                                                                              \
        return orgqr<real>(handle, {m, n, k, a, lda, work, count, info}, tau);                     \
    }
FACTORS(S, float)
FACTORS(D, double)
