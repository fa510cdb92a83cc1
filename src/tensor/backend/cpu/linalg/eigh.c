/* Eigendecomposition of symmetric matrices: reduction to a tridiagonal matrix (tridiagonal.c), LAPACK's divide and
 * conquer, and its vectors times the reflectors. Cuppen, "A divide and conquer method for the symmetric tridiagonal
 * eigenproblem", 1981; Gu & Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995. Falls back to f64 if f32 does not
 * converge. */

#include "base/parallel.h"
#include "lapack.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"
#include "tridiagonal.h"

#include <math.h>
#include <string.h>

lt_eigh_fn lt_cpu_eigh;

static lt_status fail_lapack(lapack_int info, int64_t n)
{
    return lt_fail(LT_E_ARG, "eigh: LAPACK did not converge for a %lld x %lld matrix (info %d)",
                   (long long)n, (long long)n, (int)info);
}

static bool is_finite(const lt_view *a)
{
    const int64_t count = lt_cpu_element_count(a);
    for (int64_t i = 0; i < count; i++) {
        const double v =
            a->dtype == LT_F32 ? (double)((const float *)a->data)[i] : ((const double *)a->data)[i];
        if (!isfinite(v))
            return false;
    }
    return true;
}

/* --- f32: built-in reduction and products, LAPACK for the tridiagonal problem --- */

/* State of one matrix. */
typedef struct solver {
    const lt_eigh_job *job;
    lt_tridiagonal t;
    double input_scale; /* power of 2 above the largest element, divided out */
    int64_t *order;     /* rows of z by rising eigenvalue */
    float *work;        /* workspaces of sstedc: sstedc_lwork() and sstedc_liwork() */
    lapack_int *iwork;
} solver;

/* LWORK and LIWORK of sstedc for COMPZ 'I', from its documentation. */
static int64_t sstedc_lwork(int64_t n)
{
    return 1 + 4 * n + n * n;
}

static int64_t sstedc_liwork(int64_t n)
{
    return 3 + 5 * n;
}

/* Assigns the parts of a thread's workspace for n rows. If memory is NULL returns the floats needed, a multiple of 64
 * bytes. */
static int64_t layout_workspace(solver *s, int64_t n, float *memory)
{
    lt_tridiagonal *t = &s->t;
    t->size = lt_tridiagonal_padded_size(n);
    t->step = t->size + 16; /* power-of-two strides would map rows to the same cache sets */
    const int64_t square = t->size * t->step, work = lt_tridiagonal_workspace_size(t->size);
    const int64_t floats = 2 * square + 3 * t->size + work + sstedc_lwork(n)
                           + sstedc_liwork(n) * (int64_t)(sizeof(lapack_int) / sizeof(float))
                           + 2 * n + 1;
    if (!memory)
        return lt_cpu_round_up(floats, 16);
    t->a = memory;
    t->z = t->a + square;
    t->diagonal = t->z + square;
    t->off_diagonal = t->diagonal + t->size;
    t->scale = t->off_diagonal + t->size;
    t->work = t->scale + t->size;
    s->work = t->work + work;
    s->iwork = (lapack_int *)(s->work + sstedc_lwork(n));
    const uintptr_t end = (uintptr_t)(s->iwork + sstedc_liwork(n)), align = sizeof *s->order;
    s->order = (int64_t *)((end + align - 1) / align * align);
    return 0;
}

/* Reads the matrix, scaled by a power of 2 so that small column norms are not treated as 0. */
static void load_scaled_matrix(solver *s)
{
    const lt_tridiagonal *t = &s->t;
    const float *from = s->job->a.data;
    const int64_t count = t->n * t->n;
    float largest = 0;
    int exponent;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(from[i]));
    (void)frexpf(largest, &exponent);
    s->input_scale = ldexp(1, exponent);
    memset(t->a, 0, (size_t)(t->size * t->step) * sizeof *t->a);
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t j = 0; j < t->n; j++)
            t->a[i * t->step + j] = (float)((double)from[i * t->n + j] / s->input_scale);
}

/* Replaces T's diagonal by its eigenvalues and writes its vectors to the rows of z (LAPACK's columns). Returns LAPACK's
 * info. */
static lapack_int solve_tridiagonal(solver *s)
{
    lt_tridiagonal *t = &s->t;
    const lapack_int n = (lapack_int)t->tridiagonal_rows, step = (lapack_int)t->step;
    memset(t->z, 0, (size_t)(t->size * t->step) * sizeof *t->z);
    for (int64_t i = t->tridiagonal_rows; i < t->n; i++)
        t->z[i * (t->step + 1)] = 1;
    return n ? lt_lapack_calls.sstedc(LAPACK_COL_MAJOR, 'I', n, t->diagonal, t->off_diagonal, t->z,
                                      step, s->work, (lapack_int)sstedc_lwork(n), s->iwork,
                                      (lapack_int)sstedc_liwork(n))
             : 0;
}

/* Merges LAPACK's sorted eigenvalues with those of the part that was already diagonal. */
static void sort_eigenvalues(solver *s)
{
    const float *value = s->t.diagonal;
    for (int64_t i = 0; i < s->t.n; i++) {
        int64_t at = i;
        for (; at > 0 && value[s->order[at - 1]] > value[i]; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

static void store_sorted_results(solver *s)
{
    lt_tridiagonal *t = &s->t;
    float *value = s->job->values.data;
    sort_eigenvalues(s);
    for (int64_t i = 0; i < t->n; i++) {
        const int64_t from = s->order[i];
        value[i * s->job->values.stride[0]] = (float)((double)t->diagonal[from] * s->input_scale);
        memcpy(t->a + i * t->step, t->z + from * t->step, (size_t)t->n * sizeof *t->a);
    }
    t->kernels->transpose_block(t->a, t->step, t->n, t->n, s->job->vectors.data, t->n);
}

/* Returns true if LAPACK converged. */
static bool solve_f32_job(const lt_cpu_kernels *kernels, const lt_eigh_job *job, float *memory)
{
    solver s = {.job = job, .t = {.kernels = kernels, .n = job->a.shape.dim[0]}};
    layout_workspace(&s, s.t.n, memory);
    load_scaled_matrix(&s);
    lt_tridiagonal_reduce(&s.t);
    if (solve_tridiagonal(&s))
        return false;
    lt_tridiagonal_apply_q(&s.t);
    store_sorted_results(&s);
    return true;
}

/* --- f64: LAPACK --- */

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

static void load_matrix_as_f64(const lt_view *from, double *to)
{
    const int64_t count = lt_cpu_element_count(from);
    for (int64_t i = 0; i < count; i++)
        to[i] = from->dtype == LT_F32 ? (double)((const float *)from->data)[i]
                                      : ((const double *)from->data)[i];
}

static void store_element(const lt_view *to, int64_t i, double value)
{
    if (to->dtype == LT_F32)
        ((float *)to->data)[i] = (float)value;
    else
        ((double *)to->data)[i] = value;
}

static lt_status solve_f64_job(const lt_eigh_job *job)
{
    const int64_t n = job->a.shape.dim[0];
    const size_t count = (size_t)(n * n);
    lapack_int info = 0;
    double *a = lt_alloc_aligned(64, count * sizeof *a);
    double *values = lt_alloc((size_t)n, sizeof *values);
    lt_status st = a && values ? LT_OK : LT_E_NOMEM;
    if (!st) {
        load_matrix_as_f64(&job->a, a);
        st = solve_f64(n, a, values, &info);
    }
    if (!st && info)
        st = fail_lapack(info, n);
    for (int64_t i = 0; !st && i < n; i++) {
        store_element(&job->values, i * job->values.stride[0], values[i]);
        for (int64_t j = 0; j < n; j++)
            store_element(&job->vectors, i * n + j, a[j * n + i]);
    }
    lt_free(a);
    lt_free(values);
    return st;
}

static lt_status solve_job(const lt_cpu_kernels *kernels, const lt_eigh_job *job, float *memory)
{
    const int64_t n = job->a.shape.dim[0];
    if (!is_finite(&job->a))
        return lt_fail(LT_E_ARG, "eigh: the %lld x %lld matrix has non-finite elements",
                       (long long)n, (long long)n);
    if (job->a.dtype == LT_F32 && solve_f32_job(kernels, job, memory))
        return LT_OK;
    return solve_f64_job(job);
}

typedef struct list {
    const lt_cpu_kernels *kernels;
    lt_eigh_job *job;
    float *memory; /* [threads, floats] */
    int64_t floats;
} list;

static void solve_job_range(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const list *l = context;
    float *memory = l->memory + lt_parallel_index() * l->floats;
    for (int64_t i = begin; i < end; i++)
        l->job[i].status = solve_job(l->kernels, &l->job[i], memory);
}

/* Returns the floats that the largest matrix needs. A separate allocation per matrix would be fresh pages that the
 * kernel clears: a fifth of the time of ResNet-50's roots (docs/results/shampoo-step.md). */
static int64_t max_workspace_floats(const lt_eigh_job *job, size_t count)
{
    int64_t most = 16;
    for (size_t i = 0; i < count; i++) {
        solver s;
        const int64_t floats = layout_workspace(&s, job[i].a.shape.dim[0], NULL);
        most = job[i].a.dtype == LT_F32 && floats > most ? floats : most;
    }
    return most;
}

lt_status lt_cpu_eigh(void *ctx, lt_eigh_job *job, size_t count)
{
    const lt_cpu *cpu = ctx;
    list l = {.kernels = cpu->kernels, .job = job, .floats = max_workspace_floats(job, count)};
    const size_t threads = (size_t)lt_parallel_threads();
    l.memory = lt_alloc_aligned(64, threads * (size_t)l.floats * sizeof *l.memory);
    if (!l.memory)
        return LT_E_NOMEM;
    lt_parallel((int64_t)count, 1, solve_job_range, &l);
    lt_free(l.memory);
    return LT_OK;
}
