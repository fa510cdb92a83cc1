/* Eigendecomposition of symmetric matrices, one per thread. f32: reduction to a tridiagonal matrix (tridiagonal.c), its
 * decomposition (divide_conquer.c), and its vectors times the reflectors. f64: symmetric_f64.c. */

#include "base/parallel.h"
#include "symmetric_f64.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"
#include "tridiagonal.h"

#include <math.h>
#include <string.h>

static lt_status fail_to_converge(int64_t n)
{
    return lt_fail(LT_E_ARG, "eigh: no convergence for a %lld x %lld matrix", (long long)n,
                   (long long)n);
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

/* --- f32 --- */

/* State of one matrix. */
typedef struct solver {
    const lt_eigh_job *job;
    lt_tridiagonal t;
    double input_scale; /* power of 2 above the largest element, divided out */
} solver;

/* Assigns the parts of a thread's workspace for n rows. If memory is NULL returns the floats needed, a multiple of 64
 * bytes. */
static int64_t layout_workspace(solver *s, int64_t n, float *memory)
{
    lt_tridiagonal *t = &s->t;
    t->size = lt_tridiagonal_padded_size(n);
    t->step = t->size + 16; /* power-of-two strides would map rows to the same cache sets */
    const int64_t square = t->size * t->step, work = lt_tridiagonal_workspace_size(t->size);
    if (!memory)
        return lt_cpu_round_up(4 * square + 7 * t->size + work, 16);
    t->a = memory;
    t->z = t->a + square;
    t->vectors = t->z + square;
    t->packed = t->vectors + square;
    t->diagonal = t->packed + square;
    t->off_diagonal = t->diagonal + t->size;
    t->scale = t->off_diagonal + t->size;
    t->value = (double *)(void *)(t->scale + t->size);
    t->order = (int64_t *)(t->value + t->size);
    t->work = (float *)(t->order + t->size);
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

static void store_sorted_results(solver *s)
{
    lt_tridiagonal *t = &s->t;
    float *value = s->job->values.data;
    for (int64_t i = 0; i < t->n; i++) {
        const int64_t from = t->order[i];
        value[i * s->job->values.stride[0]] = (float)(t->value[from] * s->input_scale);
        memcpy(t->a + i * t->step, t->z + from * t->step, (size_t)t->n * sizeof *t->a);
    }
    t->kernels->transpose_block(t->a, t->step, t->n, t->n, s->job->vectors.data, t->n);
}

/* Returns false if it does not converge. */
static bool solve_f32_job(const lt_cpu_kernels *kernels, const lt_eigh_job *job, float *memory)
{
    solver s = {.job = job, .t = {.kernels = kernels, .n = job->a.shape.dim[0]}};
    layout_workspace(&s, s.t.n, memory);
    load_scaled_matrix(&s);
    lt_tridiagonal_reduce(&s.t);
    if (!lt_tridiagonal_solve(&s.t))
        return false;
    lt_tridiagonal_apply_q(&s.t);
    store_sorted_results(&s);
    return true;
}

/* --- f64 --- */

/* Reads the matrix divided by a power of 2, whose exponent it returns. */
static int load_f64_matrix(const lt_view *from, double *to)
{
    const int64_t count = lt_cpu_element_count(from);
    double largest = 0;
    int exponent;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(((const double *)from->data)[i]));
    (void)frexp(largest, &exponent);
    for (int64_t i = 0; i < count; i++)
        to[i] = ldexp(((const double *)from->data)[i], -exponent);
    return exponent;
}

static lt_status solve_f64_job(const lt_eigh_job *job)
{
    const int64_t n = job->a.shape.dim[0];
    double *a = lt_alloc_aligned(64, (size_t)(2 * n * n + 4 * n) * sizeof *a);
    int64_t *order = lt_alloc((size_t)n, sizeof *order);
    lt_status st = a && order ? LT_OK : LT_E_NOMEM;
    if (!st) {
        double *z = a + n * n, *value = z + n * n, *vectors = job->vectors.data;
        const int exponent = load_f64_matrix(&job->a, a);
        if (!lt_symmetric_eigh(a, n, value, z, value + n))
            st = fail_to_converge(n);
        lt_sort_rows(value, 0, n, order);
        for (int64_t i = 0; !st && i < n; i++) {
            ((double *)job->values.data)[i * job->values.stride[0]] =
                ldexp(value[order[i]], exponent);
            for (int64_t j = 0; j < n; j++)
                vectors[j * n + i] = z[order[i] * n + j];
        }
    }
    lt_free(a);
    lt_free(order);
    return st;
}

static lt_status solve_job(const lt_cpu_kernels *kernels, const lt_eigh_job *job, float *memory)
{
    const int64_t n = job->a.shape.dim[0];
    if (!is_finite(&job->a))
        return lt_fail(LT_E_ARG, "eigh: the %lld x %lld matrix has non-finite elements",
                       (long long)n, (long long)n);
    if (job->a.dtype == LT_F64)
        return solve_f64_job(job);
    return solve_f32_job(kernels, job, memory) ? LT_OK : fail_to_converge(n);
}

typedef struct list {
    const lt_cpu_kernels *kernels;
    lt_eigh_job *job;
    float *memory; /* [threads, floats] */
    int64_t floats;
} list;

static void solve_job_range(void *context, int64_t begin, int64_t end)
{
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
    lt_parallel_range((int64_t)count, 1, solve_job_range, &l);
    lt_free(l.memory);
    return LT_OK;
}
