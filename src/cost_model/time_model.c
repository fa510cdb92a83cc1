/* Ernest's model of a step's seconds: Venkataraman et al., NSDI 2016. */

#include "base/alloc.h"

#include "lather/detail/fit.h"
#include "lather/ext/fail.h"

#include <math.h>

static void compute_time_terms(double *out, double ranks)
{
    out[0] = 1;
    out[1] = 1 / ranks;
    out[2] = log(ranks);
    out[3] = ranks;
}

double lt_time_predict(const lt_time_model *model, double ranks)
{
    double term[LT_TIME_TERMS], sum = 0;
    compute_time_terms(term, ranks);
    for (int j = 0; j < LT_TIME_TERMS; j++)
        sum += model->x[j] * term[j];
    return sum;
}

static lt_status check_point(const lt_time_point *p, size_t index)
{
    if (!(p->seconds > 0) || !isfinite(p->seconds))
        return lt_fail(LT_E_ARG, "time model: point %zu: %g seconds on %g ranks, want more than 0",
                       index, p->seconds, p->ranks);
    if (!(p->ranks >= 1) || !isfinite(p->ranks))
        return lt_fail(LT_E_ARG, "time model: point %zu: %g ranks, want at least 1", index,
                       p->ranks);
    return LT_OK;
}

static lt_status check_points(const lt_time_point *point, size_t count)
{
    int ranks = 0;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        LT_TRY(check_point(&point[i], i));
        while (point[k].ranks != point[i].ranks)
            k++;
        ranks += k == i;
    }
    return ranks >= LT_TIME_TERMS
               ? LT_OK
               : lt_fail(LT_E_ARG,
                         "time model: not enough measurements: %d different numbers of ranks, "
                         "want at least %d",
                         ranks, LT_TIME_TERMS);
}

lt_status lt_time_fit(lt_time_model *out, const lt_time_point *point, size_t count)
{
    lt_time_model model;
    LT_TRY(check_points(point, count));
    double *a = NULL;
    LT_TRY(LT_ALLOC(&a, count * (LT_TIME_TERMS + 1)));
    double *b = a + count * LT_TIME_TERMS;
    for (size_t i = 0; i < count; i++) {
        double *row = a + i * LT_TIME_TERMS;
        compute_time_terms(row, point[i].ranks);
        for (int j = 0; j < LT_TIME_TERMS; j++)
            row[j] /= point[i].seconds;
        b[i] = 1;
    }
    const lt_status st = lt_nnls(model.x, NULL, a, (int)count, LT_TIME_TERMS, b);
    if (!st)
        *out = model;
    lt_free(a);
    return st;
}
