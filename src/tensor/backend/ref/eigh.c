/* Eigenvalues and eigenvectors of symmetric matrices by the cyclic Jacobi method, in double: Golub & Van
 * Loan, "Matrix computations", 4th edition, section 8.5. The stopping rule is relative to the two diagonal
 * elements, so that small eigenvalues of positive definite matrices have small relative errors (Demmel &
 * Veselic, SIAM J. Matrix Anal. Appl. 13, 1992). */

#include "ref.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MAX_SWEEPS = 60 }; /* convergence is quadratic: about ten are used */

/* Rotates rows p and q of an n-column matrix: p' = c*p - s*q, q' = s*p + c*q. */
static void rotate_rows(double *p, double *q, int64_t n, double c, double s)
{
    for (int64_t i = 0; i < n; i++) {
        double a = p[i], b = q[i];
        p[i] = c * a - s * b;
        q[i] = s * a + c * b;
    }
}

/* Makes a[p,q] zero by a rotation of the plane (p,q), and applies it to the rows of v. */
static void zero_off_diagonal(double *a, double *v, int64_t n, int64_t p, int64_t q)
{
    double app = a[p * n + p], aqq = a[q * n + q], apq = a[p * n + q];
    double theta = (aqq - app) / (2 * apq);
    double t = 1 / (fabs(theta) + sqrt(theta * theta + 1));
    if (theta < 0)
        t = -t;
    double c = 1 / sqrt(t * t + 1), s = t * c;

    rotate_rows(a + p * n, a + q * n, n, c, s);
    for (int64_t i = 0; i < n; i++) {
        a[i * n + p] = a[p * n + i];
        a[i * n + q] = a[q * n + i];
    }
    a[p * n + p] = app - t * apq;
    a[q * n + q] = aqq + t * apq;
    a[p * n + q] = a[q * n + p] = 0;
    rotate_rows(v + p * n, v + q * n, n, c, s);
}

/* Performs one sweep over all pairs; returns the number of rotations needed. */
static int64_t jacobi_sweep(double *a, double *v, int64_t n, double negligible)
{
    int64_t rotations = 0;
    for (int64_t p = 0; p < n - 1; p++)
        for (int64_t q = p + 1; q < n; q++) {
            double size = fabs(a[p * n + q]);
            double scale = sqrt(fabs(a[p * n + p])) * sqrt(fabs(a[q * n + q]));
            if (size <= negligible || size <= DBL_EPSILON / 4 * scale)
                continue;
            zero_off_diagonal(a, v, n, p, q);
            rotations++;
        }
    return rotations;
}

/* Diagonalizes a; the rows of v become the eigenvectors. */
static lt_status diagonalize(double *a, double *v, int64_t n)
{
    double square = 0;
    for (int64_t i = 0; i < n * n; i++)
        square += a[i] * a[i];
    if (!isfinite(square))
        return lt_fail(LT_E_ARG,
                       "eigh: the %lld x %lld matrix has elements that are not finite, or "
                       "whose squares overflow",
                       (long long)n, (long long)n);

    memset(v, 0, (size_t)(n * n) * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i * n + i] = 1;
    /* far below the effect of one rounding of the largest eigenvalue */
    double negligible = 0x1p-8 * DBL_EPSILON * sqrt(square) / (double)n;
    for (int i = 0; i < MAX_SWEEPS; i++)
        if (!jacobi_sweep(a, v, n, negligible))
            return LT_OK;
    return lt_fail(LT_E_ARG, "eigh: no convergence in %d sweeps", MAX_SWEEPS);
}

/* Sets order to the indices of a's diagonal by ascending value (insertion sort). */
static void sort_eigenvalues(const double *a, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t j = i;
        for (; j > 0 && a[order[j - 1] * (n + 1)] > a[i * (n + 1)]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
}

/* Writes eigenvalues and eigenvectors in the given order; spare [n,n] is workspace. */
static void write_sorted(const double *a, const double *v, const int64_t *order, double *spare,
                         const lt_eigh_job *job)
{
    int64_t n = job->a.shape.dim[0];
    for (int64_t i = 0; i < n; i++)
        spare[i] = a[order[i] * (n + 1)];
    lt_ref_scatter_f64(spare, &job->values);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            spare[i * n + j] = v[order[j] * n + i];
    lt_ref_scatter_f64(spare, &job->vectors);
}

static lt_status solve_job(const lt_eigh_job *job)
{
    int64_t n = job->a.shape.dim[0];
    lt_ref_call call = {0};
    double *a = lt_ref_gather_f64(&call, &job->a);
    double *v = lt_ref_array(&call, n * n, sizeof *v);
    double *spare = lt_ref_array(&call, n * n, sizeof *spare);
    int64_t *order = lt_ref_array(&call, n, sizeof *order);
    if (!call.status)
        call.status = diagonalize(a, v, n);
    if (!call.status) {
        sort_eigenvalues(a, n, order);
        write_sorted(a, v, order, spare, job);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_eigh(void *ctx, lt_eigh_job *job, size_t count)
{
    (void)ctx;
    for (size_t i = 0; i < count; i++)
        job[i].status = solve_job(&job[i]);
    return LT_OK;
}
