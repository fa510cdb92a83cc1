/* Eigenvectors of symmetric matrices by LAPACK's divide and conquer.
 * Cuppen, "A divide and conquer method for the symmetric tridiagonal eigenproblem", 1981; Gu &
 * Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995. A matrix that f32 fails on is solved in f64. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/lapack.h"

#include <math.h>
#include <string.h>

lt_eigh_fn lt_cpu_eigh;

static lt_status out_of_reach(lapack_int info, int64_t n)
{
    return lt_fail(LT_E_ARG, "eigh: %lld x %lld: LAPACK gave up with %d", (long long)n,
                   (long long)n, (int)info);
}

static bool is_finite(const lt_view *a)
{
    const int64_t count = lt_cpu_count(a);
    for (int64_t i = 0; i < count; i++) {
        const double v =
            a->dtype == LT_F32 ? (double)((const float *)a->data)[i] : ((const double *)a->data)[i];
        if (!isfinite(v))
            return false;
    }
    return true;
}

/* work[0] and iwork[0] of the first call say how much the second wants. */
static lt_status solve_f32(int64_t n, float *a, float *values, lapack_int *info)
{
    float size;
    lapack_int isize;
    *info = lt_lapack_calls.ssyevd(LAPACK_COL_MAJOR, 'V', 'L', (lapack_int)n, a, (lapack_int)n,
                                   values, &size, -1, &isize, -1);
    const lapack_int count = (lapack_int)ceilf(size * 1.001F) + 16; /* sizes are rounded to f32 */
    float *work = lt_alloc((size_t)count, sizeof *work);
    lapack_int *iwork = lt_alloc((size_t)isize, sizeof *iwork);
    if (work && iwork)
        *info = lt_lapack_calls.ssyevd(LAPACK_COL_MAJOR, 'V', 'L', (lapack_int)n, a, (lapack_int)n,
                                       values, work, count, iwork, isize);
    const bool ok = work && iwork;
    lt_free(work);
    lt_free(iwork);
    return ok ? LT_OK : LT_E_NOMEM;
}

static lt_status solve_f64(int64_t n, double *a, double *values, lapack_int *info)
{
    double size;
    lapack_int isize;
    *info = lt_lapack_calls.dsyevd(LAPACK_COL_MAJOR, 'V', 'L', (lapack_int)n, a, (lapack_int)n,
                                   values, &size, -1, &isize, -1);
    double *work = lt_alloc((size_t)size, sizeof *work);
    lapack_int *iwork = lt_alloc((size_t)isize, sizeof *iwork);
    if (work && iwork)
        *info = lt_lapack_calls.dsyevd(LAPACK_COL_MAJOR, 'V', 'L', (lapack_int)n, a, (lapack_int)n,
                                       values, work, (lapack_int)size, iwork, isize);
    const bool ok = work && iwork;
    lt_free(work);
    lt_free(iwork);
    return ok ? LT_OK : LT_E_NOMEM;
}

/* LAPACK's columns are our rows. */
static void write_f32(const float *a, const float *values, const lt_eigh_job *job)
{
    const int64_t n = job->a.shape.dim[0], step = job->values.stride[0];
    float *v = job->vectors.data, *w = job->values.data;
    for (int64_t i = 0; i < n; i++) {
        w[i * step] = values[i];
        for (int64_t j = 0; j < n; j++)
            v[i * n + j] = a[j * n + i];
    }
}

static lt_status run_f32(const lt_eigh_job *job, lapack_int *info)
{
    const int64_t n = job->a.shape.dim[0];
    const size_t count = (size_t)(n * n);
    float *a = lt_alloc_aligned(64, count * sizeof *a),
          *values = lt_alloc((size_t)n, sizeof *values);
    lt_status st = a && values ? LT_OK : LT_E_NOMEM;
    if (!st) {
        memcpy(a, job->a.data, count * sizeof *a);
        st = solve_f32(n, a, values, info);
    }
    if (!st && !*info)
        write_f32(a, values, job);
    lt_free(a);
    lt_free(values);
    return st;
}

static void read_f64(const lt_view *from, double *to)
{
    const int64_t count = lt_cpu_count(from);
    for (int64_t i = 0; i < count; i++)
        to[i] = from->dtype == LT_F32 ? (double)((const float *)from->data)[i]
                                      : ((const double *)from->data)[i];
}

static void store(const lt_view *to, int64_t i, double value)
{
    if (to->dtype == LT_F32)
        ((float *)to->data)[i] = (float)value;
    else
        ((double *)to->data)[i] = value;
}

static lt_status run_f64(const lt_eigh_job *job)
{
    const int64_t n = job->a.shape.dim[0];
    const size_t count = (size_t)(n * n);
    lapack_int info = 0;
    double *a = lt_alloc_aligned(64, count * sizeof *a);
    double *values = lt_alloc((size_t)n, sizeof *values);
    lt_status st = a && values ? LT_OK : LT_E_NOMEM;
    if (!st) {
        read_f64(&job->a, a);
        st = solve_f64(n, a, values, &info);
    }
    if (!st && info)
        st = out_of_reach(info, n);
    for (int64_t i = 0; !st && i < n; i++) {
        store(&job->values, i * job->values.stride[0], values[i]);
        for (int64_t j = 0; j < n; j++)
            store(&job->vectors, i * n + j, a[j * n + i]);
    }
    lt_free(a);
    lt_free(values);
    return st;
}

static lt_status solve(const lt_eigh_job *job)
{
    const int64_t n = job->a.shape.dim[0];
    if (!is_finite(&job->a))
        return lt_fail(LT_E_ARG, "eigh: the %lld x %lld matrix has elements that are not finite",
                       (long long)n, (long long)n);
    if (job->a.dtype == LT_F32) {
        lapack_int info = 0;
        LT_TRY(run_f32(job, &info));
        if (!info)
            return LT_OK;
    }
    return run_f64(job);
}

static void run(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    lt_eigh_job *job = context;
    for (int64_t i = begin; i < end; i++)
        job[i].status = solve(&job[i]);
}

lt_status lt_cpu_eigh(void *ctx, lt_eigh_job *job, size_t count)
{
    (void)ctx;
    lt_parallel((int64_t)count, 1, run, job);
    return LT_OK;
}
