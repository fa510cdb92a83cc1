/* Estimates the steps to a goal from runs: measured, by batch size, or by ranks. Batch size: steps(B) = S (1 + phi /
 * B), McCandlish et al. 2018, equation 2.11; ranks: Hemingway's model of the loss (lather/detail/fit.h). */

#include "base/alloc.h"
#include "planner.h"

#include "lather/detail/noise_scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_same_class(const plan_config *a, const plan_config *b)
{
    return a->convergence == b->convergence && a->is_lossless == b->is_lossless;
}

/* Returns true if a run needs as many steps as the config would. */
static bool is_same_convergence(const plan_config *a, const plan_config *b)
{
    return is_same_class(a, b) && a->batch == b->batch
           && (a->is_lossless
               || (a->setup.ranks == b->setup.ranks
                   && a->setup.ranks_per_node == b->setup.ranks_per_node));
}

static bool estimate_by_measured_runs(const plan_runs *runs, const plan_config *c,
                                      plan_estimate *out)
{
    double sum = 0;
    int count = 0;
    for (size_t i = 0; i < runs->count; i++)
        if (is_same_convergence(&runs->run[i].config, c) && runs->run[i].reached > 0) {
            sum += runs->run[i].reached;
            count++;
        }
    if (count)
        *out = lt_plan_make_estimate(sum / count, PLAN_MEASURED, "%d run%s reached it", count,
                                     count == 1 ? "" : "s");
    return count;
}

/* --- Batch size --- */

static bool has_reached_goal(const plan_run *run, const plan_config *c)
{
    return is_same_class(&run->config, c) && run->reached > 0;
}

bool lt_plan_is_on_batch_curve(const plan_run *run, const plan_config *c)
{
    return c->is_lossless && has_reached_goal(run, c);
}

/* Runs of a class that reached the goal. */
typedef struct batches {
    double least, most;
    int distinct, count;
    const plan_run *reached; /* one of these runs */
} batches;

static batches find_batch_range(const plan_runs *runs, const plan_config *c)
{
    batches b = {.least = HUGE_VAL};
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        const double batch = (double)run->config.batch;
        if (!has_reached_goal(run, c))
            continue;
        b.distinct += batch < b.least || batch > b.most;
        b.least = batch < b.least ? batch : b.least;
        b.most = batch > b.most ? batch : b.most;
        b.count++;
        b.reached = run;
    }
    return b;
}

/* Fits steps = x[0] + x[1] / B by least squares of relative errors, both at least 0. */
static bool fit_steps_of_batch(const plan_runs *runs, const plan_config *c, const batches *b,
                               double *x)
{
    double *a = lt_alloc((size_t)b->count * 3, sizeof *a);
    ptrdiff_t row = 0;
    if (!a)
        return false;
    double *y = a + (size_t)b->count * 2;
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        if (!has_reached_goal(run, c))
            continue;
        a[2 * row] = 1 / run->reached;
        a[2 * row + 1] = 1 / ((double)run->config.batch * run->reached);
        y[row++] = 1;
    }
    const bool ok = !lt_nnls(x, NULL, a, (int)row, 2, y);
    lt_free(a);
    return ok && x[0] + x[1] > 0;
}

/* Finds the run of the class with a noise scale and the nearest batch; reached: only one that reached the goal. */
static const plan_run *find_run_with_noise_scale(const plan_runs *runs, const plan_config *c,
                                                 bool reached)
{
    const plan_run *found = NULL;
    double least = HUGE_VAL;
    for (const plan_run *run = runs->run; run < runs->run + runs->count; run++) {
        const double distance = fabs(log((double)run->config.batch / (double)c->batch));
        if (is_same_class(&run->config, c) && run->noise_scale > 0 && distance < least
            && (run->reached > 0 || !reached)) {
            least = distance;
            found = run;
        }
    }
    return found;
}

bool lt_plan_fit_batch_curve(plan_curve *out, const plan_runs *runs, const plan_config *c)
{
    const batches b = c->is_lossless ? find_batch_range(runs, c) : (batches){0};
    const plan_run *nearest = find_run_with_noise_scale(runs, c, true),
                   *from = nearest ? nearest : b.reached,
                   *noise = from == nearest ? nearest : find_run_with_noise_scale(runs, c, false);
    double x[2];
    *out = (plan_curve){.least_batch = b.least, .most_batch = b.most};
    if (b.distinct > 1 && fit_steps_of_batch(runs, c, &b, x)) {
        out->least = x[0];
        out->samples = x[1];
        snprintf(out->why, sizeof out->why, "steps a + c / batch of %d runs", b.count);
        return true;
    }
    if (!b.reached || !noise)
        return false;
    out->least = from->reached / (1 + noise->noise_scale / (double)from->config.batch);
    out->samples = out->least * noise->noise_scale;
    if (nearest)
        snprintf(out->why, sizeof out->why, "noise scale %.3g of batch %lld", noise->noise_scale,
                 (long long)noise->config.batch);
    else
        snprintf(out->why, sizeof out->why, "noise scale %.3g of %s", noise->noise_scale,
                 noise->is_pilot ? "a pilot" : "a run that did not reach it");
    return true;
}

static bool estimate_by_batch(const plan_runs *runs, const plan_config *c, plan_estimate *out)
{
    plan_curve curve;
    if (!lt_plan_fit_batch_curve(&curve, runs, c))
        return false;
    const double batch = (double)c->batch;
    *out = lt_plan_make_estimate_between(curve.least + curve.samples / batch, batch,
                                         curve.least_batch, curve.most_batch, curve.why);
    return true;
}

bool lt_plan_convert_steps_to_batch(plan_estimate *out, const plan_runs *runs, const plan_config *c,
                                    double steps, double batch)
{
    const double own = (double)c->batch;
    const bool is_same = own == batch;
    const plan_run *noise = is_same ? NULL : find_run_with_noise_scale(runs, c, false);
    if (!c->is_lossless || !(steps > 0) || (!noise && !is_same)
        || (noise && lt_noise_steps(&steps, noise->noise_scale, steps, batch, own)))
        return false;
    *out = lt_plan_make_estimate(steps, PLAN_MODEL, "%s", "");
    if (noise)
        snprintf(out->why, sizeof out->why, ", and noise scale %.3g of %s", noise->noise_scale,
                 noise->is_pilot ? "a pilot" : "a run");
    return true;
}

/* --- Ranks: Hemingway's model --- */

static int64_t samples_per_rank(const plan_config *c)
{
    return c->setup.batch_size * c->setup.grad_accum;
}

/* True if one model of the loss fits both: same class and samples per rank, so that ranks and batch grow together. */
static bool is_same_model(const plan_config *a, const plan_config *b)
{
    return is_same_class(a, b) && samples_per_rank(a) == samples_per_rank(b);
}

/* A lossless run within one machine counts for a lossy config too, which would be lossless there. */
static bool is_point_of_model(const plan_config *run, const plan_config *c)
{
    return is_same_model(run, c)
           || (run->is_lossless && !c->is_lossless && run->lossless == c->lossless
               && run->setup.ranks <= c->setup.ranks_per_node
               && samples_per_rank(run) == samples_per_rank(c));
}

double lt_plan_as_loss(const plan_goal *g, double value)
{
    return g->lower ? value : 100 - value;
}

/* Fits Hemingway's model of the loss to all runs like `of`, and stores it there. */
static lt_status fit_loss_model(const plan_runs *runs, const plan_goal *g, plan_run *of)
{
    size_t count = 0;
    for (size_t i = 0; i < runs->count; i++)
        count += runs->run[i].points;
    lt_loss_point *point;
    LT_TRY(LT_ALLOC(&point, count));
    count = 0;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        for (size_t k = 0; k < run->points && is_point_of_model(&run->config, &of->config); k++)
            point[count++] = (lt_loss_point){(double)run->config.setup.ranks, run->point[k].step,
                                             lt_plan_as_loss(g, run->point[k].value)};
    }
    of->has_loss = count && !lt_loss_fit(&of->loss, point, count);
    lt_free(point);
    return LT_OK;
}

lt_status lt_plan_fit_loss_models(plan_runs *runs, const plan_goal *g)
{
    for (size_t i = 0; i < runs->count && (g->lower || g->percent); i++) {
        plan_run *run = &runs->run[i];
        size_t k = 0;
        while (!is_same_model(&runs->run[k].config, &run->config))
            k++;
        if (k == i) {
            LT_TRY(fit_loss_model(runs, g, run));
        } else {
            run->loss = runs->run[k].loss;
            run->has_loss = runs->run[k].has_loss;
        }
    }
    return LT_OK;
}

const lt_loss_model *lt_plan_find_loss_model(const plan_runs *runs, const plan_config *c)
{
    for (size_t i = 0; i < runs->count; i++)
        if (runs->run[i].has_loss && is_same_model(&runs->run[i].config, c))
            return &runs->run[i].loss;
    return NULL;
}

static bool estimate_by_ranks(const plan_runs *runs, const plan_goal *g, const plan_config *c,
                              plan_estimate *out)
{
    const double ranks = (double)c->setup.ranks;
    double steps;
    char why[96];
    const lt_loss_model *m = lt_plan_find_loss_model(runs, c);
    if (!m || lt_loss_steps(&steps, m, ranks, lt_plan_as_loss(g, g->value)))
        return false;
    snprintf(why, sizeof why, "loss fitted to runs of %g to %g ranks and %g steps", m->least,
             m->most, m->last);
    *out = lt_plan_make_estimate_between(steps, ranks, m->least, m->most, why);
    out->error = m->held_out;
    if (steps > m->last && steps / m->last > out->beyond) {
        out->basis = PLAN_EXTRAPOLATED;
        out->beyond = steps / m->last;
    }
    return true;
}

/* --- Unknown steps, and why --- */

static bool is_seen_by_model(const plan_run *run, const plan_config *c)
{
    return run->points && !run->is_pilot && is_point_of_model(&run->config, c);
}

int lt_plan_count_rank_counts(const plan_runs *runs, const plan_config *c,
                              bool (*is)(const plan_run *, const plan_config *))
{
    int count = 0;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = runs->run;
        bool is_new = is(&run[i], c);
        for (size_t k = 0; k < i && is_new; k++)
            is_new = !is(&run[k], c) || run[k].config.setup.ranks != run[i].config.setup.ranks;
        count += is_new;
    }
    return count;
}

static plan_estimate explain_unknown_lossy(const plan_runs *runs, const plan_goal *g,
                                           const plan_config *c)
{
    const int count = lt_plan_count_rank_counts(runs, c, is_seen_by_model);
    if (count < LT_LOSS_RANKS)
        return LT_PLAN_UNKNOWN(
            "lossy communication needs a run on %d ranks that reached "
            "%s %g, or runs with this --batch-size on %d numbers of ranks, found %d",
            c->setup.ranks, g->metric, g->value, LT_LOSS_RANKS, count);
    return LT_PLAN_UNKNOWN("the loss fitted to runs on %d numbers of "
                           "ranks does not predict when %s is %g",
                           count, g->metric, g->value);
}

static plan_estimate explain_unknown(const plan_runs *runs, const plan_goal *g,
                                     const plan_config *c)
{
    int found = 0, reached = 0;
    for (size_t i = 0; i < runs->count; i++)
        if (is_same_class(&runs->run[i].config, c)) {
            found++;
            reached += runs->run[i].reached > 0;
        }
    if (found && !c->is_lossless)
        return explain_unknown_lossy(runs, g, c);
    if (!runs->count)
        return LT_PLAN_UNKNOWN("no run (--from)");
    if (!found)
        return LT_PLAN_UNKNOWN("no run of %.80s", c->label);
    if (!reached)
        return LT_PLAN_UNKNOWN("none of %d runs of it reached %s %g", found, g->metric, g->value);
    return LT_PLAN_UNKNOWN("batch %lld needs runs of 2 batches, or a noise scale",
                           (long long)c->batch);
}

plan_estimate lt_plan_estimate_steps(const plan_runs *runs, const plan_goal *g,
                                     const plan_config *c)
{
    plan_estimate e;
    if (estimate_by_measured_runs(runs, c, &e) || estimate_by_batch(runs, c, &e)
        || estimate_by_ranks(runs, g, c, &e))
        return e;
    return explain_unknown(runs, g, c);
}
