/* Candidates: every choice of --vary on every number of ranks; what each costs; which fall, and why; the order. */

#include "planner.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CANDIDATES = 20000 };
static const double hour = 3600, gib = 0x1p30;

/* --- One candidate --- */

static void drop(plan_candidate *c, const char *format, ...) LT_PRINTF(2, 3);
static void drop(plan_candidate *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
}

static lt_cost_cluster cluster_of(const plan *p, const lt_plan_setup *u)
{
    lt_cost_cluster cluster = p->request.machine.cluster;
    cluster.per_node = u->ranks_per_node;
    cluster.nodes = u->ranks / u->ranks_per_node;
    for (size_t i = 0; i < PLAN_UNITS && u->exchange.reducer; i++)
        if (lt_cost_of_reducer(i) == u->exchange.reducer)
            cluster.unit = p->profile.unit[i];
    cluster.copy = p->profile.copy;
    return cluster;
}

/* By the system model. Errors: LT_E_ARG (nothing is known of its optimizer; those of lt_plan_predict()). */
static lt_status cost_of(const plan *p, const plan_setting *s, lt_plan_cost *out)
{
    const plan_optimizer *o = lt_plan_find_optimizer(&p->profile, s);
    if (!o)
        return lt_fail(LT_E_ARG,
                       "the profile has no optimizer %s of blocks of %lld%s%s, and Ernest's model "
                       "wants runs on %d numbers of ranks: there are %d",
                       s->setup.optim, (long long)s->block, *s->state ? ", " : "", s->state,
                       LT_TIME_TERMS, lt_plan_count_ranks(&p->runs, s, lt_plan_is_timed));
    const lt_plan_profile profile = lt_plan_profile_of(&p->profile, o);
    lt_plan_machine machine = p->request.machine;
    machine.cluster = cluster_of(p, &s->setup);
    if (p->options.one_machine)
        machine.slots /= machine.cluster.nodes;
    return lt_plan_predict(out, &profile, &machine, &s->setup);
}

/* Of an optimizer that the profile does not have, what Ernest's model says of runs with it. Memory is not known then; nor what
 * samples an update loses to a deadline. */
static bool predict_by_runs(const plan *p, const plan_setting *s, lt_plan_cost *out)
{
    if (lt_plan_find_optimizer(&p->profile, s) || s->setup.deadline > 0)
        return false;
    const double seconds = lt_plan_ernest(&p->runs, s);
    if (!isfinite(seconds))
        return false;
    *out = (lt_plan_cost){
        .seconds = seconds, .samples = (double)s->batch, .memory = (double)NAN, .fits = true};
    return true;
}

static bool has_verdict(const lt_plan_setup *u)
{
    return u->exchange.scheme == LT_COST_REDUCER && u->exchange.reducer->verdict;
}

/* Whether what divides the model or leaves out gradients moves less. */
static lt_status ask_verdict(const plan *p, plan_candidate *c)
{
    const lt_plan_setup *u = &c->setting.setup;
    const lt_plan_profile *f = &p->profile.base;
    const lt_cost_cluster cluster = cluster_of(p, u);
    int64_t elements = 0;
    for (size_t i = 0; i < f->buckets; i++)
        elements += f->bucket[i].elements;
    if (u->mesh.data && f->hidden > 0)
        return lt_plan_mesh_verdict(&c->verdict, &u->mesh,
                                    (double)(u->batch_size * u->grad_accum) * f->tokens, f->hidden);
    if (has_verdict(u))
        return u->exchange.reducer->verdict(&c->verdict, &cluster, elements, u->exchange.number,
                                            u->exchange.element_bytes);
    return LT_OK;
}

/* The set-up without what divides the model or leaves out gradients, of as many samples on as many ranks, means as --allreduce
 * auto makes them. false: samples of a copy are no multiple of its ranks, or top-k has nothing to leave out within a node. */
static bool find_plain(const plan_setting *s, plan_setting *plain)
{
    *plain = *s;
    lt_plan_setup *u = &plain->setup;
    lt_cost_scheme *scheme = &u->exchange.scheme;
    const int copies = u->mesh.data, ranks = copies ? u->ranks / copies : 1;
    const bool has_nodes = u->ranks > u->ranks_per_node;
    if (*scheme == LT_COST_FLAT || has_verdict(u))
        *scheme = has_nodes && u->ranks_per_node > 1 && !u->backup_workers ? LT_COST_TWO_LEVEL
                                                                           : LT_COST_FLAT;
    if (!copies)
        return has_nodes;
    u->batch_size /= ranks;
    u->mesh = (lt_mesh_config){0};
    return s->setup.batch_size % ranks == 0;
}

/* What moves more than what it replaces falls where that fits into memory and is no slower: tensor parallelism within a node
 * may move more over better links. ADR 0042. A step that was measured speaks for itself. */
static void refuse(const plan *p, plan_candidate *c)
{
    const double rounding = 1e-9;
    plan_setting plain;
    lt_plan_cost cost;
    if (!*c->verdict.why || c->verdict.pays || c->step.trust == PLAN_MEASURED
        || !find_plain(&c->setting, &plain) || cost_of(p, &plain, &cost) || !cost.fits
        || cost.seconds > c->cost.seconds * (1 + rounding))
        return;
    drop(c, "%s; what it replaces is predicted to take %.3g s a step, this %.3g s", c->verdict.why,
         cost.seconds, c->cost.seconds);
}

/* Steps of a run that only its flags end. */
static plan_estimate steps_of_flags(const plan_setting *s)
{
    plan_estimate e = {
        .value = lt_plan_flag_steps(s), .trust = PLAN_MEASURED, .beyond = 1, .error = (double)NAN};
    snprintf(e.why, sizeof e.why, "as the flags say");
    return e;
}

/* Steps to the goal's metric. With pilots, what those of courses say, else what the flags give the goal. */
static plan_estimate steps_to_goal(const plan *p, const plan_setting *s)
{
    const plan_table *t = &p->table;
    plan_estimate of_batch, e = lt_plan_steps(&p->runs, &p->request.goal, s);
    if (e.trust == PLAN_UNKNOWN && !s->is_exact)
        (void)lt_plan_steps_of_arm(p, s, &e);
    else if (e.trust == PLAN_UNKNOWN && p->pilots.has_courses)
        (void)lt_plan_steps_of_course(p, s, &e);
    else if (e.trust == PLAN_UNKNOWN && p->request.pilot_share > 0
             && lt_plan_steps_of_batch(&of_batch, &p->runs, s, t->least_steps, t->least_batch)) {
        e = of_batch;
        snprintf(e.why, sizeof e.why, "as the flags say, of batch %g%.100s", t->least_batch,
                 of_batch.why);
    }
    return e;
}

/* Of Ernest's model by the runs that there are now, where that is all that is known. */
static plan_estimate step_of(const plan *p, plan_candidate *c)
{
    const plan_setting *s = &c->setting;
    if (c->is_by_runs)
        (void)predict_by_runs(p, s, &c->cost);
    plan_estimate e = lt_plan_seconds(
        &p->runs, s, (plan_modelled){c->cost.seconds, c->cost.exposed, c->cost.load});
    if (c->is_by_runs && e.trust != PLAN_MEASURED)
        snprintf(e.why, sizeof e.why,
                 "Ernest's model of runs alone, as the profile does not have %s", s->setup.optim);
    return e;
}

static void estimate(const plan *p, plan_candidate *c)
{
    const plan_goal *g = &p->request.goal;
    const plan_setting *s = &c->setting;
    c->step = step_of(p, c);
    c->ernest = lt_plan_ernest(&p->runs, s);
    c->steps = *g->metric ? steps_to_goal(p, s) : steps_of_flags(s);
    c->epoch = c->step.value * (double)s->epoch_steps;
    c->seconds = c->step.value * c->steps.value;
    c->price =
        p->options.price > 0 ? p->options.price * s->setup.ranks * c->seconds / hour : (double)NAN;
}

static void check_candidate(const plan *p, plan_candidate *c)
{
    const plan_goal *g = &p->request.goal;
    const double beyond = /* while pilots race, a step may be measured yet */
        fmax(p->pilots.racing ? 1 : c->step.beyond, c->steps.beyond);
    *c->why = 0;
    if (!c->cost.fits)
        drop(c, "a rank needs %.3g GiB, and has %.3g", c->cost.memory / gib,
             p->request.machine.memory / gib);
    else if (beyond > PLAN_BEYOND && !p->options.extrapolate)
        drop(c, "%.3g times what runs measured, more than %d: --extrapolate takes it all the same",
             beyond, PLAN_BEYOND);
    else if (p->runs.most && p->pilots.count && !p->pilots.racing && !p->options.extrapolate
             && c->setting.setup.ranks > PLAN_BEYOND * p->runs.most)
        drop(c, "more than twice the %d ranks that runs and pilots had: --extrapolate takes it",
             p->runs.most);
    else if (g->deadline > 0 && c->seconds > g->deadline)
        drop(c, "takes %.3g h, and the deadline is %.3g h", c->seconds / hour, g->deadline / hour);
    else
        refuse(p, c);
}

static lt_status check_batch(const plan *p, const plan_setting *s)
{
    const int64_t wanted = p->options.global_batch;
    if (!wanted || s->batch == wanted)
        return LT_OK;
    return lt_fail(LT_E_ARG, "--global-batch %lld: its ranks have %lld together", (long long)wanted,
                   (long long)s->batch);
}

/* Training drops what is no whole update, and refuses data that are less than one. */
static lt_status count_epoch(const plan *p, plan_setting *s, const lt_trainer *t)
{
    const int copies = s->setup.mesh.data ? s->setup.mesh.data : s->setup.ranks;
    int64_t batches;
    LT_TRY(lt_trainer_count_batches(&batches, t, (int64_t)p->profile.samples, copies));
    s->epoch_steps = batches / s->setup.grad_accum;
    return LT_OK;
}

/* What fails here falls, with the reason. */
static void fill(const plan *p, plan_candidate *c, int ranks)
{
    lt_trainer t = {0};
    lt_status st = lt_plan_start(p, c->choice, &t);
    if (!st)
        st = lt_plan_setting(&c->setting, &t, ranks, p->request.per_node);
    if (!st)
        st = lt_plan_check_ranks(&c->setting, &t);
    if (!st)
        st = count_epoch(p, &c->setting, &t);
    c->setting.setup.ranks = ranks;
    if (!st)
        st = check_batch(p, &c->setting);
    if (!st) {
        c->is_by_runs = predict_by_runs(p, &c->setting, &c->cost);
        st = c->is_by_runs ? LT_OK : cost_of(p, &c->setting, &c->cost);
    }
    if (!st)
        st = ask_verdict(p, c);
    if (st)
        drop(c, "%s", lt_error_message());
    lt_trainer_close(&t);
    c->is_possible = !st;
}

/* --- All of them --- */

static void model_runs(plan *p)
{
    lt_plan_cost cost;
    for (size_t i = 0; i < p->runs.count; i++) {
        plan_run *run = &p->runs.run[i];
        const bool is_known = !cost_of(p, &run->setting, &cost) && cost.seconds > 0;
        run->modelled = is_known ? (plan_modelled){cost.seconds, cost.exposed, cost.load}
                                 : (plan_modelled){run->seconds, 0, 0};
    }
}

bool lt_plan_advance(const plan_request *r, int *choice)
{
    for (int i = 0; i < r->axes; i++) {
        if (++choice[i] < r->axis[i].values)
            return true;
        choice[i] = 0;
    }
    return false;
}

static bool is_same(const plan_candidate *a, const plan_candidate *b)
{
    const lt_plan_setup *x = &a->setting.setup, *y = &b->setting.setup;
    return x->ranks == y->ranks && x->batch_size == y->batch_size && x->grad_accum == y->grad_accum
           && !strcmp(a->setting.label, b->setting.label)
           && a->setting.converge == b->setting.converge;
}

/* Two choices of flags may be one setting: allreduce=auto is two-level on several machines. */
static bool is_there(const plan_table *t, const plan_candidate *c)
{
    for (size_t i = 0; i < t->count && !*c->why; i++)
        if (is_same(&t->item[i], c) && !*t->item[i].why)
            return true;
    return false;
}

static lt_status enumerate(plan *p)
{
    const plan_request *r = &p->request;
    plan_table *t = &p->table;
    double count = r->rank_counts;
    for (int i = 0; i < r->axes; i++)
        count *= r->axis[i].values;
    if (count > MOST_CANDIDATES)
        return lt_fail(LT_E_ARG, "--vary: %.0f candidates, at most %d are looked at", count,
                       MOST_CANDIDATES);
    t->item = calloc((size_t)count + 1, sizeof *t->item);
    if (!t->item)
        return lt_fail(LT_E_NOMEM, "no memory for %.0f candidates", count);
    for (int k = 0; k < r->rank_counts; k++) {
        int choice[PLAN_AXES] = {0};
        do {
            plan_candidate *c = &t->item[t->count];
            *c = (plan_candidate){0};
            memcpy(c->choice, choice, sizeof choice);
            fill(p, c, r->ranks[k]);
            t->count += !is_there(t, c);
        } while (lt_plan_advance(r, choice));
    }
    return LT_OK;
}

/* --- The order --- */

double lt_plan_key(const plan *p, const plan_candidate *c)
{
    const double seconds = isfinite(c->seconds) ? c->seconds : c->epoch;
    return p->request.goal.deadline > 0 ? seconds * c->setting.setup.ranks : seconds;
}

static int compare(const void *x, const void *y, void *p)
{
    const plan_candidate *a = x, *b = y;
    if (!*a->why != !*b->why)
        return *a->why ? 1 : -1;
    if (isfinite(a->seconds) != isfinite(b->seconds))
        return isfinite(a->seconds) ? -1 : 1;
    if (!isfinite(a->seconds) && a->setting.is_exact != b->setting.is_exact)
        return a->setting.is_exact ? -1
                                   : 1; /* an epoch that loses something is not worth as much */
    const double first = lt_plan_key(p, a), second = lt_plan_key(p, b);
    if (first > second || first < second)
        return first > second ? 1 : -1;
    return a->setting.setup.ranks - b->setting.setup.ranks;
}

int lt_plan_reason(const plan_table *t, size_t i, char *text, size_t size)
{
    const plan_setting *s = &t->item[i].setting;
    char batch[PLAN_NAME] = "";
    int times = 0;
    for (size_t k = t->kept; k < t->count; k++)
        if (!strcmp(t->item[k].why, t->item[i].why) && times++ == 0 && k != i)
            return 0;
    if (s->batch)
        snprintf(batch, sizeof batch, ", batch %lld", (long long)s->batch);
    return snprintf(text, size, "%d: %d ranks%s%s%s%s: %s", times, s->setup.ranks, batch,
                    *s->label ? ", " : "", s->label, times > 1 ? " and others" : "",
                    t->item[i].why);
}

/* Each reason once, with how often it was given; those that a message does not hold are counted. */
static lt_status none_left(const plan_table *t)
{
    enum { MOST = 900 }; /* bytes; a message has 1,024 */
    char text[MOST] = "", reason[PLAN_REASON];
    size_t at = 0;
    int more = 0;
    for (size_t i = 0; i < t->count; i++) {
        const int bytes = lt_plan_reason(t, i, reason, sizeof reason);
        if (bytes && (more || at + strlen("; ") + (size_t)bytes >= sizeof text))
            more++;
        else if (bytes)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at ? "; " : "", reason);
    }
    if (more)
        snprintf(reason, sizeof reason, "%sand %d other reasons", at ? "; " : "", more);
    return lt_fail(LT_E_ARG, "no candidate is left of %zu: %s%s", t->count, text,
                   more ? reason : "");
}

/* What rests on runs says so only near them. */
static lt_status check_range(const plan *p)
{
    const plan_request *r = &p->request;
    const int most = r->ranks[r->rank_counts - 1];
    if (!p->runs.count || p->options.extrapolate || p->request.pilot_share > 0
        || most <= 2 * p->runs.most)
        return LT_OK;
    return lt_fail(
        LT_E_ARG,
        "--ranks %d: more than twice the %d ranks that runs of --from had; --extrapolate "
        "takes them, and says so",
        most, p->runs.most);
}

static lt_status check_goal(const plan *p)
{
    const plan_goal *g = &p->request.goal;
    const training_options *o = &p->trainer->args.training;
    if (*g->metric || o->epochs > 0 || o->max_steps > 0)
        return LT_OK;
    return lt_fail(LT_E_ARG, "--goal deadline: of what? a metric, --epochs or --max-steps says it");
}

/* By the runs that there are now. */
static void estimate_all(plan *p)
{
    plan_table *t = &p->table;
    model_runs(p);
    t->least_batch = HUGE_VAL;
    for (size_t i = 0; i < t->count; i++)
        if (t->item[i].is_possible && (double)t->item[i].setting.batch < t->least_batch) {
            t->least_batch = (double)t->item[i].setting.batch;
            t->least_steps = lt_plan_flag_steps(&t->item[i].setting);
        }
    for (int exact = 1; exact >= 0; exact--) /* the others' steps may be some of theirs */
        for (size_t i = 0; i < t->count; i++)
            if (t->item[i].is_possible && t->item[i].setting.is_exact == exact) {
                estimate(p, &t->item[i]);
                check_candidate(p, &t->item[i]);
            }
}

lt_status lt_plan_rank(plan *p)
{
    plan_table *t = &p->table;
    estimate_all(p);
    qsort_r(t->item, t->count, sizeof *t->item, compare, p);
    t->kept = 0;
    while (t->kept < t->count && !*t->item[t->kept].why)
        t->kept++;
    t->is_known = t->kept && isfinite(t->item[0].seconds);
    return t->kept ? LT_OK : none_left(t);
}

lt_status lt_plan_choose(plan *p)
{
    LT_TRY(check_goal(p));
    LT_TRY(check_range(p));
    LT_TRY(enumerate(p));
    return lt_plan_rank(p);
}
