/* Pilots of courses: candidates that differ in what makes the loss fall, the optimizer first of all. One of each, as cheap as
 * there is and all of as many steps, takes a quarter of the budget; the loss as a power of the step, through the last three
 * quarters of each, says how many steps the goal takes. That is a long way beyond what was seen, so it is of use beside the
 * other courses alone, and needs all of them. ADR 0048. */

#include "train/trainer/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COURSES = 16, LEAST_STEPS = 100 };
/* Of the budget, with the profile: the run may turn out several times shorter. */
enum { SHARE = 4 };

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

double lt_plan_power_steps(const lt_power_fit *f, double loss)
{
    enum { LEAST = 3 };
    const double n = f->count, spread = n * f->xx - f->x * f->x;
    if (n < LEAST || !(spread > 0) || !(loss > 0))
        return (double)NAN;
    const double slope = (n * f->xy - f->x * f->y) / spread;
    const double level = (f->y - slope * f->x) / n;
    return slope < 0 ? exp((log(loss) - level) / slope) : (double)NAN;
}

/* --- What a pilot says --- */

static const plan_run *find_course(const plan_runs *runs, const plan_setting *s)
{
    for (size_t i = 0; i < runs->count; i++) {
        const plan_setting *of = &runs->run[i].setting;
        if (runs->run[i].points && runs->run[i].is_pilot && of->converge == s->converge
            && of->is_exact == s->is_exact)
            return &runs->run[i];
    }
    return NULL;
}

static double course_steps(const plan_run *run, const plan_goal *g)
{
    lt_power_fit f = {0};
    const double last = run->point[run->points - 1].step;
    for (size_t i = 0; i < run->points; i++)
        if (4 * run->point[i].step >= last)
            lt_plan_power_add(&f, run->point[i].step, lt_plan_as_loss(g, run->point[i].value));
    return fmax(lt_plan_power_steps(&f, lt_plan_as_loss(g, g->value)), last);
}

bool lt_plan_steps_of_course(const plan_runs *runs, const plan_goal *g, const plan_setting *s,
                             plan_estimate *out)
{
    const plan_run *run = find_course(runs, s);
    const double steps = run ? course_steps(run, g) : (double)NAN;
    if (!isfinite(steps))
        return false;
    const double length = run->point[run->points - 1].step, batch = (double)run->setting.batch;
    plan_estimate e;
    if (!lt_plan_steps_of_batch(&e, runs, s, steps, batch))
        return false;
    *out = e;
    snprintf(out->why, sizeof out->why,
             "loss as a power of the step, by a pilot of %.0f steps%.80s", length, e.why);
    return true;
}

/* --- Which ones --- */

static double step_cost(const plan_candidate *c)
{
    return c->setting.setup.ranks * c->step.value;
}

/* The cheapest candidate of each course; 0: there are no two, or runs say what some of them takes. */
static int find_courses(const plan *p, plan_candidate **of)
{
    const plan_table *t = &p->table;
    int count = 0;
    for (size_t i = 0; i < t->kept; i++) {
        plan_candidate *c = &t->item[i];
        const plan_setting *s = &c->setting;
        if (c->steps.trust < PLAN_MODEL)
            return 0;
        if (!s->is_exact || (double)s->batch > t->least_batch)
            continue;
        int k = 0;
        while (k < count && of[k]->setting.converge != s->converge)
            k++;
        if (k == COURSES)
            return 0;
        if (k == count || step_cost(c) < step_cost(of[k]))
            of[k] = c;
        count += k == count;
    }
    return count > 1 ? count : 0;
}

/* With so many rank-seconds. */
static double affordable_steps(const plan *p, plan_candidate *const *of, int count, double budget)
{
    double step = 0;
    for (int i = 0; i < count; i++) {
        const int ranks = of[i]->setting.setup.ranks;
        budget -= ranks * lt_plan_start_seconds(p, ranks);
        step += step_cost(of[i]);
    }
    return floor(budget / step);
}

lt_status lt_plan_pilot_courses(plan *p)
{
    const plan_goal *g = &p->request.goal;
    plan_candidate *of[COURSES];
    const int count = g->lower && !strcmp(g->metric, "train_loss") ? find_courses(p, of) : 0;
    if (!count)
        return LT_OK;
    const double steps =
        affordable_steps(p, of, count, lt_plan_budget(p) / SHARE - p->profile.paid);
    bool all = steps >= LEAST_STEPS;
    for (int i = 0; i < count && all; i++) {
        LT_TRY(lt_plan_run_pilot(p, of[i], (int64_t)steps, true));
        all = find_course(&p->runs, &of[i]->setting);
    }
    p->pilots.has_courses = all;
    return LT_OK;
}
