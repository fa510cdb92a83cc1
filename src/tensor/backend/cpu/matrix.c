/* Matrices of Shampoo by BLAS and LAPACK: one job a thread, the library's own threads switched off.
 * A tensor seen from one of its dimensions is a matrix [n, rest]: read where it lies if that
 * dimension is the first or the last one of contiguous memory, else from a copy.
 * Formulas: ext/optim_kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <cblas.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

lt_eigh_fn lt_cpu_eigh;

/* [n, rest], or its transpose [rest, n]; f32. */
typedef struct matrix {
    float *data;
    bool transposed;
    int64_t n, rest;
    void *copy; /* to be freed, or NULL */
} matrix;

/* The view with dimension dim first. */
static lt_view dim_first(const lt_view *v, int dim)
{
    lt_view p = *v;
    for (int d = dim; d > 0; d--) {
        p.shape.dim[d] = v->shape.dim[d - 1];
        p.stride[d] = v->stride[d - 1];
    }
    p.shape.dim[0] = v->shape.dim[dim];
    p.stride[0] = v->stride[dim];
    return p;
}

/* A row-major view of the same shape on other memory. */
static lt_view row_major(const lt_view *like, void *data)
{
    lt_view v = {.data = data, .dtype = LT_F32, .shape = like->shape};
    int64_t step = 1;
    for (int d = like->shape.ndim - 1; d >= 0; d--) {
        v.stride[d] = step;
        step *= like->shape.dim[d];
    }
    return v;
}

/* Reads: with copy_in. For writing, the copy (if any) is moved to the view by put(). */
static lt_status look_along(void *ctx, const lt_view *v, int dim, bool copy_in, matrix *out)
{
    const int64_t n = v->shape.dim[dim], count = lt_cpu_count(v);
    *out = (matrix){.data = v->data, .n = n, .rest = count / n};
    const lt_view first = dim_first(v, dim);
    if (lt_view_is_contiguous(&first))
        return LT_OK;
    out->transposed = dim == v->shape.ndim - 1 && lt_view_is_contiguous(v);
    if (out->transposed)
        return LT_OK;
    out->copy = lt_alloc_aligned(64, (size_t)count * sizeof(float));
    if (!out->copy)
        return LT_E_NOMEM;
    out->data = out->copy;
    lt_view to = row_major(&first, out->copy);
    return copy_in ? lt_backend_cpu()->cast(ctx, &first, &to) : LT_OK;
}

static lt_status put(void *ctx, const matrix *m, const lt_view *v, int dim)
{
    if (!m->copy)
        return LT_OK;
    const lt_view to = dim_first(v, dim), from = row_major(&to, m->copy);
    return lt_backend_cpu()->cast(ctx, &from, &to);
}

static lt_status gram(void *ctx, const lt_gram_job *job)
{
    matrix g = {0};
    lt_status st = look_along(ctx, &job->g, job->dim, true, &g);
    if (!st) {
        const int n = (int)g.n, rest = (int)g.rest;
        float *f = job->f.data;
        if (job->beta == 0) /* whatever is there, even NaN, does not count */
            memset(f, 0, (size_t)(g.n * g.n) * sizeof *f);
        cblas_ssyrk(CblasRowMajor, CblasUpper, g.transposed ? CblasTrans : CblasNoTrans, n, rest,
                    (float)job->alpha, g.data, g.transposed ? n : rest, (float)job->beta, f, n);
        for (int64_t i = 0; i < g.n; i++)
            for (int64_t j = 0; j < i; j++)
                f[i * g.n + j] = f[j * g.n + i];
    }
    lt_free(g.copy);
    return st;
}

/* [n, rest]: y = m g. Transposed, [rest, n]: y' = g' m'. Mixed: gemm reads g transposed. */
static void multiply(const matrix *g, const matrix *y, const float *m, bool transpose)
{
    const int n = (int)g->n, rest = (int)g->rest;
    const int ldg = g->transposed ? n : rest, ldy = y->transposed ? n : rest;
    if (y->transposed)
        cblas_sgemm(CblasRowMajor, g->transposed ? CblasNoTrans : CblasTrans,
                    transpose ? CblasNoTrans : CblasTrans, rest, n, n, 1, g->data, ldg, m, n, 0,
                    y->data, ldy);
    else
        cblas_sgemm(CblasRowMajor, transpose ? CblasTrans : CblasNoTrans,
                    g->transposed ? CblasTrans : CblasNoTrans, n, rest, n, 1, m, n, g->data, ldg, 0,
                    y->data, ldy);
}

static lt_status mode_product(void *ctx, const lt_mode_product_job *job)
{
    matrix g = {0}, y = {0};
    lt_status st = look_along(ctx, &job->g, job->dim, true, &g);
    if (!st)
        st = look_along(ctx, &job->y, job->dim, false, &y);
    if (!st) {
        multiply(&g, &y, job->m.data, job->transpose);
        st = put(ctx, &y, &job->y, job->dim);
    }
    lt_free(g.copy);
    lt_free(y.copy);
    return st;
}

/* A list of jobs on the team; the first failure is kept. */
typedef struct list {
    void *ctx;
    const lt_gram_job *gram;
    const lt_mode_product_job *product;
    const lt_view *x;
    const lt_view *out;
    atomic_int status;
} list;

static void note(list *l, lt_status st)
{
    int ok = LT_OK;
    if (st)
        atomic_compare_exchange_strong(&l->status, &ok, (int)st);
}

/* The message was set on the thread that failed. */
static lt_status finish(list *l, const char *what)
{
    const lt_status st = (lt_status)atomic_load(&l->status);
    return st ? lt_fail(st, "cpu: %s failed", what) : LT_OK;
}

static void run_gram(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    list *l = context;
    for (int64_t i = begin; i < end; i++) {
        const lt_gram_job *job = &l->gram[i];
        const bool f32 = job->g.dtype == LT_F32 && job->f.dtype == LT_F32;
        note(l, f32 ? gram(l->ctx, job) : lt_backend_ref()->gram(l->ctx, job, 1, NULL));
    }
}

static lt_status gram_jobs(void *ctx, const lt_gram_job *job, size_t count,
                           const lt_scalars *scalars)
{
    if (scalars && !scalars->finite)
        return LT_OK;
    list l = {.ctx = ctx, .gram = job};
    lt_parallel((int64_t)count, 1, run_gram, &l);
    return finish(&l, "gram");
}

static void run_product(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    list *l = context;
    for (int64_t i = begin; i < end; i++) {
        const lt_mode_product_job *job = &l->product[i];
        const bool f32 = job->g.dtype == LT_F32 && job->y.dtype == LT_F32 && job->m.dtype == LT_F32;
        note(l, f32 ? mode_product(l->ctx, job)
                    : lt_backend_ref()->mode_product(l->ctx, job, 1, NULL));
    }
}

static lt_status product_jobs(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    if (scalars && !scalars->finite)
        return LT_OK;
    list l = {.ctx = ctx, .product = job};
    lt_parallel((int64_t)count, 1, run_product, &l);
    return finish(&l, "mode_product");
}

static void run_norm(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    list *l = context;
    const lt_cpu *cpu = l->ctx;
    for (int64_t i = begin; i < end; i++) {
        const lt_view *x = &l->x[i];
        lt_view out = *l->out;
        double *norm = (double *)out.data + i * out.stride[0];
        out.data = norm;
        out.shape.dim[0] = 1;
        if (x->dtype == LT_F32 && lt_view_is_dense(x))
            *norm = sqrt(cpu->kernels->square_sum(x->data, 1, lt_cpu_count(x)));
        else
            note(l, lt_backend_ref()->frobenius(l->ctx, x, 1, &out));
    }
}

static lt_status frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    list l = {.ctx = ctx, .x = x, .out = out};
    lt_parallel((int64_t)count, 1, run_norm, &l);
    return finish(&l, "frobenius");
}

void lt_cpu_install_matrix(lt_backend *be)
{
    openblas_set_num_threads(1);
    be->gram = gram_jobs;
    be->mode_product = product_jobs;
    be->frobenius = frobenius;
    be->eigh = lt_cpu_eigh;
}

const char *lt_cpu_matrix_info(void)
{
    return openblas_get_config();
}
