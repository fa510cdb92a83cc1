/* Pilots of courses: candidates that differ in what makes the loss fall, the optimizer first of all. One of each, as cheap as
 * there is and all of as many steps, takes a small share of the budget; the loss as a power of the step, through the second
 * half of each, says how many steps the goal takes. Where the goal is no training loss, or one that the flags' own course is not
 * predicted to reach in the steps that the flags give, it is the loss that this course is predicted to have behind them. That is a long way beyond what was seen, so it is of use beside the
 * other courses alone, and needs all of them. Each pilot measures a step, by which the budget is known better: the next one may
 * be shorter, and as many steps of the others are read. ADR 0042. */

#include "planner.h"

#include <math.h>
#include <stdio.h>

/* --- A power --- */

void lt_plan_power_add(lt_power_fit *f, double step, double loss)
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

/* Of log(loss) = level + slope log(step); false: of too few points, or it does not fall. */
static bool solve(const lt_power_fit *f, double *slope, double *level)
{
    enum { LEAST = 3 };
    const double n = f->count, spread = n * f->xx - f->x * f->x;
    if (n < LEAST || !(spread > 0))
        return false;
    *slope = (n * f->xy - f->x * f->y) / spread;
    *level = (f->y - *slope * f->x) / n;
    return *slope < 0;
}

double lt_plan_power_steps(const lt_power_fit *f, double loss)
{
    double slope, level;
    return loss > 0 && solve(f, &slope, &level) ? exp((log(loss) - level) / slope) : (double)NAN;
}

static double power_loss(const lt_power_fit *f, double step)
{
    double slope, level;
    return step > 0 && solve(f, &slope, &level) ? exp(level + slope * log(step)) : (double)NAN;
}

/* --- What a pilot says --- */

const plan_run *lt_plan_find_course(const plan_runs *runs, const plan_setting *s)
{
    for (size_t i = 0; i < runs->count; i++) {
        const plan_setting *of = &runs->run[i].setting;
        if (runs->run[i].points && runs->run[i].is_pilot && of->converge == s->converge
            && of->is_exact == s->is_exact)
            return &runs->run[i];
    }
    return NULL;
}

/* Of the shortest of them: all courses are read alike. */
static double common_steps(const plan_runs *runs)
{
    double least = HUGE_VAL;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        if (run->points && run->is_pilot)
            least = fmin(least, run->point[run->points - 1].step);
    }
    return least;
}

/* Through the second half of its first `last` steps. */
static lt_power_fit fit_course(const plan_run *run, double last)
{
    lt_power_fit f = {0};
    for (size_t i = 0; i < run->points; i++)
        if (2 * run->point[i].step >= last && run->point[i].step <= last)
            lt_plan_power_add(&f, run->point[i].step, run->point[i].value);
    return f;
}

bool lt_plan_steps_of_course(const plan *p, const plan_setting *s, plan_estimate *out)
{
    const plan_pilots *all = &p->pilots;
    const plan_run *run = lt_plan_find_course(&p->runs, s);
    if (!run)
        return false;
    const double length = common_steps(&p->runs);
    const lt_power_fit f = fit_course(run, length);
    const double steps = lt_plan_power_steps(&f, all->course_loss);
    plan_estimate e;
    if (!isfinite(steps)
        || !lt_plan_steps_of_batch(&e, &p->runs, s, fmax(steps, length),
                                   (double)run->setting.batch))
        return false;
    *out = e;
    if (all->course_steps > 0)
        snprintf(out->why, sizeof out->why,
                 "to a training loss of %.4g (the flags' %.0f steps), a power of the step by a "
                 "pilot of %.0f steps%.50s",
                 all->course_loss, all->course_steps, length, e.why);
    else
        snprintf(out->why, sizeof out->why,
                 "loss as a power of the step, by a pilot of %.0f steps%.80s", length, e.why);
    return true;
}

/* --- What they are compared at --- */

/* The goal's training loss, where the flags' course is predicted to have it before its end; else that of its end. false: there is no
 * goal of training, and its pilot's loss does not fall. */
bool lt_plan_find_course_loss(plan *p, const plan_setting *own)
{
    plan_pilots *all = &p->pilots;
    const plan_run *run = lt_plan_find_course(&p->runs, own);
    const bool is_of_steps = lt_plan_is_of_steps(&p->request.goal);
    double end = (double)NAN;
    if (run) {
        const lt_power_fit f = fit_course(run, common_steps(&p->runs));
        end = power_loss(&f, lt_plan_flag_steps(own));
        all->course_run = (size_t)(run - p->runs.run);
    }
    if (is_of_steps && !(end > p->request.goal.value)) {
        all->course_loss = p->request.goal.value;
        return true;
    }
    all->course_steps = lt_plan_flag_steps(own);
    all->course_loss = end;
    return isfinite(end);
}
