/* A stand-in for what the backend calls of cuBLAS: batched products and substitutions. Lists of pointers
 * are in device memory; factors are where the pointer mode says. Source: the cuBLAS API reference. */

#include "../standin/version.h"
#include "loops.h"
#include "open_things.h"
#include "tensor/backend/dtype.h"

#include <cublas_v2.h>

struct cublasContext {
    cudaStream_t stream;
    cublasPointerMode_t pointers;
    cublasMath_t math;
    void *workspace; /* NULL: cuBLAS's own */
};

namespace
{

open_things things;

/* Status of a call that a test made fail. */
cublasStatus_t failure()
{
    return standin_no_memory() ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* A factor: its value, or where it will be. */
template <class real> struct factor {
    const real *on_device;
    real value;
    real get() const
    {
        return on_device ? *on_device : value;
    }
};
template <class real>
factor<real> take(const cublasContext *handle, const real *p, const char *what)
{
    if (handle->pointers == CUBLAS_POINTER_MODE_DEVICE) {
        standin_check_device(p, sizeof *p, what);
        return {p, 0};
    }
    standin_check_host(p, sizeof *p, what);
    return {nullptr, *p};
}

/* A list of matrices, which is read when the stream comes to it. */
template <class real> struct list {
    real *const *item;
    int64_t bytes; /* bytes per matrix */
    const char *what;
    size_t alignment; /* alignment of the first element */
    real *at(int i) const
    {
        standin_check_device(item[i], (size_t)bytes, what);
        if ((uintptr_t)item[i] % alignment)
            standin_die("%s: a misaligned address", what);
        return item[i];
    }
};
template <class real>
list<real> take(real *const *item, int count, int64_t leading, int64_t columns, int64_t rows,
                const char *what, size_t alignment = sizeof(real))
{
    standin_check_device(item, (size_t)count * sizeof *item, what);
    return {item, ((columns - 1) * leading + rows) * (int64_t)sizeof(real), what, alignment};
}

/* With cuBLAS's flag for it, f32 is TF32. */
void round_list(double *, int64_t)
{
}
void round_list(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = standin_tf32(x[i]);
}
template <class real>
std::vector<real> factor_of(const real *x, int64_t leading, int64_t columns, int64_t rows,
                            bool tf32)
{
    std::vector<real> copy(x, x + (columns - 1) * leading + rows);
    if (tf32)
        round_list(copy.data(), (int64_t)copy.size());
    return copy;
}

struct sizes {
    int m, n, k, lda, ldb, ldc, count;
};

void store_nans(double *, int64_t)
{
}
void store_nans(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = standin_nan(x[i]);
}
template <class real>
void multiply(const loop_gemm<real> &g, const std::vector<real> &a, const std::vector<real> &b,
              real *c)
{
    loop_multiply(g, a.data(), b.data(), c);
    for (int64_t j = 0; j < g.n; j++)
        store_nans(c + j * g.ldc, g.m);
}

template <class real> void clear(real *c, const sizes &s)
{
    for (int64_t j = 0; j < s.n; j++)
        memset(c + j * s.ldc, 0, (size_t)s.m * sizeof *c);
}

void count_product(const sizes &s, size_t bytes)
{
    const uint64_t count = (uint64_t)s.count * bytes, m = (uint64_t)s.m, n = (uint64_t)s.n;
    standin_moved(count * (m + n) * (uint64_t)s.k, count * m * n, 2.0 * s.count * s.m * s.n * s.k);
}

/* Without memory of the caller's a captured call would allocate in the graph, at each launch. */
void need(cublasHandle_t handle, const char *what)
{
    things.need(handle, what);
    if (standin_capturing(handle->stream) && !handle->workspace)
        standin_die("%s: captured without cublasSetWorkspace()", what);
}

template <class real>
cublasStatus_t gemm_batched(cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb,
                            const sizes &s, const real *alpha, const real *const *a,
                            const real *const *b, const real *beta, real *const *c)
{
    need(handle, "gemmBatched");
    const int a_rows = opa ? s.k : s.m, b_rows = opb ? s.n : s.k;
    const int a_columns = opa ? s.m : s.k, b_columns = opb ? s.k : s.n;
    if (s.m < 1 || s.n < 1 || s.k < 1 || s.count < 1 || s.lda < a_rows || s.ldb < b_rows
        || s.ldc < s.m || opa > CUBLAS_OP_T || opb > CUBLAS_OP_T)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (standin_fails("cublasGemmBatched"))
        return failure();
    const auto fa = take(handle, alpha, "gemmBatched: alpha");
    const auto fb = take(handle, beta, "gemmBatched: beta");
    const bool tf32 = handle->math == CUBLAS_TF32_TENSOR_OP_MATH;
    const size_t wanted = tf32 ? 16 : sizeof(real); /* "fast math modes", says the manual */
    const auto la = take(a, s.count, s.lda, a_columns, a_rows, "gemmBatched: a", wanted);
    const auto lb = take(b, s.count, s.ldb, b_columns, b_rows, "gemmBatched: b", wanted);
    const auto lc = take(c, s.count, s.ldc, s.n, s.m, "gemmBatched: c", wanted);
    standin_queue(
        handle->stream,
        [=] {
            const loop_gemm<real> g = {
                opa != CUBLAS_OP_N, opb != CUBLAS_OP_N, s.m, s.n, s.k, s.lda, s.ldb, s.ldc,
                (double)fa.get(),   (double)fb.get()};
            count_product(s, sizeof(real));
            for (int i = 0; standin_dry() && !standin_idle() && i < s.count; i++)
                clear(lc.at(i), s);
            for (int i = 0; !standin_dry() && i < s.count; i++) {
                const auto x = factor_of<real>(la.at(i), s.lda, a_columns, a_rows, tf32);
                const auto y = factor_of<real>(lb.at(i), s.ldb, b_columns, b_rows, tf32);
                multiply(g, x, y, lc.at(i));
            }
        },
        tf32 ? "cublas gemmBatched tf32" : "cublas gemmBatched");
    return CUBLAS_STATUS_SUCCESS;
}

/* Matrices at equal distances, all of them checked now: they are in memory of the caller's. */
template <class real> struct span {
    real *first;
    int64_t apart, leading, columns, rows;
    int64_t elements() const
    {
        return (columns - 1) * leading + rows;
    }
};
template <class real>
void check_span(const span<real> &s, int count, const char *what, size_t alignment)
{
    standin_check_device(s.first, (size_t)((count - 1) * s.apart + s.elements()) * sizeof(real),
                         what);
    if ((uintptr_t)s.first % alignment || (count > 1 && s.apart * sizeof(real) % alignment))
        standin_die("%s: a misaligned address", what);
}

template <class real>
cublasStatus_t gemm_strided(cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb,
                            const sizes &s, const real *alpha, const span<real> &a,
                            const span<real> &b, const real *beta, const span<real> &c)
{
    need(handle, "gemmStridedBatched");
    if (s.m < 1 || s.n < 1 || s.k < 1 || s.count < 1 || a.leading < a.rows || b.leading < b.rows
        || c.leading < c.rows || opa > CUBLAS_OP_T || opb > CUBLAS_OP_T)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (standin_fails("cublasGemmStridedBatched"))
        return failure();
    const auto fa = take(handle, alpha, "gemmStridedBatched: alpha");
    const auto fb = take(handle, beta, "gemmStridedBatched: beta");
    const bool tf32 = handle->math == CUBLAS_TF32_TENSOR_OP_MATH;
    for (const span<real> &one : {a, b, c})
        check_span(one, s.count, "gemmStridedBatched: a matrix", tf32 ? 16 : sizeof(real));
    standin_queue(
        handle->stream,
        [=] {
            const loop_gemm<real> g = {
                opa != CUBLAS_OP_N, opb != CUBLAS_OP_N, s.m, s.n, s.k, s.lda, s.ldb, s.ldc,
                (double)fa.get(),   (double)fb.get()};
            count_product(s, sizeof(real));
            for (int i = 0; standin_dry() && !standin_idle() && i < s.count; i++)
                clear(c.first + i * c.apart, s);
            for (int i = 0; !standin_dry() && i < s.count; i++) {
                const auto x =
                    factor_of<real>(a.first + i * a.apart, s.lda, a.columns, a.rows, tf32);
                const auto y =
                    factor_of<real>(b.first + i * b.apart, s.ldb, b.columns, b.rows, tf32);
                multiply(g, x, y, c.first + i * c.apart);
            }
        },
        tf32 ? "cublas gemmStridedBatched tf32" : "cublas gemmStridedBatched");
    return CUBLAS_STATUS_SUCCESS;
}

/* Only left, lower, not transposed, non-unit diagonal: the arguments that the backend passes. */
struct triangle {
    cublasSideMode_t side;
    cublasFillMode_t fill;
    cublasOperation_t op;
    cublasDiagType_t diagonal;
};

template <class real>
cublasStatus_t trsm_batched(cublasHandle_t handle, const triangle &t, const sizes &s,
                            const real *alpha, const real *const *a, real *const *b)
{
    need(handle, "trsmBatched");
    if (s.m < 1 || s.n < 1 || s.count < 1 || s.lda < s.m || s.ldb < s.m)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (t.side != CUBLAS_SIDE_LEFT || t.fill != CUBLAS_FILL_MODE_LOWER || t.op != CUBLAS_OP_N
        || t.diagonal != CUBLAS_DIAG_NON_UNIT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (standin_fails("cublasTrsmBatched"))
        return failure();
    const auto f = take(handle, alpha, "trsmBatched: alpha");
    const auto la = take(a, s.count, s.lda, s.m, s.m, "trsmBatched: a");
    const auto lb = take(b, s.count, s.ldb, s.n, s.m, "trsmBatched: b");
    standin_queue(
        handle->stream,
        [=] {
            standin_moved((uint64_t)s.count * s.m * (s.m / 2 + s.n) * sizeof(real),
                          (uint64_t)s.count * s.m * s.n * sizeof(real),
                          (double)s.count * s.m * s.m * s.n, s.m);
            for (int i = 0; !standin_dry() && i < s.count; i++)
                loop_substitute<real>(s.m, s.n, (double)f.get(), la.at(i), s.lda, lb.at(i), s.ldb);
        },
        "cublas trsmBatched");
    return CUBLAS_STATUS_SUCCESS;
}

} /* namespace */

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    if (!standin_allowed(__func__) || standin_fails(__func__))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = things.add(new cublasContext{});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    things.remove(handle, __func__);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    things.need(handle, __func__);
    handle->stream = stream;
    handle->workspace = nullptr; /* as the manual says */
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    things.need(handle, __func__);
    standin_check_device(workspace, bytes, __func__);
    if ((uintptr_t)workspace % 256)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
    things.need(handle, __func__);
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    things.need(handle, __func__);
    if (mode != CUBLAS_DEFAULT_MATH && mode != CUBLAS_TF32_TENSOR_OP_MATH)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
             : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                     : CUBLAS_VER_PATCH;
    *value = standin_property("cuBLAS", type, *value);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    }
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality requested is not supported";
    default:
        return "the function failed to launch on the GPU";
    }
}

#define BATCHED(letter, real)                                                                      \
    cublasStatus_t cublas##letter##gemmBatched(                                                    \
        cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k,  \
        const real *alpha, const real *const *a, int lda, const real *const *b, int ldb,           \
        const real *beta, real *const *c, int ldc, int count)                                      \
    {                                                                                              \
        return gemm_batched<real>(handle, opa, opb, {m, n, k, lda, ldb, ldc, count}, alpha, a, b,  \
                                  beta, c);                                                        \
    }                                                                                              \
    cublasStatus_t cublas##letter##trsmBatched(                                                    \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op, \
        cublasDiagType_t diagonal, int m, int n, const real *alpha, const real *const *a, int lda, \
        real *const *b, int ldb, int count)                                                        \
    {                                                                                              \
        return trsm_batched<real>(handle, {side, fill, op, diagonal},                              \
                                  {m, n, 0, lda, ldb, 0, count}, alpha, a, b);                     \
    }
BATCHED(S, float)
BATCHED(D, double)

#define STRIDED(letter, real)                                                                     \
    cublasStatus_t cublas##letter##gemmStridedBatched(                                            \
        cublasHandle_t handle, cublasOperation_t opa, cublasOperation_t opb, int m, int n, int k, \
        const real *alpha, const real *a, int lda, long long int a_apart, const real *b, int ldb, \
        long long int b_apart, const real *beta, real *c, int ldc, long long int c_apart,         \
        int count)                                                                                \
    {                                                                                             \
        const span<real> x = {const_cast<real *>(a), a_apart, lda, opa ? m : k, opa ? k : m};     \
        const span<real> y = {const_cast<real *>(b), b_apart, ldb, opb ? k : n, opb ? n : k};     \
        return gemm_strided<real>(handle, opa, opb, {m, n, k, lda, ldb, ldc, count}, alpha, x, y, \
                                  beta, {c, c_apart, ldc, n, m});                                 \
    }
STRIDED(S, float)
STRIDED(D, double)
