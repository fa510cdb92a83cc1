/* Ernest's model of a step's seconds: Venkataraman et al., NSDI 2016. */

#include "base/alloc.h"

#include "lather/detail/fit.h"
#include "lather/ext/fail.h"

#include <math.h>

static void terms(double *out, double ranks, double scale)
{
    out[0] = 1;
    out[1] = scale / ranks;
    out[2] = log(ranks);
    out[3] = ranks;
}

double lt_time_predict(const lt_time_model *model, double ranks, double scale)
{
    double term[LT_TIME_TERMS], sum = 0;
    terms(term, ranks, scale);
    for (int j = 0; j < LT_TIME_TERMS; j++)
        sum += model->x[j] * term[j];
    return sum;
}

static bool is_positive(double x)
{
    return x > 0 && isfinite(x);
}

static lt_status check_point(const lt_time_point *p, size_t index)
{
    if (!is_positive(p->seconds))
        return lt_fail(LT_E_ARG, "time model: point %zu: %g seconds on %g ranks, want more than 0",
                       index, p->seconds, p->ranks);
    if (!(p->ranks >= 1) || !isfinite(p->ranks) || !is_positive(p->scale))
        return lt_fail(LT_E_ARG,
                       "time model: point %zu: %g ranks with %g of the data, want at least 1 and "
                       "more than 0",
                       index, p->ranks, p->scale);
    return LT_OK;
}

/* Returns true if no earlier point has the same ranks and, with scale, the same scale. */
static bool is_first(const lt_time_point *point, size_t index, bool scale)
{
    for (size_t i = 0; i < index; i++)
        if (point[i].ranks == point[index].ranks
            && (!scale || point[i].scale == point[index].scale))
            return false;
    return true;
}

/* The model has four terms, three of them if the scale is constant. */
static lt_status check(const lt_time_point *point, size_t count)
{
    int pairs = 0, ranks = 0;
    for (size_t i = 0; i < count; i++) {
        LT_TRY(check_point(&point[i], i));
        pairs += is_first(point, i, true);
        ranks += is_first(point, i, false);
    }
    if (ranks < LT_TIME_TERMS - 1)
        return lt_fail(LT_E_ARG,
                       "time model: not enough measurements: %d different numbers of ranks, want "
                       "at least %d",
                       ranks, LT_TIME_TERMS - 1);
    if (pairs < LT_TIME_TERMS)
        return lt_fail(LT_E_ARG,
                       "time model: not enough measurements: %d different pairs of ranks and "
                       "scale for %d parameters",
                       pairs, LT_TIME_TERMS);
    return LT_OK;
}

/* Fits all points except those with `without` ranks, each row divided by its seconds. memory: [count,5]. */
static lt_status fit(double *x, const lt_time_point *point, size_t count, double without,
                     double *memory)
{
    double *a = memory, *b = memory + count * LT_TIME_TERMS;
    int rows = 0;
    for (size_t i = 0; i < count; i++) {
        if (point[i].ranks == without)
            continue;
        double *row = a + (size_t)rows * LT_TIME_TERMS;
        terms(row, point[i].ranks, point[i].scale);
        for (int j = 0; j < LT_TIME_TERMS; j++)
            row[j] /= point[i].seconds;
        b[rows++] = 1;
    }
    return lt_nnls(x, NULL, a, rows, LT_TIME_TERMS, b);
}

/* Returns the sum of squared relative errors over the points with these ranks (0: all). */
static double squares(const lt_time_model *model, const lt_time_point *point, size_t count,
                      double ranks)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const lt_time_point *p = &point[i];
        const double off = lt_time_predict(model, p->ranks, p->scale) / p->seconds - 1;
        sum += ranks > 0 && p->ranks != ranks ? 0 : off * off;
    }
    return sum;
}

static lt_status fit_all(lt_time_model *model, const lt_time_point *point, size_t count,
                         double *memory)
{
    LT_TRY(fit(model->x, point, count, 0, memory));
    model->error = sqrt(squares(model, point, count, 0) / (double)count);
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        lt_time_model other;
        if (!is_first(point, i, false))
            continue;
        LT_TRY(fit(other.x, point, count, point[i].ranks, memory));
        sum += squares(&other, point, count, point[i].ranks);
    }
    model->held_out = sqrt(sum / (double)count);
    return LT_OK;
}

lt_status lt_time_fit(lt_time_model *out, const lt_time_point *point, size_t count)
{
    LT_TRY(check(point, count));
    lt_time_model model = {.least = point[0].ranks, .most = point[0].ranks};
    for (size_t i = 1; i < count; i++) {
        model.least = fmin(model.least, point[i].ranks);
        model.most = fmax(model.most, point[i].ranks);
    }
    double *memory = lt_alloc(count * (LT_TIME_TERMS + 1), sizeof *memory);
    if (!memory)
        return LT_E_NOMEM;
    const lt_status st = fit_all(&model, point, count, memory);
    if (!st)
        *out = model;
    lt_free(memory);
    return st;
}
