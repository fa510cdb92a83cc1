/* Inverse roots as sums of shifted inverses:
 *
 *   A^(-e) = c I + sum over j of w_j (A + s_j I)^(-1),
 *
 * a rational approximation on an interval that contains all eigenvalues. A few poles keep its relative
 * error below the tolerance for any eigenvectors. An inverse takes n^3 multiplications and additions,
 * less than a tenth of an eigendecomposition's time. Hale, Higham & Trefethen, "Computing A^alpha,
 * log(A), and related matrix functions by contour integrals", SIAM J. Numer. Anal. 46, 2008; poles:
 * fit.c. Terms whose shift is too small for f32 are computed in double. */

#include "optim/shampoo/root/fit.h"
#include "optim/shampoo/root/root.h"

#include "lather/ext/elementary.h"

#include <float.h>
#include <math.h>

/* A cached fit. Ranges are rounded up, so that few different ones occur in a call. */
typedef struct known {
    double exponent, range;
    lt_fit fit;
} known;

enum { MOST_KNOWN = 32 };

typedef struct work {
    const lt_root_set *set;
    lt_tensor *norms;
    double *host;
    lt_view *view;
    lt_rational_job *job;
    known known[MOST_KNOWN];
    int count;
} work;

static const lt_fit *find_or_compute_fit(work *w, double exponent, double range, double tolerance)
{
    for (int i = 0; i < w->count; i++)
        if (w->known[i].exponent == exponent && w->known[i].range == range)
            return &w->known[i].fit;
    known *k = &w->known[w->count < MOST_KNOWN ? w->count++ : MOST_KNOWN - 1];
    *k = (known){exponent, range, lt_fit_power(exponent, range, tolerance)};
    return &k->fit;
}

/* Returns the relative rounding error: elements below this fraction of the matrix's norm are noise. */
static double rounding_error_share(const lt_root_set *s)
{
    return lt_device_master_dtype(s->device) == LT_F64 ? 1e-15 : 1e-8;
}

/* Makes the job of an item with eigenvalues from low to norm, whose ratio is at most range. */
static void make_job(work *w, size_t i, double low, double norm, double range)
{
    const lt_root_set *s = w->set;
    const lt_root_item *t = &s->item[i];
    const double e = t->job->exponent;
    const lt_fit *f = find_or_compute_fit(w, e, range, e * s->tolerance);
    lt_rational_job *job = &w->job[i];
    *job = (lt_rational_job){.a = t->a, .y = t->result, .poles = f->poles, .exponent = e};
    job->scale = t->largest_at ? t->largest_at : s->device_one;
    job->wide_below = 4e-6 * norm; /* f32 keeps two digits at this condition number */
    job->constant = f->constant * lt_f64_pow(low, -e);
    for (int j = 0; j < f->poles; j++) {
        job->weight[j] = f->weight[j] * lt_f64_pow(low, 1 - e);
        job->shift[j] = f->shift[j] * low;
    }
    t->job->iterations = f->poles;
}

/* Makes a job from numbers on the host. norm: Frobenius, an upper bound of the eigenvalues. The range is rounded up
 * to a power of 2, so that few fits are computed. */
static void make_host_job(work *w, size_t i, double norm)
{
    const double low = fmax(w->set->item[i].epsilon, rounding_error_share(w->set) * norm);
    double range = 2;
    while (range < norm / low)
        range *= 2;
    make_job(w, i, low, norm, range);
}

/* Makes a job in units of the estimated largest eigenvalue, which is less than a twentieth too small; so the range
 * depends on epsilon alone. */
static void make_device_job(work *w, size_t i)
{
    const double above = 1.06, epsilon = w->set->item[i].epsilon;
    const double low = fmax(epsilon, rounding_error_share(w->set)), high = above + epsilon;
    make_job(w, i, low, high, fmax(high / low, 2));
}

static lt_status read_norms(work *w)
{
    const lt_root_set *s = w->set;
    LT_TRY(lt_tensor_new(&w->norms, s->device, LT_F64, LT_SHAPE((int64_t)s->count)));
    const lt_view out = lt_tensor_view(w->norms);
    for (size_t i = 0; i < s->count; i++)
        w->view[i] = s->item[i].a;
    LT_TRY(s->be->frobenius(s->ctx, w->view, s->count, &out));
    return lt_tensor_read(w->norms, w->host, s->count * sizeof *w->host);
}

/* Bounds norms by |A + epsilon I| <= |A| + epsilon sqrt(n), where a read-back would cost more than a slightly
 * larger range. */
static lt_status bound_norms(work *w)
{
    for (size_t i = 0; i < w->set->count; i++) {
        const lt_root_item *t = &w->set->item[i];
        w->host[i] = t->norm + t->epsilon * sqrt((double)t->n);
    }
    return LT_OK;
}

static lt_status run_rational_jobs(work *w)
{
    const lt_root_set *s = w->set;
    LT_TRY(LT_ALLOC(&w->host, s->count));
    LT_TRY(LT_ALLOC(&w->view, s->count));
    LT_TRY(LT_ALLOC(&w->job, s->count));
    LT_TRY(s->be->host_memory ? read_norms(w) : bound_norms(w));
    for (size_t i = 0; i < s->count; i++)
        if (s->item[i].largest_at)
            make_device_job(w, i);
        else
            make_host_job(w, i, fmax(w->host[i], DBL_MIN));
    LT_TRY(s->be->rational(s->ctx, w->job, s->count));
    for (size_t i = 0; i < s->count; i++)
        s->item[i].job->status = w->job[i].status;
    return LT_OK;
}

lt_status lt_root_enqueue_rational(const lt_root_set *set)
{
    lt_status st = LT_E_NOMEM;
    work *w = lt_alloc(1, sizeof *w);
    if (w) {
        w->set = set;
        st = run_rational_jobs(w);
        lt_tensor_free(&w->norms);
        lt_free(w->host);
        lt_free(w->view);
        lt_free(w->job);
    }
    lt_free(w);
    return st;
}

lt_status lt_root_rational(const lt_root_set *set)
{
    LT_TRY(lt_root_enqueue_rational(set));
    return lt_root_compute_residuals(set);
}
