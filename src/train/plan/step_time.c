/* How long a step is, as far as runs tell: measured, between measured ones, beyond them, or by the system model alone.
 *
 * Runs of the same work on other numbers of ranks correct the model in two steps. Its two parts, what a rank does by itself
 * and the exchange that shows, each get a factor: the smallest squares of relative errors of the runs, and factors near 1,
 * which runs of one kind cannot tell. A run on one rank so says nothing of exchanges, and runs that are nearly all exchange
 * little of the rest. What then is left of a run's seconds is interpolated between runs by the logarithm of ranks. No step is
 * shorter than its loader's. */

#include "planner.h"

#include "lather/detail/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A factor of 2 weighs as much as a run that is off by 5 %. */
static const double belief = 0.05;

bool lt_plan_is_same_number(double a, double b)
{
    return !(a > b) && !(a < b);
}

plan_estimate lt_plan_between(double value, double at, double least, double most, const char *why)
{
    plan_estimate e = {
        .value = value, .trust = PLAN_INTERPOLATED, .beyond = 1, .error = (double)NAN};
    snprintf(e.why, sizeof e.why, "%s", why);
    if (at > most || at < least) {
        e.trust = PLAN_EXTRAPOLATED;
        e.beyond = at > most ? at / most : least / at;
    }
    return e;
}

static bool is_same_exchange(const lt_cost_plan *a, const lt_cost_plan *b)
{
    return a->scheme == b->scheme && a->element_bytes == b->element_bytes
           && a->reducer == b->reducer && lt_plan_is_same_number(a->number, b->number)
           && a->every == b->every && a->divided == b->divided;
}

/* One rank exchanges nothing, so that its step says something of any exchange's. */
static bool is_of_exchange(const lt_plan_setup *a, const lt_plan_setup *b)
{
    return a->ranks == 1 || b->ranks == 1 || is_same_exchange(&a->exchange, &b->exchange);
}

static bool is_same_mesh(const lt_mesh_config *a, const lt_mesh_config *b)
{
    return a->depth == b->depth && a->rows == b->rows && a->columns == b->columns;
}

static bool is_same_update(const lt_plan_setup *a, const lt_plan_setup *b)
{
    return !strcmp(a->optim, b->optim) && a->frequency == b->frequency && a->block == b->block
           && a->shard_optimizer == b->shard_optimizer;
}

/* But for how many samples a rank has, which the model counts. */
static bool is_alike(const plan_setting *s, const plan_setting *other)
{
    const lt_plan_setup *a = &s->setup, *b = &other->setup;
    return s->amp == other->amp && !strcmp(s->device, other->device)
           && (s->threads == other->threads || s->real_threads == other->real_threads)
           && is_same_update(a, b) && !strcmp(s->state, other->state) && is_of_exchange(a, b)
           && is_same_mesh(&a->mesh, &b->mesh) && a->backup_workers == b->backup_workers
           && lt_plan_is_same_number(a->deadline, b->deadline);
}

bool lt_plan_is_same_work(const plan_setting *s, const plan_setting *other)
{
    const lt_plan_setup *a = &s->setup, *b = &other->setup;
    return is_alike(s, other) && a->batch_size == b->batch_size && a->grad_accum == b->grad_accum;
}

bool lt_plan_is_timed(const plan_run *run, const plan_setting *s)
{
    return run->seconds > 0 && lt_plan_is_same_work(&run->setting, s);
}

/* Runs of the same work. */
typedef struct timed {
    const plan_run *same, *below, *above; /* of as many ranks, the next fewer, the next more */
    double least, most;
} timed;

/* Nearer in ranks than the one so far, or as near and longer. */
static bool is_nearer(const plan_run *run, const plan_run *than, int ranks)
{
    if (!than)
        return true;
    const int a = abs(run->setting.setup.ranks - ranks), b = abs(than->setting.setup.ranks - ranks);
    return a < b || (a == b && run->timed > than->timed);
}

static timed find_timed(const plan_runs *runs, const plan_setting *s)
{
    const lt_plan_setup *u = &s->setup;
    timed t = {.least = HUGE_VAL};
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        const int ranks = run->setting.setup.ranks;
        if (!lt_plan_is_timed(run, s))
            continue;
        t.least = ranks < t.least ? ranks : t.least;
        t.most = ranks > t.most ? ranks : t.most;
        const bool is_same =
            ranks == u->ranks && run->setting.setup.ranks_per_node == u->ranks_per_node;
        const plan_run **of = is_same ? &t.same : ranks <= u->ranks ? &t.below : &t.above;
        if (is_nearer(run, *of, u->ranks))
            *of = run;
    }
    return t;
}

/* --- The model, corrected --- */

/* Of what a rank does by itself, and of the exchange that shows. */
typedef struct factors {
    double own, exchange;
} factors;

static double correct(factors f, plan_modelled m)
{
    return f.own * (m.seconds - m.exchange) + f.exchange * m.exchange;
}

/* Rows of (own, exchange) divided by a run's seconds, and two of the belief that both factors are 1. Both are 1 where one
 * would be 0: a step without that part would be predicted to take no time. */
static factors fit_factors(const plan_runs *runs, const plan_setting *s,
                           bool (*is_of)(const plan_setting *, const plan_setting *))
{
    factors f = {1, 1};
    double x[2], norm, *a = calloc((runs->count + 2) * 3, sizeof *a),
                       *y = a + (runs->count + 2) * 2;
    int rows = 0;
    if (!a)
        return f;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        if (!(run->seconds > 0) || !is_of(&run->setting, s))
            continue;
        a[2 * rows] = (run->modelled.seconds - run->modelled.exchange) / run->seconds;
        a[2 * rows + 1] = run->modelled.exchange / run->seconds;
        y[rows++] = 1;
    }
    for (int j = 0; j < 2; j++) {
        a[2 * rows + j] = belief;
        y[rows++] = belief;
    }
    if (!lt_nnls(x, &norm, a, rows, 2, y) && x[0] > 0 && x[1] > 0)
        f = (factors){x[0], x[1]};
    free(a);
    return f;
}

/* Measured by corrected seconds, between two runs by the logarithm of ranks. */
static double rest(const timed *t, factors f, int ranks)
{
    const plan_run *a = t->below ? t->below : t->above, *b = t->above ? t->above : t->below;
    const double x = log((double)a->setting.setup.ranks), y = log((double)b->setting.setup.ranks);
    const double share = y > x ? (log((double)ranks) - x) / (y - x) : 0;
    return exp((1 - share) * log(a->seconds / correct(f, a->modelled))
               + share * log(b->seconds / correct(f, b->modelled)));
}

/* Ernest's model of these runs at so many ranks; NaN: too few of them. */
double lt_plan_ernest(const plan_runs *runs, const plan_setting *s)
{
    lt_time_model model;
    size_t count = 0;
    lt_time_point *point = calloc(runs->count + 1, sizeof *point);
    for (size_t i = 0; i < runs->count && point; i++)
        if (lt_plan_is_timed(&runs->run[i], s))
            point[count++] =
                (lt_time_point){(double)runs->run[i].setting.setup.ranks, 1, runs->run[i].seconds};
    const bool ok = point && count && !lt_time_fit(&model, point, count);
    free(point);
    return ok ? lt_time_predict(&model, (double)s->setup.ranks, 1) : (double)NAN;
}

/* How many times beyond the ranks of runs of other batches, or beyond a rank's samples of them; 0: there are none. */
static double beyond_others(const plan_runs *runs, const plan_setting *s)
{
    const double at[] = {s->setup.ranks, (double)(s->setup.batch_size * s->setup.grad_accum)};
    double least[] = {HUGE_VAL, HUGE_VAL}, most[] = {0, 0};
    for (size_t i = 0; i < runs->count; i++) {
        const lt_plan_setup *of = &runs->run[i].setting.setup;
        const double value[] = {of->ranks, (double)(of->batch_size * of->grad_accum)};
        for (int j = 0; j < 2 && runs->run[i].seconds > 0 && is_alike(&runs->run[i].setting, s);
             j++) {
            least[j] = fmin(least[j], value[j]);
            most[j] = fmax(most[j], value[j]);
        }
    }
    const double above = fmax(at[0] / most[0], at[1] / most[1]);
    return most[0] > 0 ? fmax(1, fmax(above, fmax(least[0] / at[0], least[1] / at[1]))) : 0;
}

plan_estimate lt_plan_seconds(const plan_runs *runs, const plan_setting *s, plan_modelled modelled)
{
    const timed t = find_timed(runs, s);
    plan_estimate e = {
        .value = modelled.seconds, .trust = PLAN_MODEL, .beyond = 1, .error = (double)NAN};
    snprintf(e.why, sizeof e.why, "the system model alone");
    if (t.same) {
        e.value = t.same->seconds;
        e.trust = PLAN_MEASURED;
        e.error = fabs(modelled.seconds / e.value - 1);
        e.spread = t.same->spread;
        snprintf(e.why, sizeof e.why, "%.150s", t.same->name);
        return e;
    }
    if (!t.below && !t.above) {
        const double beyond = beyond_others(runs, s);
        if (beyond > 0) {
            e.value = fmax(correct(fit_factors(runs, s, is_alike), modelled), modelled.load);
            e.beyond = beyond;
            snprintf(e.why, sizeof e.why, "the system model, scaled to runs of other batches");
        }
        return e;
    }
    const factors f = fit_factors(runs, s, lt_plan_is_same_work);
    const double scaled = correct(f, modelled) * rest(&t, f, s->setup.ranks);
    return lt_plan_between(fmax(scaled, modelled.load), (double)s->setup.ranks, t.least, t.most,
                           "the system model, scaled to runs");
}
