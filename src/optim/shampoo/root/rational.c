/* Inverse roots as sums of shifted inverses:
 *
 *   A^(-e) = c I + sum over j of w_j (A + s_j I)^(-1),
 *
 * a rational approximation on [a, b], an interval that holds all eigenvalues: with a few poles its
 * relative error is below the tolerance whatever the eigenvectors are. An inverse costs n^3
 * multiplications and additions, less than a tenth of an eigendecomposition's time.
 * Hale, Higham & Trefethen, "Computing A^alpha, log(A), and related matrix functions by contour
 * integrals", SIAM J. Numer. Anal. 46, 2008; poles: fit.c. Terms with a shift so small that f32
 * would lose the answer are computed in double. */

#include "optim/shampoo/root/fit.h"
#include "optim/shampoo/root/root.h"

#include <float.h>
#include <math.h>

/* Fits of one call: few ranges occur, because they are rounded up. */
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

/* The range is rounded up to a power of 2. */
static const lt_fit *find_fit(work *w, double exponent, double range, double tolerance)
{
    const double rounded = exp2(ceil(log2(range)));
    for (int i = 0; i < w->count; i++)
        if (w->known[i].exponent == exponent && w->known[i].range == rounded)
            return &w->known[i].fit;
    known *k = &w->known[w->count < MOST_KNOWN ? w->count++ : MOST_KNOWN - 1];
    *k = (known){exponent, rounded, lt_fit_power(exponent, rounded, tolerance)};
    return &k->fit;
}

/* norm: Frobenius, an upper bound of the eigenvalues. Below 1e-8 of it f32 data have no digits. */
static void make_job(work *w, size_t i, double norm)
{
    const lt_root_set *s = w->set;
    const lt_root_item *t = &s->item[i];
    const double e = t->job->exponent;
    const double digits = lt_device_master(s->device) == LT_F64 ? 1e-15 : 1e-8;
    const double low = fmax(t->epsilon, digits * norm);
    const lt_fit *f = find_fit(w, e, fmax(norm / low, 2), e * lt_root_tolerance(s->config));
    lt_rational_job *job = &w->job[i];
    *job = (lt_rational_job){.a = t->a, .y = t->result, .poles = f->poles};
    job->wide_below = 4e-6 * norm; /* a condition at which f32 keeps two digits */
    job->constant = f->constant * pow(low, -e);
    for (int j = 0; j < f->poles; j++) {
        job->weight[j] = f->weight[j] * pow(low, 1 - e);
        job->shift[j] = f->shift[j] * low;
    }
    t->job->iterations = f->poles;
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

/* |A + epsilon I| <= |A| + epsilon sqrt(n): where a read-back costs more than what that is too large. */
static lt_status bound_norms(work *w)
{
    for (size_t i = 0; i < w->set->count; i++) {
        const lt_root_item *t = &w->set->item[i];
        w->host[i] = t->norm + t->epsilon * sqrt((double)t->n);
    }
    return LT_OK;
}

static lt_status solve(work *w)
{
    const lt_root_set *s = w->set;
    w->host = lt_alloc(s->count, sizeof *w->host);
    w->view = lt_alloc(s->count, sizeof *w->view);
    w->job = lt_alloc(s->count, sizeof *w->job);
    if (!w->host || !w->view || !w->job)
        return LT_E_NOMEM;
    LT_TRY(s->be->host_memory ? read_norms(w) : bound_norms(w));
    for (size_t i = 0; i < s->count; i++)
        make_job(w, i, fmax(w->host[i], DBL_MIN));
    LT_TRY(s->be->rational(s->ctx, w->job, s->count));
    for (size_t i = 0; i < s->count; i++)
        s->item[i].job->status = w->job[i].status;
    return LT_OK;
}

lt_status lt_root_rational(const lt_root_set *set)
{
    lt_status st = LT_E_NOMEM;
    work *w = lt_alloc(1, sizeof *w);
    if (w) {
        w->set = set;
        st = solve(w);
        lt_tensor_free(&w->norms);
        lt_free(w->host);
        lt_free(w->view);
        lt_free(w->job);
    }
    lt_free(w);
    return st ? st : lt_root_residuals(set);
}
