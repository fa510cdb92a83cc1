/* Gradient noise scale. McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, arXiv 1812.06162,
 * appendix A.1 (the estimates) and section 2.3 (steps and batches). */

#include "lather/detail/noise_scale.h"

#include "lather/ext/elementary.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdbool.h>

static bool is_finite_nonnegative(double value)
{
    return value >= 0 && isfinite(value);
}

lt_status lt_noise_scale_add(lt_noise_scale *n, const lt_noise_sample *s)
{
    const double b = s->small_batch, large = s->large_batch;
    if (!(n->decay >= 0 && n->decay < 1))
        return lt_fail(LT_E_ARG, "noise scale: decay %g is not in [0,1)", n->decay);
    if (!(b > 0 && b < large && isfinite(large)))
        return lt_fail(LT_E_ARG,
                       "noise scale: batches of %g and %g samples do not satisfy 0 < b "
                       "< B",
                       b, large);
    if (!is_finite_nonnegative(s->small_square) || !is_finite_nonnegative(s->large_square))
        return lt_fail(LT_E_ARG, "noise scale: squares %g and %g are not finite and at least 0",
                       s->small_square, s->large_square);
    const double square = (large * s->large_square - b * s->small_square) / (large - b);
    const double trace = (s->small_square - s->large_square) / (1 / b - 1 / large);
    n->square = n->decay * n->square + (1 - n->decay) * square;
    n->trace = n->decay * n->trace + (1 - n->decay) * trace;
    n->count++;
    return LT_OK;
}

lt_noise_estimate lt_noise_scale_estimate(const lt_noise_scale *n)
{
    /* Weight of the samples: the average started at 0. */
    const double weight = 1 - lt_f64_pow(n->decay, (double)n->count);
    lt_noise_estimate e = {.scale = (double)NAN};
    if (!n->count)
        return e;
    e.square = n->square / weight;
    e.trace = n->trace / weight;
    if (e.square > 0)
        e.scale = e.trace > 0 ? e.trace / e.square : 0;
    return e;
}

lt_status lt_noise_steps(double *steps, double phi, double steps_measured, double batch_measured,
                         double batch)
{
    if (!is_finite_nonnegative(phi))
        return lt_fail(LT_E_ARG, "noise scale: %g is not finite and at least 0", phi);
    if (!(steps_measured > 0) || !(batch_measured > 0) || !(batch > 0))
        return lt_fail(LT_E_ARG,
                       "noise scale: %g steps of batch %g, for batch %g, must all be above 0",
                       steps_measured, batch_measured, batch);
    *steps = steps_measured * (1 + phi / batch) / (1 + phi / batch_measured);
    return LT_OK;
}
