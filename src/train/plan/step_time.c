/* Estimates the seconds of a step: measured, interpolated between runs, extrapolated, or by the system model alone.
 *
 * Runs of the same work on other numbers of ranks correct the model in two steps. Its two parts, a rank's own work and
 * the exposed exchange, each get a factor, fitted to the runs by relative least squares with a prior of 1 for both, as
 * runs of one kind cannot tell them apart: a run on one rank has no exchange, and runs that mostly exchange say little
 * of the rest. The remaining error of the runs is interpolated over the logarithm of ranks. No step is shorter than its
 * loader's time. */

#include "base/alloc.h"
#include "planner.h"

#include "lather/detail/fit.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weight of the prior: a factor of 2 counts as much as a run with an error of 5 %. */
static const double prior = 0.05;

plan_estimate lt_plan_make_estimate(double value, plan_basis basis, const char *why, ...)
{
    plan_estimate e = {.value = value, .basis = basis, .beyond = 1, .error = (double)NAN};
    va_list args;
    va_start(args, why);
    vsnprintf(e.why, sizeof e.why, why, args);
    va_end(args);
    return e;
}

plan_estimate lt_plan_make_estimate_between(double value, double at, double least, double most,
                                            const char *why)
{
    plan_estimate e = lt_plan_make_estimate(value, PLAN_INTERPOLATED, "%s", why);
    if (at > most || at < least) {
        e.basis = PLAN_EXTRAPOLATED;
        e.beyond = at > most ? at / most : least / at;
    }
    return e;
}

/* True if both communicate in the same way, or one of them has one rank, which does not communicate. */
static bool is_comparable_exchange(const lt_plan_setup *u, const lt_plan_setup *v)
{
    const lt_cost_plan *a = &u->exchange, *b = &v->exchange;
    return u->ranks == 1 || v->ranks == 1
           || (a->scheme == b->scheme && a->element_bytes == b->element_bytes
               && a->reducer == b->reducer && a->number == b->number && a->every == b->every
               && a->sharded == b->sharded && a->gather == b->gather);
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

/* True if a rank does the same work except for its number of samples, for which the model accounts. */
static bool is_similar_work(const plan_config *c, const plan_config *other)
{
    const lt_plan_setup *a = &c->setup, *b = &other->setup;
    return c->amp == other->amp && !strcmp(c->device, other->device)
           && (c->threads == other->threads || c->real_threads == other->real_threads)
           && is_same_update(a, b) && !strcmp(c->state, other->state)
           && is_comparable_exchange(a, b) && is_same_mesh(&a->mesh, &b->mesh)
           && a->backup_workers == b->backup_workers && a->deadline == b->deadline;
}

bool lt_plan_is_same_work(const plan_config *c, const plan_config *other)
{
    const lt_plan_setup *a = &c->setup, *b = &other->setup;
    return is_similar_work(c, other) && a->batch_size == b->batch_size
           && a->grad_accum == b->grad_accum;
}

bool lt_plan_is_timed(const plan_run *run, const plan_config *c)
{
    return run->seconds > 0 && lt_plan_is_same_work(&run->config, c);
}

/* Timed runs of the same work. */
typedef struct timed {
    const plan_run *same, *below, *above; /* on as many ranks, the next fewer, the next more */
    double least, most;
} timed;

/* Prefers the nearest number of ranks, then the longest run. */
static bool is_nearer(const plan_run *run, const plan_run *than, int ranks)
{
    if (!than)
        return true;
    const int a = abs(run->config.setup.ranks - ranks), b = abs(than->config.setup.ranks - ranks);
    return a < b || (a == b && run->timed > than->timed);
}

static timed find_timed_runs(const plan_runs *runs, const plan_config *c)
{
    const lt_plan_setup *u = &c->setup;
    timed t = {.least = HUGE_VAL};
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        const int ranks = run->config.setup.ranks;
        if (!lt_plan_is_timed(run, c))
            continue;
        t.least = ranks < t.least ? ranks : t.least;
        t.most = ranks > t.most ? ranks : t.most;
        const bool is_same =
            ranks == u->ranks && run->config.setup.ranks_per_node == u->ranks_per_node;
        const plan_run **of = is_same ? &t.same : ranks <= u->ranks ? &t.below : &t.above;
        if (is_nearer(run, *of, u->ranks))
            *of = run;
    }
    return t;
}

/* --- The model, corrected --- */

/* Corrections of a rank's own work and of the exposed exchange. */
typedef struct factors {
    double own, exchange;
} factors;

static double apply_factors(factors f, plan_modelled m)
{
    return f.own * (m.seconds - m.exchange) + f.exchange * m.exchange;
}

/* Solves rows of (own, exchange) divided by a run's seconds, and two for the prior. Both factors are 1 where one would
 * be 0, as a step without the other part would be predicted to take no time. */
static factors fit_factors(const plan_runs *runs, const plan_config *c,
                           bool (*is_of)(const plan_config *, const plan_config *))
{
    factors f = {1, 1};
    double x[2], *a = lt_alloc((runs->count + 2) * 3, sizeof *a);
    ptrdiff_t rows = 0;
    if (!a)
        return f;
    double *y = a + (runs->count + 2) * 2;
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        if (!(run->seconds > 0) || !is_of(&run->config, c))
            continue;
        a[2 * rows] = (run->modelled.seconds - run->modelled.exchange) / run->seconds;
        a[2 * rows + 1] = run->modelled.exchange / run->seconds;
        y[rows++] = 1;
    }
    for (int j = 0; j < 2; j++) {
        a[2 * rows + j] = prior;
        y[rows++] = prior;
    }
    if (!lt_nnls(x, NULL, a, (int)rows, 2, y) && x[0] > 0 && x[1] > 0)
        f = (factors){x[0], x[1]};
    lt_free(a);
    return f;
}

/* Ratio of measured to corrected seconds, interpolated between two runs over the logarithm of ranks. */
static double measured_to_model_ratio(const timed *t, factors f, int ranks)
{
    const plan_run *a = t->below ? t->below : t->above, *b = t->above ? t->above : t->below;
    const double x = log((double)a->config.setup.ranks), y = log((double)b->config.setup.ranks);
    const double share = y > x ? (log((double)ranks) - x) / (y - x) : 0;
    return exp((1 - share) * log(a->seconds / apply_factors(f, a->modelled))
               + share * log(b->seconds / apply_factors(f, b->modelled)));
}

double lt_plan_ernest_seconds(const plan_runs *runs, const plan_config *c)
{
    lt_time_model model;
    size_t count = 0;
    lt_time_point *point = lt_alloc(runs->count, sizeof *point);
    for (size_t i = 0; i < runs->count && point; i++)
        if (lt_plan_is_timed(&runs->run[i], c))
            point[count++] =
                (lt_time_point){(double)runs->run[i].config.setup.ranks, runs->run[i].seconds};
    const bool ok = point && count && !lt_time_fit(&model, point, count);
    lt_free(point);
    return ok ? lt_time_predict(&model, (double)c->setup.ranks) : (double)NAN;
}

/* Factor beyond the ranks or the samples per rank of runs with other batches; 0: no such runs. */
static double extrapolation_beyond_runs(const plan_runs *runs, const plan_config *c)
{
    const double at[] = {c->setup.ranks, (double)(c->setup.batch_size * c->setup.grad_accum)};
    double least[] = {HUGE_VAL, HUGE_VAL}, most[] = {0, 0};
    for (size_t i = 0; i < runs->count; i++) {
        const lt_plan_setup *of = &runs->run[i].config.setup;
        const double value[] = {of->ranks, (double)(of->batch_size * of->grad_accum)};
        for (int j = 0;
             j < 2 && runs->run[i].seconds > 0 && is_similar_work(&runs->run[i].config, c); j++) {
            least[j] = fmin(least[j], value[j]);
            most[j] = fmax(most[j], value[j]);
        }
    }
    const double above = fmax(at[0] / most[0], at[1] / most[1]);
    return most[0] > 0 ? fmax(1, fmax(above, fmax(least[0] / at[0], least[1] / at[1]))) : 0;
}

plan_estimate lt_plan_estimate_step(const plan_runs *runs, const plan_config *c,
                                    plan_modelled modelled)
{
    const timed t = find_timed_runs(runs, c);
    plan_estimate e = lt_plan_make_estimate(modelled.seconds, PLAN_MODEL, "the system model alone");
    if (t.same) {
        e = lt_plan_make_estimate(t.same->seconds, PLAN_MEASURED, "%.150s", t.same->name);
        e.error = fabs(modelled.seconds / e.value - 1);
        e.spread = t.same->spread;
        return e;
    }
    if (t.below || t.above) {
        const factors f = fit_factors(runs, c, lt_plan_is_same_work);
        const double scaled =
            apply_factors(f, modelled) * measured_to_model_ratio(&t, f, c->setup.ranks);
        return lt_plan_make_estimate_between(fmax(scaled, modelled.load), (double)c->setup.ranks,
                                             t.least, t.most, "the system model, scaled to runs");
    }
    const double beyond = extrapolation_beyond_runs(runs, c);
    if (beyond > 0) {
        const double scaled = apply_factors(fit_factors(runs, c, is_similar_work), modelled);
        e = lt_plan_make_estimate(fmax(scaled, modelled.load), PLAN_MODEL,
                                  "the system model, scaled to runs of other batches");
        e.beyond = beyond;
    }
    return e;
}

double lt_plan_step_cost(const plan_candidate *c)
{
    return c->config.setup.ranks * c->step.value;
}
