/* Sums of shifted inverses, one matrix per thread. Formulas: detail/matrix_kernels.h. */

#include "tensor/backend/rational.h"

#include "base/parallel.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

typedef struct list {
    const lt_cpu_kernels *kernels;
    lt_rational_job *job;
    size_t bytes; /* size of a thread's workspace */
    char *work;   /* [threads][bytes] */
} list;

static bool add_inverse_term(const list *l, const lt_rational_job *job, int pole, void *y,
                             bool first)
{
    const lt_inverse_term term = {.a = job->a.data,
                                  .y = y,
                                  .work = l->work + (size_t)lt_parallel_index() * l->bytes,
                                  .n = job->a.shape.dim[0],
                                  .weight = job->weight[pole],
                                  .shift = job->shift[pole],
                                  .first = first};
    if (job->a.dtype == LT_F64)
        return l->kernels->add_inverse_f64(&term);
    const bool wide = job->shift[pole] < job->wide_below;
    return wide ? l->kernels->add_inverse_wide(&term) : l->kernels->add_inverse(&term);
}

enum { TILE = 32 }; /* side of a tile that is mirrored at once, in the cache */

/* NOLINTBEGIN(bugprone-macro-parentheses): `real` declares */
#define MIRROR(name, real)                                            \
    static void name(real *y, int64_t n, real constant)               \
    {                                                                 \
        for (int64_t i0 = 0; i0 < n; i0 += TILE)                      \
            for (int64_t j0 = 0; j0 <= i0; j0 += TILE)                \
                for (int64_t i = i0; i < n && i < i0 + TILE; i++)     \
                    for (int64_t j = j0; j < i && j < j0 + TILE; j++) \
                        y[j * n + i] = y[i * n + j];                  \
        for (int64_t i = 0; i < n; i++)                               \
            y[i * (n + 1)] += constant;                               \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
MIRROR(mirror_f32, float)
MIRROR(mirror_f64, double)

static void mirror_and_add_constant(const lt_rational_job *job)
{
    const int64_t n = job->y.shape.dim[0];
    if (job->y.dtype == LT_F64)
        mirror_f64(job->y.data, n, job->constant);
    else
        mirror_f32(job->y.data, n, (float)job->constant);
}

static lt_status fail_not_positive_definite(double shift)
{
    return lt_fail(LT_E_ARG, "rational: the matrix plus %g I is not positive definite", shift);
}

static void run_rational_jobs(void *context, int64_t begin, int64_t end)
{
    const list *l = context;
    for (int64_t i = begin; i < end; i++) {
        const lt_rational_job job = lt_rational_apply_scale(&l->job[i]);
        lt_status st = LT_OK;
        for (int j = 0; j < job.poles && !st; j++)
            if (!add_inverse_term(l, &job, j, job.y.data, j == 0))
                st = fail_not_positive_definite(job.shift[j]);
        if (!st)
            mirror_and_add_constant(&job);
        lt_rational_report_status(&l->job[i], st);
    }
}

static bool has_fast_kernel(const lt_rational_job *job)
{
    return job->poles > 0 && job->a.dtype == job->y.dtype
           && (job->a.dtype == LT_F32 || job->a.dtype == LT_F64);
}

lt_status lt_cpu_rational(void *ctx, lt_rational_job *job, size_t count)
{
    const lt_cpu *cpu = ctx;
    list l = {.kernels = cpu->kernels, .job = job};
    int64_t largest = 1;
    for (size_t i = 0; i < count; i++) {
        if (!has_fast_kernel(&job[i]))
            return lt_backend_ref()->rational(ctx, job, count);
        largest = job[i].a.shape.dim[0] > largest ? job[i].a.shape.dim[0] : largest;
    }
    l.bytes = (size_t)lt_cpu_inverse_workspace_size(largest) * sizeof(double);
    l.work = lt_alloc_aligned(64, l.bytes * (size_t)lt_parallel_threads());
    if (!l.work)
        return LT_E_NOMEM;
    lt_parallel_range((int64_t)count, 1, run_rational_jobs, &l);
    lt_free(l.work);
    return LT_OK;
}
