/* Pilots, so that a choice rests on measured steps and costs a small share of the run. ADR 0042.
 *
 * A round: of all candidates whose seconds may still be below the best one's (contenders), the best itself if its step was
 * never measured, else the setting with the smallest possible seconds, on the ranks where its pilot costs the least. Then all is
 * estimated anew. The rounds end when no contender is left, or the budget is too small for one. In front of them: a pilot of each
 * course. */

#include "base/atomic_dir.h"
#include "planner.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- Of courses --- */

/* Of logistic regression 226 steps chose the wrong one, 400 said that Shampoo takes 0.45 of SGD's steps, 800 0.38; it took a tenth
 * (docs/results/plan.md). */
enum { COURSES = 16, COURSE_STEPS = 400 };
/* Of the budget, with the profile. The run may turn out several times shorter, 7 times where that was measured. */
enum { USUAL_SHARE = 16, LARGEST_SHARE = 4 };

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
        if (!lt_plan_find_course(&p->runs, &of[i]->setting))
            of[left++] = of[i];
    return left;
}

/* Spends the rest of a share of the budget. */
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
    if (affordable_steps(p, of, count, LARGEST_SHARE) < COURSE_STEPS)
        return 0;
    return fmax(affordable_steps(p, of, count, USUAL_SHARE), COURSE_STEPS);
}

/* One of each course, where the goal has a metric, candidates have several courses, no run says what one takes, and a quarter of
 * the budget is enough for COURSE_STEPS of each; and the training loss at which they are compared. */
static lt_status pilot_courses(plan *p)
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
        if (!lt_plan_find_course(&p->runs, &of[0]->setting))
            return LT_OK;
        LT_TRY(lt_plan_rank(p));
        count = drop_tried(p, of, find_courses(p, of));
    }
    p->pilots.has_courses = lt_plan_find_course_loss(p, &own);
    return LT_OK;
}

/* --- Of what loses or delays gradients --- */

/* Whole rounds of roots and of local steps. */
static int64_t whole(const plan_candidate *c, int64_t steps)
{
    const int64_t round = lt_plan_period(&c->setting.setup);
    return PLAN_WARM_STEPS + round * ((steps + round - 1) / round);
}

/* Rank-seconds of its pilot, and of that of the course that loses nothing where there is none yet; steps: of each. */
static double arm_cost(const plan *p, const plan_candidate *c, int64_t *steps)
{
    const plan_candidate *exact =
        lt_plan_find_lossless_pilot(p, &c->setting) ? NULL : lt_plan_find_lossless(p, &c->setting);
    double cost = 0;
    for (int64_t n = PLAN_ARM_STEPS; n >= PLAN_ARM_LEAST; n -= PLAN_ARM_STEPS - PLAN_ARM_LEAST) {
        cost = lt_plan_pilot_cost(p, c, whole(c, n))
               + (exact ? lt_plan_pilot_cost(p, exact, whole(exact, n)) : 0);
        *steps = n;
        if (cost <= lt_plan_budget_left(p))
            break;
    }
    return cost;
}

/* Both with the losses of their steps. */
static lt_status compare(plan *p, plan_run *arm)
{
    plan_run lossy = {0}, lossless = {0};
    const plan_run *exact = lt_plan_find_lossless_pilot(p, &arm->setting);
    lt_status st = lt_plan_read_losses(&lossy, arm->name);
    if (!st)
        st = lt_plan_read_losses(&lossless, exact->name);
    if (!st)
        arm->slowdown = p->pilots.item[p->pilots.count - 1].slowdown =
            lt_plan_slowdown(&lossy, &lossless);
    free(lossy.point);
    free(lossless.point);
    return st;
}

static lt_status pilot_arm(plan *p, plan_candidate *c)
{
    plan_candidate *exact = NULL;
    int64_t steps;
    (void)arm_cost(p, c, &steps);
    const plan_candidate *lossless = lt_plan_find_lossless(p, &c->setting);
    if (!lt_plan_find_lossless_pilot(p, &c->setting) && lossless)
        exact = &p->table.item[lossless - p->table.item];
    c->is_tried = true;
    if (exact)
        LT_TRY(lt_plan_run_pilot(p, exact, whole(exact, steps), false));
    if (!lt_plan_find_lossless_pilot(p, &c->setting)) /* it failed */
        return LT_OK;
    const size_t before = p->runs.count;
    LT_TRY(lt_plan_run_pilot(p, c, whole(c, steps), false));
    return p->runs.count > before ? compare(p, &p->runs.run[before]) : LT_OK;
}

/* --- Which one --- */

/* No pilot of it was made, and it may be better than the best. */
static bool is_contender(const plan *p, const plan_candidate *c)
{
    const bool is_known =
        c->step.trust == PLAN_MEASURED && (c->steps.trust != PLAN_UNKNOWN || !lt_plan_is_arm(p, c));
    return !c->is_tried && !is_known && lt_plan_may_be_best(p, c);
}

static double cost_of(const plan *p, const plan_candidate *c)
{
    int64_t steps;
    return lt_plan_is_arm(p, c) ? arm_cost(p, c, &steps) : lt_plan_pilot_cost(p, c, 0);
}

/* The ranks of a setting on which a pilot costs the least: the system model is scaled by it for the others. */
static plan_candidate *cheapest(const plan *p, const plan_candidate *like, double budget)
{
    plan_candidate *found = NULL;
    for (size_t i = 0; i < p->table.kept; i++) {
        plan_candidate *c = &p->table.item[i];
        const double cost = cost_of(p, c);
        if (lt_plan_is_same_work(&c->setting, &like->setting) && is_contender(p, c)
            && cost <= budget && (!found || cost < cost_of(p, found)))
            found = c;
    }
    return found;
}

static void stop(plan *p, const char *format, ...) LT_PRINTF(2, 3);
static void stop(plan *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(p->pilots.why, sizeof p->pilots.why, format, args);
    va_end(args);
}

/* NULL: there is none, and why. */
static plan_candidate *next_pilot(plan *p)
{
    const plan_table *t = &p->table;
    const double budget = lt_plan_budget_left(p);
    plan_candidate *found = NULL, *dear = NULL;
    for (size_t i = 0; i < t->kept; i++) {
        plan_candidate *c = &t->item[i];
        if (!is_contender(p, c))
            continue;
        if (cost_of(p, c) > budget)
            dear = dear ? dear : c;
        else if (!found
                 || (found != t->item && lt_plan_least_key(p, c) < lt_plan_least_key(p, found)))
            found = c;
    }
    if (found && p->pilots.count < PLAN_PILOTS)
        return found == t->item ? found : cheapest(p, found, budget);
    if (found)
        stop(p, "there were %d", PLAN_PILOTS);
    else if (dear)
        stop(
            p,
            "the budget: one of %d ranks, %s, would take about %.3g rank-seconds, and %.3g are left",
            dear->setting.setup.ranks, dear->setting.label, cost_of(p, dear), fmax(budget, 0));
    else
        stop(p, "the best one leads by more than what is not known");
    return NULL;
}

/* --- All of them --- */

static lt_status open_folder(plan *p)
{
    plan_pilots *all = &p->pilots;
    const char *temp = getenv("TMPDIR");
    if (p->options.pilot_dir) {
        snprintf(all->folder, sizeof all->folder, "%s", p->options.pilot_dir);
        return lt_commit_make_folders(all->folder);
    }
    snprintf(all->folder, sizeof all->folder, "%s/lather-pilots-XXXXXX", temp ? temp : "/tmp");
    return mkdtemp(all->folder) ? LT_OK
                                : lt_fail(LT_E_IO, "%s: %s; --pilot-dir says another place",
                                          all->folder, strerror(errno));
}

/* What is not asked for; logs of pilots that failed stay. */
static void clean(plan *p)
{
    for (int i = 0; i < p->pilots.count && !p->options.pilot_dir; i++)
        if (!access(p->pilots.item[i].folder, F_OK) && lt_commit_remove(p->pilots.item[i].folder))
            return;
    if (!p->options.pilot_dir)
        (void)rmdir(p->pilots.folder);
}

static lt_status check(const plan *p)
{
    const char *kind = lt_comm_launched_kind();
    if (strcmp(kind, "self") != 0)
        return lt_fail(
            LT_E_ARG,
            "--pilots: this is one of several ranks already (%s); plan starts them itself", kind);
    if (lt_plan_run_cost(p->table.item) > 0)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--pilot-budget %s: of how long a run? %s; --epochs or --max-steps says it",
                   p->options.pilot_budget, p->table.item[0].steps.why);
}

lt_status lt_plan_make_pilots(plan *p)
{
    plan_candidate *next;
    LT_TRY(check(p));
    LT_TRY(open_folder(p));
    lt_status st = pilot_courses(p);
    if (!st)
        st = lt_plan_rank(p);
    while (!st && (next = next_pilot(p))) {
        st = lt_plan_is_arm(p, next) ? pilot_arm(p, next) : lt_plan_run_pilot(p, next, 0, false);
        if (!st)
            st = lt_plan_rank(p);
    }
    clean(p);
    p->pilots.racing = false;
    if (!st)
        st = lt_plan_rank(p);
    p->pilots.run = st ? 0 : lt_plan_run_cost(p->table.item);
    return st;
}
