/* Frobenius norms, and entries on LAPACK, whose threads are disabled: one matrix per thread. Formulas:
 * detail/matrix_kernels.h. */

#include "lapack.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <math.h>

lt_eigh_fn lt_cpu_eigh;

typedef struct list {
    void *ctx;
    const lt_view *x, *out; /* frobenius */
    const lt_qr_job *qr;
} list;

enum { SHORT_RUN = 16 };

/* Sets the dimensions of x that form contiguous runs to size 1, so that x addresses the runs' first elements. Returns
 * the length of a run. */
static int64_t split_off_contiguous_dims(lt_view *x)
{
    int64_t length = 1;
    for (int d = 0; d < x->shape.ndim; d++) {
        if (x->shape.dim[d] == 1 || x->stride[d] != length)
            continue;
        length *= x->shape.dim[d];
        x->shape.dim[d] = 1;
        d = -1; /* an earlier dimension may continue the run */
    }
    return length;
}

/* Returns the sum of squares of f32 runs. */
static double sum_squares_of_runs(const lt_cpu *cpu, const lt_view *begins, int64_t length)
{
    double sum = 0;
    for (int64_t i = 0, runs = lt_cpu_element_count(begins); i < runs; i++) {
        int64_t at = 0, rest = i;
        for (int d = begins->shape.ndim - 1; d >= 0; d--) {
            at += rest % begins->shape.dim[d] * begins->stride[d];
            rest /= begins->shape.dim[d];
        }
        sum += cpu->kernels->square_sum((const float *)begins->data + at, 1, length);
    }
    return sum;
}

static lt_status run_norm(void *context, int64_t i)
{
    const list *l = context;
    const lt_cpu *cpu = l->ctx;
    const lt_view *x = &l->x[i];
    lt_view out = *l->out;
    double *norm = (double *)out.data + i * out.stride[0];
    out.data = norm;
    out.shape.dim[0] = 1;
    lt_view begins = *x;
    const int64_t length = split_off_contiguous_dims(&begins);
    if (x->dtype != LT_F32 || (length < SHORT_RUN && !lt_view_is_dense(x)))
        return lt_backend_ref()->frobenius(l->ctx, x, 1, &out);
    *norm = sqrt(sum_squares_of_runs(cpu, &begins, length));
    return LT_OK;
}

static lt_status frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    list l = {.ctx = ctx, .x = x, .out = out};
    return lt_cpu_run_jobs("frobenius", count, run_norm, &l);
}

/* --- Orthogonal factors by LAPACK's Householder QR, one matrix per thread: detail/matrix_kernels.h --- */

/* Orders columns by falling diagonal, stably: insertion sort, as the eigenbasis of a slowly changing matrix is nearly
 * sorted. */
static void sort_columns(const float *a, size_t n, size_t *order)
{
    for (size_t k = 0; k < n; k++) {
        size_t at = k;
        for (; at > 0 && a[order[at - 1] * (n + 1)] < a[k * (n + 1)]; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
}

/* Replaces column-major m by Q; sign: signs of R's diagonal. Returns LAPACK's info. */
static lapack_int orthonormalize(float *m, lapack_int n, float *tau, float *sign)
{
    lapack_int info = lt_lapack_calls.sgeqrf(LAPACK_COL_MAJOR, n, n, m, n, tau);
    for (lapack_int i = 0; i < n; i++)
        sign[i] = m[(size_t)i * ((size_t)n + 1)] < 0 ? -1 : 1;
    return info ? info : lt_lapack_calls.sorgqr(LAPACK_COL_MAJOR, n, n, n, m, n, tau);
}

static lt_status factorize_qr(const lt_qr_job *job)
{
    const size_t n = (size_t)job->a.shape.dim[0], count = n * n;
    const float *a = job->a.data;
    float *m = lt_alloc_aligned(64, count * sizeof *m), *q = job->q.data;
    float *tau = lt_alloc(2 * n, sizeof *tau);
    size_t *order = lt_alloc(n, sizeof *order);
    lt_status st = m && tau && order ? LT_OK : LT_E_NOMEM;
    if (!st) {
        sort_columns(a, n, order);
        for (size_t i = 0; i < count; i++)
            m[i] = a[i % n * n + order[i / n]];
        const lapack_int info = orthonormalize(m, (lapack_int)n, tau, tau + n);
        for (size_t i = 0; i < count && !info; i++)
            q[i % n * n + order[i / n]] = tau[n + i / n] * m[i];
        if (info)
            st = lt_fail(LT_E_ARG, "qr: LAPACK failed with info %d", (int)info);
    }
    lt_free(m);
    lt_free(tau);
    lt_free(order);
    return st;
}

static lt_status run_qr(void *context, int64_t i)
{
    const list *l = context;
    const lt_qr_job *job = &l->qr[i];
    const bool f32 = job->a.dtype == LT_F32 && job->q.dtype == LT_F32;
    return f32 ? factorize_qr(job) : lt_backend_ref()->qr(l->ctx, job, 1);
}

static lt_status qr(void *ctx, const lt_qr_job *job, size_t count)
{
    list l = {.ctx = ctx, .qr = job};
    return lt_cpu_run_jobs("qr", count, run_qr, &l);
}

void lt_cpu_install_matrix(lt_backend *be)
{
    be->frobenius = frobenius;
    if (!lt_lapack_open())
        return;
    be->eigh = lt_cpu_eigh;
    be->qr = qr;
}

const char *lt_cpu_matrix_info(void)
{
    return lt_lapack_calls.config ? lt_lapack_calls.config()
                                  : "LAPACK: not on this machine, eigendecompositions are slow";
}
