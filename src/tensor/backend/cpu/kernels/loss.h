/* Softmax cross-entropy, one row of logits at a time. Formulas: lather/ops/loss.h. */

#include "functions.h"

#include "lather/ext/elementary.h"

#include <math.h>

ALWAYS double sum_wide_lanes(wide v)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += v[l];
    return sum;
}

/* Returns log(sum(exp(z))), shifted by the maximum so that exp() cannot overflow. */
ALWAYS double log_sum_exp_any(const void *z, int64_t count, lt_cpu_store s)
{
    vec best = vec_set(-__builtin_inff());
    FOR_LANES(i, n, count, {
        const vec v = load(z, i, n, s);
        best = choose(below(best, v) & first_lanes(n), v, best);
    });
    float top = best[0];
    for (int l = 1; l < LANES; l++)
        top = best[l] > top ? best[l] : top;
    wide sum = {0};
    FOR_LANES(i, n, count, {
        const vec e = exponential(load(z, i, n, s) - vec_set(top));
        const vec kept = choose(first_lanes(n), e, vec_set(0));
        sum += __builtin_convertvector(kept, wide);
    });
    return (double)top + lt_f64_log(sum_wide_lanes(sum));
}

/* Returns the sum of target * (z - lse), with targets of 1 if target is NULL. */
ALWAYS double cross_any(const void *z, const float *target, int64_t count, double lse,
                        lt_cpu_store s)
{
    wide sum = {0};
    FOR_LANES(i, n, count, {
        wide term = __builtin_convertvector(load(z, i, n, s), wide) - lse;
        vec t = vec_set(1);
        if (target)
            t = load(target, i, n, LT_STORE_F32);
        t = choose(first_lanes(n), t, vec_set(0));
        const wide weight = __builtin_convertvector(t, wide);
        typedef int64_t which __attribute__((vector_size(128)));
        /* 0 * -Inf is 0: an impossible class may have the logit -Inf. */
        term = (wide)((which)(weight * term) & (which)(weight != 0));
        sum += term;
    });
    return sum_wide_lanes(sum);
}

ALWAYS void xent_grad_any(const lt_xent_grad *in, lt_cpu_store s)
{
    const lt_xent_grad g = *in; /* a local copy: stores cannot change it */
    FOR_LANES(i, n, g.classes, {
        const vec p = exponential(load(g.logits, i, n, s) - vec_set(g.lse));
        vec q = vec_set(g.share);
        if (g.target)
            q = multiply_add(load(g.target, i, n, LT_STORE_F32), vec_set(g.weight), q);
        else
            q += (vec)((lanes)vec_set(g.weight)
                       & equals_lanes(lane_numbers(i), (lanes){0} + g.label));
        save(g.dx, i, multiply_add(p, vec_set(g.factor), -q), n, s);
    });
}

/* Returns the rank of z[own]: the number of larger elements and of earlier equal ones; count if any is NaN. */
ALWAYS int64_t rank_any(const void *z, int64_t count, int64_t own, lt_cpu_store s)
{
    const int64_t width = s == LT_STORE_F32 ? 4 : 2;
    const vec mine = vec_set(load((const char *)z + own * width, 0, 1, s)[0]);
    lanes before = {0}, bad = {0};
    FOR_LANES(i, n, count, {
        const vec v = load(z, i, n, s);
        const lanes counts = first_lanes(n);
        const lanes first = equals(v, mine) & below_lanes(lane_numbers(i), (lanes){0} + (int)own);
        before -= counts & (below(mine, v) | first); /* a lane that is true is -1 */
        bad |= counts & ~equals(v, v);
    });
    int64_t rank = 0, bads = 0;
    for (int l = 0; l < LANES; l++) {
        rank += before[l];
        bads |= bad[l];
    }
    return bads ? count : rank;
}
