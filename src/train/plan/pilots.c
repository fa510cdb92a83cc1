/* Chooses pilots, so that the choice of a candidate rests on measured steps and costs a small share of the run. ADR
 * 0048.
 *
 * First come pilots that compare convergence classes. Then, in rounds: a contender is a candidate that may still be
 * better than the best one. If the best one's step was never measured, it is tried; else the config with the smallest
 * lower bound, on the ranks where its pilot costs the least. After each pilot all candidates are estimated again. The
 * rounds end when no contender is left, or the budget cannot pay another pilot. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "planner.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- Convergence classes --- */

/* Smallest number of steps of a pilot. Of logistic regression pilots of 226 steps chose the wrong convergence class; those
 * of 400 and 800 predicted that Shampoo needs 0.45 and 0.38 of SGD's steps; it needed 0.1 (docs/results/plan.md). */
enum { CLASSES = 16, CLASS_STEPS = 400 };
/* Class pilots, with the profile, spend 1/16 of the budget, at most 1/4: a run may prove several times shorter (7 in
 * one case). */
enum { USUAL_SHARE = 16, LARGEST_SHARE = 4 };

/* Returns the index of a candidate's combination of --vary values, in mixed radix. */
static int choice_index(const plan *p, const plan_candidate *c)
{
    int at = 0;
    for (int i = p->request.axes - 1; i >= 0; i--)
        at = at * p->request.axis[i].values + c->choice[i];
    return at;
}

/* Returns the candidate of the class that the flags without --vary have, else the first combination of --vary. */
static const plan_candidate *find_class_of_flags(const plan *p, plan_candidate *const *of,
                                                 int count)
{
    plan_config own;
    const bool is_known = !lt_plan_read_config(&own, &p->trainer->line, 1, 1);
    const plan_candidate *first = of[0];
    for (int i = 0; i < count; i++) {
        if (is_known && of[i]->config.convergence == own.convergence)
            return of[i];
        if (choice_index(p, of[i]) < choice_index(p, first))
            first = of[i];
    }
    return first;
}

/* Finds the cheapest candidate of each class; 0: fewer than two classes, or runs already estimate one of them. */
static int find_cheapest_of_classes(const plan *p, plan_candidate **of)
{
    const plan_table *t = &p->table;
    int count = 0;
    for (plan_candidate *c = t->item; c < t->item + t->kept; c++) {
        if (c->steps.basis < PLAN_MODEL)
            return 0;
        if (!c->config.is_lossless || (double)c->config.batch > t->least_batch)
            continue;
        int k = 0;
        while (k < count && of[k]->config.convergence != c->config.convergence)
            k++;
        if (k == CLASSES)
            return 0;
        if (k == count || lt_plan_step_cost(c) < lt_plan_step_cost(of[k]))
            of[k] = c;
        count += k == count;
    }
    return count > 1 ? count : 0;
}

/* Keeps the classes without a pilot, in order. */
static int drop_classes_with_pilot(const plan *p, plan_candidate **of, int count)
{
    int left = 0;
    for (int i = 0; i < count; i++)
        if (!lt_plan_find_class_pilot(&p->runs, &of[i]->config))
            of[left++] = of[i];
    return left;
}

/* Returns how many steps of one pilot per class spend the rest of 1/share of the budget. */
static double affordable_steps(const plan *p, plan_candidate *const *of, int count, int share)
{
    double step = 0, budget = lt_plan_budget(p) / share - p->profile.paid - p->pilots.spent;
    for (int i = 0; i < count; i++) {
        const int ranks = of[i]->config.setup.ranks;
        budget -= ranks * lt_plan_startup_seconds(p, ranks);
        step += lt_plan_step_cost(of[i]);
    }
    return floor(budget / step);
}

/* Returns the steps of each class pilot; 0: even CLASS_STEPS cost more than the largest share of the budget. */
static double choose_class_pilot_steps(const plan *p, plan_candidate *const *of, int count)
{
    if (affordable_steps(p, of, count, LARGEST_SHARE) < CLASS_STEPS)
        return 0;
    return fmax(affordable_steps(p, of, count, USUAL_SHARE), CLASS_STEPS);
}

/* Runs a pilot of each class and chooses the loss at which they are compared, if the goal has a metric and the budget
 * allows it. */
static lt_status run_class_pilots(plan *p)
{
    plan_candidate *of[CLASSES];
    double most = HUGE_VAL;
    int count = *p->request.goal.metric ? find_cheapest_of_classes(p, of) : 0;
    if (!count)
        return LT_OK;
    const plan_config own = find_class_of_flags(p, of, count)->config;
    while (count) {
        most = fmin(most, choose_class_pilot_steps(p, of, count));
        if (!(most > 0))
            return LT_OK;
        LT_TRY(lt_plan_run_pilot(p, of[0], (int64_t)most, true));
        if (!lt_plan_find_class_pilot(&p->runs, &of[0]->config)) /* it failed */
            return LT_OK;
        LT_TRY(lt_plan_rank_candidates(p));
        count = drop_classes_with_pilot(p, of, find_cheapest_of_classes(p, of));
    }
    p->pilots.has_classes = lt_plan_choose_class_loss(p, &own);
    return LT_OK;
}

/* --- Lossy candidates --- */

static int64_t round_to_whole_periods(const plan_candidate *c, int64_t steps)
{
    const int64_t period = lt_plan_repeat_period(&c->config.setup);
    return PLAN_WARM_STEPS + period * ((steps + period - 1) / period);
}

/* Returns the lossless counterpart if it needs a pilot too; NULL if it has one, or is absent. */
static plan_candidate *lossless_without_pilot(const plan *p, const plan_candidate *c)
{
    const plan_candidate *found = lt_plan_find_lossless(p, &c->config);
    return lt_plan_find_lossless_pilot(p, &c->config) || !found
               ? NULL
               : &p->table.item[found - p->table.item];
}

/* Rank-seconds of a lossy pilot, and of its counterpart's if missing; *steps: the most of each in the budget. */
static double lossy_pilot_cost(const plan *p, const plan_candidate *c, int64_t *steps)
{
    const plan_candidate *lossless = lossless_without_pilot(p, c);
    double cost = 0;
    for (int64_t n = PLAN_LOSSY_STEPS; n >= PLAN_LOSSY_MIN_STEPS;
         n -= PLAN_LOSSY_STEPS - PLAN_LOSSY_MIN_STEPS) {
        cost =
            lt_plan_pilot_cost(p, c, round_to_whole_periods(c, n))
            + (lossless ? lt_plan_pilot_cost(p, lossless, round_to_whole_periods(lossless, n)) : 0);
        *steps = n;
        if (cost <= lt_plan_budget_left(p))
            break;
    }
    return cost;
}

/* Sets the slowdown of a lossy pilot, from the losses of its steps and of its lossless counterpart's. */
static lt_status compute_pilot_slowdown(plan *p, plan_run *run)
{
    plan_run lossy = {0}, lossless = {0};
    const plan_run *counterpart = lt_plan_find_lossless_pilot(p, &run->config);
    lt_status st = lt_plan_read_losses(&lossy, run->name);
    if (!st)
        st = lt_plan_read_losses(&lossless, counterpart->name);
    if (!st)
        run->slowdown = p->pilots.item[p->pilots.count - 1].slowdown =
            lt_plan_slowdown(&lossy, &lossless);
    lt_free(lossy.point);
    lt_free(lossless.point);
    return st;
}

static lt_status run_lossy_pilot(plan *p, plan_candidate *c)
{
    plan_candidate *lossless = lossless_without_pilot(p, c);
    int64_t steps;
    (void)lossy_pilot_cost(p, c, &steps);
    c->is_tried = true;
    if (lossless)
        LT_TRY(lt_plan_run_pilot(p, lossless, round_to_whole_periods(lossless, steps), false));
    if (!lt_plan_find_lossless_pilot(p, &c->config)) /* it failed */
        return LT_OK;
    const size_t before = p->runs.count;
    LT_TRY(lt_plan_run_pilot(p, c, round_to_whole_periods(c, steps), false));
    return p->runs.count > before ? compute_pilot_slowdown(p, &p->runs.run[before]) : LT_OK;
}

/* --- The next pilot --- */

static bool is_contender(const plan *p, const plan_candidate *c)
{
    const bool is_known = c->step.basis == PLAN_MEASURED
                          && (c->steps.basis != PLAN_UNKNOWN || !lt_plan_needs_lossy_pilot(p, c));
    return !c->is_tried && !is_known && lt_plan_may_be_best(p, c);
}

static double candidate_pilot_cost(const plan *p, const plan_candidate *c)
{
    int64_t steps;
    return lt_plan_needs_lossy_pilot(p, c) ? lossy_pilot_cost(p, c, &steps)
                                           : lt_plan_pilot_cost(p, c, 0);
}

/* Returns the contender with the cheapest pilot among candidates that differ in ranks only; it calibrates the model. */
static plan_candidate *find_cheapest_contender(const plan *p, const plan_candidate *like,
                                               double budget)
{
    plan_candidate *found = NULL;
    for (plan_candidate *c = p->table.item; c < p->table.item + p->table.kept; c++) {
        const double cost = candidate_pilot_cost(p, c);
        if (lt_plan_is_same_work(&c->config, &like->config) && is_contender(p, c) && cost <= budget
            && (!found || cost < candidate_pilot_cost(p, found)))
            found = c;
    }
    return found;
}

/* Returns NULL at the end, with the reason in pilots.why. */
static plan_candidate *choose_next_pilot(plan *p)
{
    const plan_table *t = &p->table;
    plan_pilots *all = &p->pilots;
    const double budget = lt_plan_budget_left(p);
    plan_candidate *found = NULL, *expensive = NULL;
    for (plan_candidate *c = t->item; c < t->item + t->kept; c++) {
        if (!is_contender(p, c))
            continue;
        if (candidate_pilot_cost(p, c) > budget)
            expensive = expensive ? expensive : c;
        else if (!found
                 || (found != t->item
                     && lt_plan_objective_bound(p, c) < lt_plan_objective_bound(p, found)))
            found = c;
    }
    if (found && all->count < PLAN_PILOTS)
        return found == t->item ? found : find_cheapest_contender(p, found, budget);
    if (found)
        snprintf(all->why, sizeof all->why, "the limit of %d pilots is reached", PLAN_PILOTS);
    else if (expensive)
        snprintf(all->why, sizeof all->why,
                 "budget: a pilot of %d ranks, %.300s, needs about %.3g rank-seconds, %.3g left",
                 expensive->config.setup.ranks, expensive->config.label,
                 candidate_pilot_cost(p, expensive), fmax(budget, 0));
    else
        snprintf(all->why, sizeof all->why,
                 "the best candidate leads by more than the uncertainty");
    return NULL;
}

/* --- All of them --- */

static lt_status make_pilot_folder(plan *p)
{
    plan_pilots *all = &p->pilots;
    const char *temp = getenv("TMPDIR");
    if (p->options.pilot_dir) {
        snprintf(all->folder, sizeof all->folder, "%s", p->options.pilot_dir);
        return lt_make_folders(all->folder);
    }
    snprintf(all->folder, sizeof all->folder, "%s/lather-pilots-XXXXXX", temp ? temp : "/tmp");
    return mkdtemp(all->folder) ? LT_OK
                                : lt_fail(LT_E_IO, "%s: %s; choose another folder by --pilot-dir",
                                          all->folder, strerror(errno));
}

/* Removes run folders unless --pilot-dir keeps them; logs of failed pilots remain. */
static void remove_pilot_folders(plan *p)
{
    if (p->options.pilot_dir)
        return;
    for (int i = 0; i < p->pilots.count; i++)
        if (!access(p->pilots.item[i].folder, F_OK)
            && lt_atomic_dir_remove(p->pilots.item[i].folder))
            return;
    (void)rmdir(p->pilots.folder);
}

static lt_status check_can_run_pilots(const plan *p)
{
    const char *kind = lt_comm_launched_kind();
    if (strcmp(kind, "self") != 0)
        return lt_fail(LT_E_ARG,
                       "--pilots: start plan as a single process, not as one of several ranks (%s)",
                       kind);
    if (lt_plan_run_cost(p->table.item) > 0)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--pilot-budget %s: the length of the run is unknown: %s; set --epochs or "
                   "--max-steps",
                   p->options.pilot_budget, p->table.item[0].steps.why);
}

lt_status lt_plan_run_all_pilots(plan *p)
{
    plan_candidate *next;
    LT_TRY(check_can_run_pilots(p));
    LT_TRY(make_pilot_folder(p));
    lt_status st = run_class_pilots(p);
    if (!st)
        st = lt_plan_rank_candidates(p);
    while (!st && (next = choose_next_pilot(p))) {
        st = lt_plan_needs_lossy_pilot(p, next) ? run_lossy_pilot(p, next)
                                                : lt_plan_run_pilot(p, next, 0, false);
        if (!st)
            st = lt_plan_rank_candidates(p);
    }
    remove_pilot_folders(p);
    p->pilots.racing = false;
    if (!st)
        st = lt_plan_rank_candidates(p);
    p->pilots.run = st ? 0 : lt_plan_run_cost(p->table.item);
    return st;
}
