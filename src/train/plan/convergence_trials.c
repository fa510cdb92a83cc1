/* Pilots that compare convergence classes: candidates that differ in the optimizer, or in another flag that changes how
 * the loss falls with steps. Each class gets one pilot, of its cheapest candidate, all with equally many steps, for a
 * small share of the budget. A power law, loss = a step^-b through the second half of each pilot, predicts the steps to
 * the goal. If the goal is no training loss, or one that the flags' own class is not predicted to reach within its
 * steps, classes are compared at the training loss predicted at the end of the flags' own run. That extrapolates so far
 * that it only serves to compare classes, and needs a pilot of each. A pilot also measures a step, which changes the
 * budget: the next one may be shorter, and only that many steps of the others are read. ADR 0042. */

#include "planner.h"

#include <math.h>
#include <stdio.h>

/* --- The power law --- */

void lt_plan_add_power_law_point(lt_power_fit *f, double step, double loss)
{
    if (!(step > 0) || !(loss > 0))
        return;
    const double x = log(step), y = log(loss);
    f->count++;
    f->x += x;
    f->y += y;
    f->xx += x * x;
    f->xy += x * y;
}

/* Fits log(loss) = level + slope log(step); false: too few points, or the loss does not fall. */
static bool fit_line(const lt_power_fit *f, double *slope, double *level)
{
    enum { LEAST = 3 };
    const double n = f->count, spread = n * f->xx - f->x * f->x;
    if (n < LEAST || !(spread > 0))
        return false;
    *slope = (n * f->xy - f->x * f->y) / spread;
    *level = (f->y - *slope * f->x) / n;
    return *slope < 0;
}

double lt_plan_power_law_steps(const lt_power_fit *f, double loss)
{
    double slope, level;
    return loss > 0 && fit_line(f, &slope, &level) ? exp((log(loss) - level) / slope) : (double)NAN;
}

static double power_law_loss(const lt_power_fit *f, double step)
{
    double slope, level;
    return step > 0 && fit_line(f, &slope, &level) ? exp(level + slope * log(step)) : (double)NAN;
}

/* --- Reading a pilot --- */

const plan_run *lt_plan_find_class_pilot(const plan_runs *runs, const plan_config *c)
{
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        if (run->points && run->is_pilot && run->config.convergence == c->convergence
            && run->config.is_lossless == c->is_lossless)
            return run;
    }
    return NULL;
}

/* Returns the steps of the shortest pilot of a class: only that many are read of the others. */
static double shortest_pilot_steps(const plan_runs *runs)
{
    double least = HUGE_VAL;
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        if (run->points && run->is_pilot)
            least = fmin(least, run->point[run->points - 1].step);
    }
    return least;
}

/* Fits a power law to a pilot's losses in the second half of its first `last` steps. */
static lt_power_fit fit_power_law_to_pilot(const plan_run *run, double last)
{
    lt_power_fit f = {0};
    for (size_t i = 0; i < run->points; i++)
        if (2 * run->point[i].step >= last && run->point[i].step <= last)
            lt_plan_add_power_law_point(&f, run->point[i].step, run->point[i].value);
    return f;
}

bool lt_plan_estimate_class_steps(const plan *p, const plan_config *c, plan_estimate *out)
{
    const plan_pilots *all = &p->pilots;
    const plan_run *run = lt_plan_find_class_pilot(&p->runs, c);
    if (!run)
        return false;
    const double length = shortest_pilot_steps(&p->runs);
    const lt_power_fit f = fit_power_law_to_pilot(run, length);
    const double steps = lt_plan_power_law_steps(&f, all->class_loss);
    plan_estimate e;
    if (!isfinite(steps)
        || !lt_plan_convert_steps_to_batch(&e, &p->runs, c, fmax(steps, length),
                                           (double)run->config.batch))
        return false;
    *out = e;
    if (all->class_steps > 0)
        snprintf(out->why, sizeof out->why,
                 "to a training loss of %.4g (the flags' %.0f steps), power law by a pilot of "
                 "%.0f steps%.50s",
                 all->class_loss, all->class_steps, length, e.why);
    else
        snprintf(out->why, sizeof out->why, "power law of the loss by a pilot of %.0f steps%.80s",
                 length, e.why);
    return true;
}

bool lt_plan_choose_class_loss(plan *p, const plan_config *own)
{
    plan_pilots *all = &p->pilots;
    const plan_run *run = lt_plan_find_class_pilot(&p->runs, own);
    double end = (double)NAN;
    if (run) {
        const lt_power_fit f = fit_power_law_to_pilot(run, shortest_pilot_steps(&p->runs));
        end = power_law_loss(&f, lt_plan_steps_from_flags(own));
        all->class_run = (size_t)(run - p->runs.run);
    }
    if (lt_plan_is_step_metric(&p->request.goal) && !(end > p->request.goal.value)) {
        all->class_loss = p->request.goal.value;
        return true;
    }
    all->class_steps = lt_plan_steps_from_flags(own);
    all->class_loss = end;
    return isfinite(end);
}
