/* Pilots of lossy candidates, which drop or delay gradients between ranks: --compress, local steps, backup
 * workers, deadlines. Neither batch size nor noise scale predicts their steps; a pilot next to a lossless one does, as
 * both see the same samples in the same order, so that the noise of their losses cancels. At step i
 *
 *     log loss(i, m) = a - b log i + D(m)
 *
 * with b of the lossless pilot and D the mean difference of the two, both over the second half. The steps to a loss
 * grow by the factor exp(D / b), the slowdown, at least 1. These are the terms of Hemingway's model that one or two
 * numbers of ranks can identify (lather/detail/fit.h). For ranks without a pilot the slowdown is a power of m through
 * the pilots, 1 at one rank. ADR 0042. */

#include "planner.h"

#include <math.h>
#include <stdio.h>

/* --- The lossless counterpart --- */

static bool is_lossless_counterpart(const plan_config *lossless, const plan_config *c)
{
    return lossless->is_lossless && !c->is_lossless && lossless->lossless == c->lossless
           && lossless->batch == c->batch;
}

const plan_candidate *lt_plan_find_lossless(const plan *p, const plan_config *c)
{
    const plan_candidate *found = NULL;
    for (const plan_candidate *other = p->table.item; other < p->table.item + p->table.count;
         other++) {
        if (other->is_possible && other->cost.fits && is_lossless_counterpart(&other->config, c)
            && (!found || lt_plan_step_cost(other) < lt_plan_step_cost(found)))
            found = other;
    }
    return found;
}

const plan_run *lt_plan_find_lossless_pilot(const plan *p, const plan_config *c)
{
    const plan_run *found = NULL;
    for (const plan_run *run = p->runs.run; run < p->runs.run + p->runs.count; run++) {
        if (run->is_pilot && is_lossless_counterpart(&run->config, c)
            && run->timed >= (found ? found->timed : PLAN_LOSSY_MIN_STEPS))
            found = run;
    }
    return found;
}

/* Returns true if a lossy config is lossless here: compression and local steps only affect links between machines. */
static bool is_on_one_machine(const lt_plan_setup *u)
{
    return u->ranks <= u->ranks_per_node && !u->backup_workers && !(u->deadline > 0);
}

static bool has_unknown_lossy_steps(const plan *p, const plan_candidate *c)
{
    return *p->request.goal.metric && !c->config.is_lossless && c->steps.basis >= PLAN_MODEL
           && !is_on_one_machine(&c->config.setup);
}

bool lt_plan_needs_lossy_pilot(const plan *p, const plan_candidate *c)
{
    return has_unknown_lossy_steps(p, c) && lt_plan_find_lossless(p, &c->config);
}

/* True if the run is too long for a pilot's estimate; false if lossless is NULL, as its length is unknown then. */
static bool is_too_long_for_pilot(const plan *p, const plan_candidate *lossless)
{
    return lossless && !p->options.extrapolate
           && lossless->steps.value > PLAN_BEYOND * PLAN_LOSSY_STEPS;
}

bool lt_plan_is_beyond_pilots(const plan *p, const plan_candidate *c)
{
    return has_unknown_lossy_steps(p, c)
           && is_too_long_for_pilot(p, lt_plan_find_lossless(p, &c->config));
}

/* --- The slowdown --- */

double lt_plan_slowdown(const plan_run *lossy, const plan_run *lossless)
{
    lt_power_fit fit = {0};
    double apart = 0;
    size_t k = 0;
    if (!lossy->points || !lossless->points)
        return (double)NAN;
    const double last =
        fmin(lossy->point[lossy->points - 1].step, lossless->point[lossless->points - 1].step);
    for (size_t i = 0; i < lossy->points; i++) {
        const plan_point *a = &lossy->point[i];
        while (k < lossless->points && lossless->point[k].step < a->step)
            k++;
        if (k == lossless->points || lossless->point[k].step > a->step || 2 * a->step < last
            || !(a->value > 0) || !(lossless->point[k].value > 0))
            continue;
        apart += log(a->value / lossless->point[k].value);
        lt_plan_add_power_law_point(&fit, a->step, lossless->point[k].value);
    }
    const double at = exp(fit.y / fit.count), by = exp(-apart / fit.count);
    const double times = lt_plan_power_law_steps(&fit, at * by) / lt_plan_power_law_steps(&fit, at);
    return isnan(times) ? times : fmax(1, times); /* fmax(1, NaN) is 1 */
}

/* Fits log slowdown = power log m to the pilots of this class, the longest of which has *steps; false: no pilot.
 * *own: the slowdown measured on as many ranks, else NaN. */
static bool fit_slowdown(const plan_runs *runs, const plan_config *c, double *power, double *own,
                         double *steps)
{
    double xx = 0, xy = 0;
    *own = (double)NAN;
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        const double x = log(run->config.setup.ranks), y = log(run->slowdown);
        if (!(run->slowdown > 0) || run->config.convergence != c->convergence)
            continue;
        if (run->config.setup.ranks == c->setup.ranks && run->config.batch == c->batch)
            *own = run->slowdown;
        *steps = fmax(*steps, (double)run->timed);
        xx += x * x;
        xy += x * y;
    }
    *power = xy / xx;
    return xx > 0;
}

/* Slowdowns grow with the run's length: with local steps 1.03 in 200 steps, 1.75 in 4,000 (docs/results/plan.md).
 * So a run that is N times longer than its pilot counts as an extrapolation by N. */
bool lt_plan_estimate_lossy_steps(const plan *p, const plan_config *c, plan_estimate *out)
{
    double power = 0, own = 1, steps = 0;
    const plan_candidate *lossless = lt_plan_find_lossless(p, c);
    const bool is_alone = is_on_one_machine(&c->setup);
    if (!lossless || !isfinite(lossless->steps.value))
        return false;
    if (!is_alone && !fit_slowdown(&p->runs, c, &power, &own, &steps)) {
        if (p->request.pilot_share > 0 && is_too_long_for_pilot(p, lossless))
            *out = LT_PLAN_UNKNOWN("a pilot of %d steps cannot predict "
                                   "%.0f; --extrapolate allows it",
                                   PLAN_LOSSY_STEPS, lossless->steps.value);
        return false;
    }
    const bool is_measured = isfinite(own);
    const double slowdown = is_measured ? own : pow(c->setup.ranks, power);
    *out = lossless->steps;
    out->value *= slowdown;
    out->basis = out->basis > PLAN_MODEL ? out->basis : PLAN_MODEL;
    out->beyond = steps > 0 ? fmax(out->beyond, out->value / steps) : out->beyond;
    snprintf(out->why, sizeof out->why, "%.4g times those of %.40s%s: %.100s", slowdown,
             lossless->config.label,
             is_alone      ? ""
             : is_measured ? " by a pilot"
                           : " by pilots on other ranks",
             lossless->steps.why);
    return true;
}
