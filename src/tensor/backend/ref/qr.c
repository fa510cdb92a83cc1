/* Orthogonal factors of QR decompositions by Householder reflections in double: Golub & Van Loan, "Matrix
 * computations", 4th edition, section 5.2. */

#include "ref.h"

#include <math.h>

/* Applies I - 2 v v^T / (v^T v), with v starting at row `first`, to columns [from, n) of m. */
static void apply_reflection(double *m, const double *v, int64_t n, int64_t first, int64_t from)
{
    double square = 0;
    for (int64_t i = first; i < n; i++)
        square += v[i] * v[i];
    for (int64_t j = from; j < n && square > 0; j++) {
        double sum = 0;
        for (int64_t i = first; i < n; i++)
            sum += v[i] * m[i * n + j];
        sum *= 2 / square;
        for (int64_t i = first; i < n; i++)
            m[i * n + j] -= sum * v[i];
    }
}

/* a becomes R; v [n,n] receives a reflection per row. */
static void reduce_to_triangular(double *a, double *v, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double *w = v + k * n, norm = 0;
        for (int64_t i = k; i < n; i++) {
            w[i] = a[i * n + k];
            norm += w[i] * w[i];
        }
        w[k] += copysign(sqrt(norm), w[k]);
        apply_reflection(a, w, n, k, k);
    }
}

/* Sorts column indices by falling diagonal, ties by index. Insertion sort, because the basis of a slowly
 * changing matrix is nearly sorted. */
static void sort_columns(const double *a, int64_t n, int64_t *order)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t at = k;
        for (; at > 0 && a[order[at - 1] * (n + 1)] < a[k * (n + 1)]; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
}

/* Orthonormalizes a's columns, which are sorted, into q; v [n,n] is work memory. */
static void orthonormalize(double *a, double *v, double *q, int64_t n)
{
    reduce_to_triangular(a, v, n);
    for (int64_t i = 0; i < n; i++)
        q[i * (n + 1)] = 1;
    for (int64_t k = n - 1; k >= 0; k--)
        apply_reflection(q, v + k * n, n, k, 0);
    for (int64_t i = 0; i < n * n; i++)
        q[i] = a[i % n * (n + 1)] < 0 ? -q[i] : q[i];
}

static lt_status run_qr_job(const lt_qr_job *job)
{
    const int64_t n = job->a.shape.dim[0];
    lt_ref_call call = {0};
    double *a = lt_ref_gather_f64(&call, &job->a);
    double *v = lt_ref_array(&call, 3 * n * n, sizeof *v);
    int64_t *order = lt_ref_array(&call, n, sizeof *order);
    if (!call.status) {
        double *q = v + n * n, *sorted = q + n * n;
        sort_columns(a, n, order);
        for (int64_t i = 0; i < n * n; i++)
            sorted[i] = a[i / n * n + order[i % n]];
        orthonormalize(sorted, v, q, n);
        for (int64_t i = 0; i < n * n; i++)
            a[i / n * n + order[i % n]] = q[i];
        lt_ref_scatter_f64(a, &job->q);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_qr(void *ctx, const lt_qr_job *job, size_t count)
{
    (void)ctx;
    for (size_t i = 0; i < count; i++)
        LT_TRY(run_qr_job(&job[i]));
    return LT_OK;
}
