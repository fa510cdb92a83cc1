/* Sums of shifted inverses of symmetric matrices in double, each by a Cholesky factorisation: Golub & Van
 * Loan, "Matrix computations", 4th edition, section 4.2. */

#include "tensor/backend/rational.h"

#include "ref.h"

#include <math.h>

/* Replaces the lower triangle of m by its Cholesky factor; false if not positive definite. */
static bool cholesky_factorize(double *m, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double sum = m[i * n + j];
            for (int64_t k = 0; k < j; k++)
                sum -= m[i * n + k] * m[j * n + k];
            if (i == j && !(sum > 0))
                return false;
            m[i * n + j] = i == j ? sqrt(sum) : sum / m[j * n + j];
        }
    }
    return true;
}

/* x = (l l^T)^(-1) x. */
static void cholesky_solve(const double *l, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++)
            x[i] -= l[i * n + k] * x[k];
        x[i] /= l[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++)
            x[i] -= l[k * n + i] * x[k];
        x[i] /= l[i * n + i];
    }
}

static lt_status add_inverse_term(const double *a, double *y, double *work, int64_t n,
                                  double weight, double shift)
{
    double *l = work, *x = work + n * n;
    for (int64_t i = 0; i < n * n; i++)
        l[i] = a[i] + (i % (n + 1) ? 0 : shift);
    if (!cholesky_factorize(l, n))
        return lt_fail(LT_E_ARG, "rational: the matrix plus %g I is not positive definite", shift);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n; i++)
            x[i] = i == j;
        cholesky_solve(l, x, n);
        for (int64_t i = 0; i < n; i++)
            y[j * n + i] += weight * x[i];
    }
    return LT_OK;
}

static lt_status run_rational_job(lt_rational_job *job)
{
    const int64_t n = job->a.shape.dim[0];
    lt_ref_call call = {0};
    double *a = lt_ref_gather_f64(&call, &job->a);
    double *y = lt_ref_array(&call, n * n, sizeof *y);
    double *work = lt_ref_array(&call, n * n + n, sizeof *work);
    job->status = LT_OK;
    for (int64_t i = 0; i < n && !call.status; i++)
        y[i * (n + 1)] = job->constant;
    for (int j = 0; j < job->poles && !call.status && !job->status; j++)
        job->status = add_inverse_term(a, y, work, n, job->weight[j], job->shift[j]);
    if (!call.status && !job->status)
        lt_ref_scatter_f64(y, &job->y);
    return lt_ref_finish(&call);
}

lt_status lt_ref_rational(void *ctx, lt_rational_job *job, size_t count)
{
    (void)ctx;
    for (size_t i = 0; i < count; i++) {
        lt_rational_job own = lt_rational_apply_scale(&job[i]);
        LT_TRY(run_rational_job(&own));
        lt_rational_report_status(&job[i], own.status);
    }
    return LT_OK;
}
