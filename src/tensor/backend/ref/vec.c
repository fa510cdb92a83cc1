/* Elementwise expressions of optimizers, in double. Formulas: lt_vec_op. */

#include "ref.h"

#include <math.h>

static double evaluate(const lt_vec_job *j, double a, double b, double y)
{
    double kept = j->beta == 0 ? 0 : j->beta * y; /* a NaN in y must not come through a 0 */
    switch (j->op) {
    case LT_VEC_AXPBY:
        return j->alpha * a + kept;
    case LT_VEC_SQUARE:
        return j->alpha * a * a + kept;
    case LT_VEC_MUL:
        return j->alpha * a * b;
    case LT_VEC_RSQRT:
        return j->alpha * a / (sqrt(j->beta * b) + j->gamma);
    case LT_VEC_POW:
        return j->alpha * a / (pow(j->beta * b, j->delta) + j->gamma);
    }
    return (double)NAN;
}

static lt_status run(const lt_vec_job *job)
{
    lt_status st = LT_E_NOMEM;
    bool binary = job->b.data != NULL;
    double *a = lt_ref_gather_f64(&job->a), *y = lt_ref_gather_f64(&job->y);
    double *b = binary ? lt_ref_gather_f64(&job->b) : NULL;
    if (a && y && (b || !binary)) {
        for (int64_t i = 0, count = lt_ref_count(&job->y); i < count; i++)
            y[i] = evaluate(job, a[i], b ? b[i] : 0, y[i]);
        lt_ref_scatter_f64(y, &job->y);
        st = LT_OK;
    }
    lt_free(a);
    lt_free(b);
    lt_free(y);
    return st;
}

lt_status lt_ref_vec(void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars)
{
    (void)ctx;
    for (size_t i = 0; (!scalars || scalars->finite) && i < count; i++) {
        lt_vec_job resolved = job[i];
        resolved.alpha = lt_vec_alpha(&job[i], scalars);
        resolved.beta = lt_vec_beta(&job[i], scalars);
        LT_TRY(run(&resolved));
    }
    return LT_OK;
}
