/* Orthogonal factors by Householder QR in f32, one matrix per thread: panels of columns, then products with their
 * reflectors. Golub & Van Loan, "Matrix computations", 4th edition, sections 5.2.2 and 5.2.3. Formulas:
 * detail/matrix_kernels.h. */

#include "reflectors.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"

#include <math.h>
#include <string.h>

enum { PANEL = LT_CPU_REDUCE_BLOCK };

/* One matrix [n,n]. Its sorted columns are the rows of r.a, later its reflectors. */
typedef struct factors {
    lt_reflectors r;
    float *a, *q, *scale, *sign; /* q: rows are Q's columns; sign: of R's diagonal */
    float *v;                    /* reflectors of a panel: PANEL rows */
    int64_t *order;
} factors;

/* Orders columns by falling diagonal, stably: insertion sort, as the eigenbasis of a slowly changing matrix is nearly
 * sorted. */
static void sort_columns(const float *a, int64_t n, int64_t *order)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t at = k;
        for (; at > 0 && a[order[at - 1] * (n + 1)] < a[k * (n + 1)]; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
}

/* Returns a power of 2 whose product with the largest element is about 1. */
static float inverse_scale(const float *a, int64_t count)
{
    float largest = 0;
    int exponent;
    for (int64_t i = 0; i < count; i++)
        largest = fabsf(a[i]) > largest ? fabsf(a[i]) : largest;
    (void)frexpf(largest, &exponent);
    return ldexpf(1, exponent > -126 ? -exponent : 126);
}

/* Reads columns in their order. */
static void load_columns(const factors *f, const lt_view *from)
{
    const int64_t n = f->r.n;
    const float *a = from->data;
    const float scale = inverse_scale(a, n * n);
    memset(f->a, 0, (size_t)(f->r.size * f->r.step) * sizeof *f->a);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            f->a[i * f->r.step + j] = scale * a[j * n + f->order[i]];
}

/* Makes the reflectors of columns [begin, end), each from its column after those before it. */
static void factorize_panel(const factors *f, int64_t begin, int64_t end)
{
    const lt_reflectors *r = &f->r;
    const int64_t count = r->size - begin;
    for (int64_t j = begin; j < end; j++) {
        float *row = f->a + j * r->step;
        for (int64_t k = begin; k < j; k++) {
            const float *v = f->v + (k - begin) * r->step + begin;
            float dot;
            r->kernels->rows_dot(v, r->step, 1, count, row + begin, &dot);
            dot *= f->scale[k];
            r->kernels->rows_subtract(v, r->step, 1, count, &dot, row + begin);
        }
        const float diagonal = lt_reflectors_make(r->kernels, row, j, r->n, r->size,
                                                  f->v + (j - begin) * r->step, &f->scale[j]);
        f->sign[j] = diagonal < 0 ? -1 : 1;
    }
}

/* Writes Q's columns to the rows of q: unit vectors times the reflectors, last block first. */
static void make_orthogonal_factor(const factors *f)
{
    const lt_reflectors *r = &f->r;
    memset(f->q, 0, (size_t)(r->size * r->step) * sizeof *f->q);
    for (int64_t i = 0; i < r->n; i++)
        f->q[i * (r->step + 1)] = 1;
    for (int64_t end = r->n; end > 0;) {
        const int64_t begin = (end - 1) / LT_CPU_REFLECTOR_BLOCK * LT_CPU_REFLECTOR_BLOCK;
        lt_reflectors_apply(r, begin, end, true, f->q + begin * r->step, r->n - begin);
        end = begin;
    }
}

static void factorize(const factors *f, const lt_qr_job *job)
{
    const lt_reflectors *r = &f->r;
    float *q = job->q.data;
    sort_columns(job->a.data, r->n, f->order);
    load_columns(f, &job->a);
    for (int64_t begin = 0, end; begin < r->n; begin = end) {
        end = begin + PANEL < r->n ? begin + PANEL : r->n;
        factorize_panel(f, begin, end);
        if (end < r->n)
            lt_reflectors_apply(r, begin, end, false, f->a + end * r->step, r->n - end);
    }
    make_orthogonal_factor(f);
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t j = 0; j < r->n; j++)
            q[j * r->n + f->order[i]] = f->sign[i] * f->q[i * r->step + j];
}

static lt_status factorize_job(const lt_cpu_kernels *kernels, const lt_qr_job *job)
{
    const int64_t n = job->a.shape.dim[0], size = lt_cpu_round_up(n, LT_CPU_REDUCE_BLOCK);
    const int64_t step = size + 16, square = size * step;
    float *memory = lt_alloc_aligned(
        64, (size_t)(2 * square + PANEL * step + lt_reflectors_workspace_size(size) + 2 * size)
                * sizeof *memory);
    int64_t *order = lt_alloc((size_t)n, sizeof *order);
    if (memory && order) {
        factors f = {.r = {.kernels = kernels, .n = n, .size = size, .step = step},
                     .a = memory,
                     .order = order};
        f.q = f.a + square;
        f.v = f.q + square;
        f.r.work = f.v + PANEL * step;
        f.scale = f.r.work + lt_reflectors_workspace_size(size);
        f.sign = f.scale + size;
        f.r.a = f.a;
        f.r.scale = f.scale;
        factorize(&f, job);
    }
    const bool ok = memory && order;
    lt_free(memory);
    lt_free(order);
    return ok ? LT_OK : LT_E_NOMEM;
}

typedef struct list {
    void *ctx;
    const lt_qr_job *job;
} list;

static lt_status run_qr(void *context, int64_t i)
{
    const list *l = context;
    const lt_qr_job *job = &l->job[i];
    const bool f32 = job->a.dtype == LT_F32 && job->q.dtype == LT_F32;
    return f32 ? factorize_job(((const lt_cpu *)l->ctx)->kernels, job)
               : lt_backend_ref()->qr(l->ctx, job, 1);
}

lt_status lt_cpu_qr(void *ctx, const lt_qr_job *job, size_t count)
{
    list l = {.ctx = ctx, .job = job};
    return lt_cpu_run_jobs("qr", count, run_qr, &l);
}
