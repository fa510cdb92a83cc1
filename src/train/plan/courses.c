/* Pilots of courses: candidates that differ in what makes the loss fall, the optimizer first of all. One of each, as cheap as
 * there is and all of as many steps, takes a small share of the budget; the loss as a power of the step, through the second
 * half of each, says how many steps the goal takes. Where the goal is no training loss, or one that the flags' own course is not
 * predicted to reach in the steps that the flags give, it is the loss that this course is predicted to have behind them. That is a long way beyond what was seen, so it is of use beside the
 * other courses alone, and needs all of them. Each pilot measures a step, by which the budget is known better: the next one may
 * be shorter, and as many steps of the others are read. ADR 0048. */

#include "planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of logistic regression 226 steps chose the wrong one, 400 said that Shampoo takes 0.45 of SGD's steps, 800 0.38; it took a tenth
 * (docs/results/plan.md). */
enum { COURSES = 16, LEAST_STEPS = 400 };
/* Of the budget, with the profile. The run may turn out several times shorter, 7 times where that was measured. */
enum { USUAL_SHARE = 16, LARGEST_SHARE = 4 };

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
    const plan_run *run = find_course(&p->runs, s);
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

/* Where a candidate stands in the order of --vary. */
static int order_of(const plan *p, const plan_candidate *c)
{
    int at = 0;
    for (int i = p->request.axes - 1; i >= 0; i--)
        at = at * p->request.axis[i].values + c->choice[i];
    return at;
}

/* The course of the flags as given, else the first of --vary. */
static const plan_candidate *find_own(const plan *p, plan_candidate *const *of, int count)
{
    plan_setting own;
    const bool is_known = !lt_plan_setting(&own, p->trainer, 1, 1);
    const plan_candidate *first = of[0];
    for (int i = 0; i < count; i++) {
        if (is_known && of[i]->setting.converge == own.converge)
            return of[i];
        if (order_of(p, of[i]) < order_of(p, first))
            first = of[i];
    }
    return first;
}

/* The goal's training loss, where the flags' course is predicted to have it before its end; else that of its end. false: there is no
 * goal of training, and its pilot's loss does not fall. */
static bool find_loss(plan *p, const plan_setting *own)
{
    plan_pilots *all = &p->pilots;
    const plan_run *run = find_course(&p->runs, own);
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

/* Those without a pilot, the first of all in front. */
static int drop_tried(const plan *p, plan_candidate **of, int count)
{
    int left = 0;
    for (int i = 0; i < count; i++)
        if (!find_course(&p->runs, &of[i]->setting))
            of[left++] = of[i];
    return left;
}

/* With what is left of a share of the budget. */
static double affordable_steps(const plan *p, plan_candidate *const *of, int count, int share)
{
    double step = 0, budget = lt_plan_budget(p) / share - p->profile.paid - p->pilots.spent;
    for (int i = 0; i < count; i++) {
        const int ranks = of[i]->setting.setup.ranks;
        budget -= ranks * lt_plan_start_seconds(p, ranks);
        step += step_cost(of[i]);
    }
    return floor(budget / step);
}

/* What the usual share pays, at least what is of use, unless that takes more than the largest; else 0. */
static double choose_steps(const plan *p, plan_candidate *const *of, int count)
{
    if (affordable_steps(p, of, count, LARGEST_SHARE) < LEAST_STEPS)
        return 0;
    return fmax(affordable_steps(p, of, count, USUAL_SHARE), LEAST_STEPS);
}

lt_status lt_plan_pilot_courses(plan *p)
{
    plan_candidate *of[COURSES];
    double most = HUGE_VAL;
    int count = *p->request.goal.metric ? find_courses(p, of) : 0;
    if (!count)
        return LT_OK;
    const plan_setting own = find_own(p, of, count)->setting;
    while (count) {
        most = fmin(most, choose_steps(p, of, count));
        if (!(most > 0))
            return LT_OK;
        LT_TRY(lt_plan_run_pilot(p, of[0], (int64_t)most, true));
        if (!find_course(&p->runs, &of[0]->setting))
            return LT_OK;
        LT_TRY(lt_plan_rank(p));
        count = drop_tried(p, of, find_courses(p, of));
    }
    p->pilots.has_courses = find_loss(p, &own);
    return LT_OK;
}
