/* Pilots of what loses or delays gradients between ranks: top-k, PowerSGD, local steps, backup workers, deadlines. Neither
 * batches nor noise scales say how many steps these take; the course that loses nothing does, as both see the same samples in
 * the same order: the noise of their losses is one noise. At step i
 *
 *     log loss(i, m) = a - b log i + D(m)
 *
 * with b of the lossless course and D the mean difference, both over the second half of the pilot, so that the steps to a loss are
 * exp(D / b) times as many: the slowdown, at least 1. These are the terms of Hemingway's model that one or two numbers of ranks
 * tell apart (lather/detail/fit.h). Of ranks without a pilot it is the power of m through those that have one, and 1 of a single
 * rank. ADR 0042. */

#include "planner.h"

#include <math.h>
#include <stdio.h>

/* --- The course that loses nothing --- */

static bool is_lossless_of(const plan_setting *exact, const plan_setting *s)
{
    return exact->is_exact && !s->is_exact && exact->lossless == s->lossless
           && exact->batch == s->batch;
}

const plan_candidate *lt_plan_find_lossless(const plan *p, const plan_setting *s)
{
    const plan_table *t = &p->table;
    const plan_candidate *found = NULL;
    for (size_t i = 0; i < t->count; i++) {
        const plan_candidate *c = &t->item[i];
        if (c->is_possible && c->cost.fits && is_lossless_of(&c->setting, s)
            && (!found
                || c->setting.setup.ranks * c->step.value
                       < found->setting.setup.ranks * found->step.value))
            found = c;
    }
    return found;
}

const plan_run *lt_plan_find_lossless_pilot(const plan *p, const plan_setting *s)
{
    const plan_run *found = NULL;
    for (size_t i = 0; i < p->runs.count; i++) {
        const plan_run *run = &p->runs.run[i];
        if (run->is_pilot && is_lossless_of(&run->setting, s)
            && run->timed >= (found ? found->timed : PLAN_ARM_LEAST))
            found = run;
    }
    return found;
}

/* What loses gradients between machines alone loses none within one. */
static bool is_on_one_machine(const lt_plan_setup *u)
{
    return u->ranks <= u->ranks_per_node && !u->backup_workers && !(u->deadline > 0);
}

/* Whether it is one, if some candidate loses nothing and is otherwise the same. */
static bool loses_gradients(const plan *p, const plan_candidate *c)
{
    return *p->request.goal.metric && !c->setting.is_exact && c->steps.trust >= PLAN_MODEL
           && !is_on_one_machine(&c->setting.setup);
}

bool lt_plan_is_arm(const plan *p, const plan_candidate *c)
{
    return loses_gradients(p, c) && lt_plan_find_lossless(p, &c->setting);
}

/* Its run is so much longer than a pilot that it would fall. exact: NULL: nothing says how long. */
static bool is_beyond_pilots(const plan *p, const plan_candidate *exact)
{
    return exact && !p->options.extrapolate && exact->steps.value > PLAN_BEYOND * PLAN_ARM_STEPS;
}

bool lt_plan_is_out_of_reach(const plan *p, const plan_candidate *c)
{
    return loses_gradients(p, c) && is_beyond_pilots(p, lt_plan_find_lossless(p, &c->setting));
}

/* --- The slowdown --- */

double lt_plan_slowdown(const plan_run *arm, const plan_run *exact)
{
    lt_power_fit course = {0};
    double apart = 0;
    size_t k = 0;
    if (!arm->points || !exact->points)
        return (double)NAN;
    const double last =
        fmin(arm->point[arm->points - 1].step, exact->point[exact->points - 1].step);
    for (size_t i = 0; i < arm->points; i++) {
        const plan_point *a = &arm->point[i];
        while (k < exact->points && exact->point[k].step < a->step)
            k++;
        if (k == exact->points || exact->point[k].step > a->step || 2 * a->step < last
            || !(a->value > 0) || !(exact->point[k].value > 0))
            continue;
        apart += log(a->value / exact->point[k].value);
        lt_plan_power_add(&course, a->step, exact->point[k].value);
    }
    const double at = exp(course.y / course.count), by = exp(-apart / course.count);
    const double times = lt_plan_power_steps(&course, at * by) / lt_plan_power_steps(&course, at);
    return isnan(times) ? times : fmax(1, times); /* fmax(1, NaN) is 1 */
}

/* log of the slowdown = power log m, least squares over the pilots of this set-up, the longest of which has *steps; false:
 * there are none. *own: of as many ranks, else NaN. */
static bool fit_slowdown(const plan_runs *runs, const plan_setting *s, double *power, double *own,
                         double *steps)
{
    double xx = 0, xy = 0;
    *own = (double)NAN;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        const double x = log(run->setting.setup.ranks), y = log(run->slowdown);
        if (!(run->slowdown > 0) || run->setting.converge != s->converge)
            continue;
        if (run->setting.setup.ranks == s->setup.ranks && run->setting.batch == s->batch)
            *own = run->slowdown;
        *steps = fmax(*steps, (double)run->timed);
        xx += x * x;
        xy += x * y;
    }
    *power = xy / xx;
    return xx > 0;
}

/* Slowdowns grow with the run: local steps had 1.03 in 200 steps and 1.75 in 4,000 (docs/results/plan.md). So a run is as far beyond its
 * pilot as it is longer. */
bool lt_plan_steps_of_arm(const plan *p, const plan_setting *s, plan_estimate *out)
{
    double power = 0, own = 1, steps = 0;
    const plan_candidate *exact = lt_plan_find_lossless(p, s);
    if (!exact || !isfinite(exact->steps.value))
        return false;
    if (!is_on_one_machine(&s->setup) && !fit_slowdown(&p->runs, s, &power, &own, &steps)) {
        if (p->request.pilot_share > 0 && is_beyond_pilots(p, exact))
            snprintf(out->why, sizeof out->why,
                     "not enough measurements: a pilot of %d steps says little of %.0f "
                     "(--extrapolate takes it)",
                     PLAN_ARM_STEPS, exact->steps.value);
        return false;
    }
    const double slowdown = isfinite(own) ? own : pow(s->setup.ranks, power);
    *out = exact->steps;
    out->value *= slowdown;
    out->trust = out->trust > PLAN_MODEL ? out->trust : PLAN_MODEL;
    out->beyond = steps > 0 ? fmax(out->beyond, out->value / steps) : out->beyond;
    snprintf(out->why, sizeof out->why, "%.4g times those of %.40s%s: %.100s", slowdown,
             exact->setting.label,
             is_on_one_machine(&s->setup) ? ""
             : isfinite(own)              ? " by a pilot"
                                          : " by pilots on other ranks",
             exact->steps.why);
    return true;
}
