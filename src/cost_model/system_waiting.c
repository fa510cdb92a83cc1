/* The wait for the slowest rank: an order statistic of one draw per rank from the recorded steps. */

#include "base/alloc.h"
#include "cost_model/parts.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns P[at least k of n draws are below a point], p being that of one draw: a binomial tail, summed by logarithms,
 * as p^n underflows for 1,024 ranks. */
static double binomial_tail(int n, int k, double p)
{
    if (p <= 0 || p >= 1)
        return p >= 1;
    double sum = 0;
    for (int i = k; i <= n; i++)
        sum += exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) + i * log(p)
                   + (n - i) * log1p(-p));
    return sum < 1 ? sum : 1;
}

int lt_compare_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double expected_order_statistic(const double *sorted, size_t count, int n, int k)
{
    double sum = 0, before = 0;
    for (size_t i = 0; i < count; i++) {
        const double p = ((double)i + 1) / (double)count;
        const double now = k == n ? pow(p, n) : binomial_tail(n, k, p);
        sum += sorted[i] * (now - before);
        before = now;
    }
    return sum;
}

lt_status lt_plan_order_statistic(double *out, const double *value, size_t count, int n, int k)
{
    if (!count || n < 1 || k < 1 || k > n)
        return lt_fail(LT_E_ARG, "plan: order statistic %d of %d draws from %zu values", k, n,
                       count);
    double *sorted = NULL;
    LT_TRY(LT_ALLOC(&sorted, count));
    memcpy(sorted, value, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, lt_compare_ascending);
    *out = expected_order_statistic(sorted, count, n, k);
    lt_free(sorted);
    return LT_OK;
}

/* Returns the micro-batches that a rank starts before the deadline; each takes `micro` seconds. */
static int64_t micro_batches_before_deadline(const lt_system *s, double micro)
{
    int64_t m = 1;
    while (m < s->accum && (s->setup->deadline <= 0 || (double)m * micro < s->setup->deadline))
        m++;
    return m;
}

/* Scales recorded steps to this run, whose mean is `seconds`: value[i] seconds of computing an update. kept: the mean
 * share of its micro-batches that are computed. */
static void scale_recorded_steps(double *value, double *kept, const lt_system *s, double seconds)
{
    const lt_plan_profile *p = s->profile;
    double mean = 0, done = 0;
    for (size_t i = 0; i < p->steps; i++)
        mean += p->step_seconds[i] / (double)p->steps;
    for (size_t i = 0; i < p->steps; i++) {
        const double micro = seconds / (double)s->accum * p->step_seconds[i] / mean;
        const int64_t m = micro_batches_before_deadline(s, micro);
        value[i] = (double)m * micro;
        done += (double)m;
    }
    *kept = done / ((double)p->steps * (double)s->accum);
}

lt_status lt_system_predict_waiting(double *waiting, double *kept, const lt_system *s,
                                    double seconds)
{
    const int n = s->setup->ranks, k = n - s->setup->backup_workers;
    const size_t count = s->profile->steps;
    double slowest = seconds, *value = lt_alloc(count + 1, sizeof *value);
    lt_status st = value ? LT_OK : LT_E_NOMEM;
    *kept = 1;
    if (!st && count) {
        scale_recorded_steps(value, kept, s, seconds);
        st = lt_plan_order_statistic(&slowest, value, count, n, k);
    }
    lt_free(value);
    *waiting = slowest - seconds;
    *kept *= (double)k / n;
    return st;
}
