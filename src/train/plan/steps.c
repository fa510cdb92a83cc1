/* How many steps a goal takes, as far as runs tell: measured, between measured ones, beyond them, or not at all. Batch and
 * steps: steps(B) = S (1 + phi / B), McCandlish et al. 2018, equation 2.11; ranks and steps: Hemingway's model of the loss
 * (lather/detail/fit.h). */

#include "planner.h"

#include "lather/detail/noise_scale.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static plan_estimate unknown(const char *format, ...) LT_PRINTF(1, 2);
static plan_estimate unknown(const char *format, ...)
{
    plan_estimate e = {
        .value = (double)NAN, .trust = PLAN_UNKNOWN, .beyond = 1, .error = (double)NAN};
    va_list args;
    va_start(args, format);
    vsnprintf(e.why, sizeof e.why, format, args);
    va_end(args);
    return e;
}

static bool is_alike(const plan_setting *a, const plan_setting *b)
{
    return a->converge == b->converge && a->is_exact == b->is_exact;
}

/* Whether a run's steps are those of the setting. */
static bool is_same_course(const plan_setting *a, const plan_setting *b)
{
    return is_alike(a, b) && a->batch == b->batch
           && (a->is_exact
               || (a->setup.ranks == b->setup.ranks
                   && a->setup.ranks_per_node == b->setup.ranks_per_node));
}

static bool find_measured(const plan_runs *runs, const plan_setting *s, plan_estimate *out)
{
    double sum = 0;
    int count = 0;
    for (size_t i = 0; i < runs->count; i++)
        if (is_same_course(&runs->run[i].setting, s) && runs->run[i].reached > 0) {
            sum += runs->run[i].reached;
            count++;
        }
    if (!count)
        return false;
    *out = (plan_estimate){
        .value = sum / count, .trust = PLAN_MEASURED, .beyond = 1, .error = (double)NAN};
    snprintf(out->why, sizeof out->why, "%d run%s reached it", count, count == 1 ? "" : "s");
    return true;
}

/* Runs that reached the goal with other batches. */
typedef struct batches {
    double least, most;
    int distinct, count;
    const plan_run *reached; /* any */
} batches;

static batches find_batches(const plan_runs *runs, const plan_setting *s)
{
    batches b = {.least = HUGE_VAL};
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        const double batch = (double)run->setting.batch;
        if (!is_alike(&run->setting, s) || !(run->reached > 0))
            continue;
        b.distinct += batch < b.least || batch > b.most;
        b.least = batch < b.least ? batch : b.least;
        b.most = batch > b.most ? batch : b.most;
        b.count++;
        b.reached = run;
    }
    return b;
}

/* steps = x[0] + x[1] / B, least squares of relative errors, both at least 0. */
static bool fit_batches(const plan_runs *runs, const plan_setting *s, const batches *b, double *x)
{
    double norm, *a = calloc((size_t)b->count * 3, sizeof *a), *y = a + (size_t)b->count * 2;
    int row = 0;
    if (!a)
        return false;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        if (!is_alike(&run->setting, s) || !(run->reached > 0))
            continue;
        a[2 * row] = 1 / run->reached;
        a[2 * row + 1] = 1 / ((double)run->setting.batch * run->reached);
        y[row++] = 1;
    }
    const bool ok = !lt_nnls(x, &norm, a, row, 2, y);
    free(a);
    return ok && x[0] + x[1] > 0;
}

/* The run (reached: that reached the goal) with this course and a noise scale whose batch is the nearest; NULL: none. */
static const plan_run *find_noise(const plan_runs *runs, const plan_setting *s, bool reached)
{
    const plan_run *found = NULL;
    double least = HUGE_VAL;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = &runs->run[i];
        const double distance = fabs(log((double)run->setting.batch / (double)s->batch));
        if (is_alike(&run->setting, s) && run->noise_scale > 0 && distance < least
            && (run->reached > 0 || !reached)) {
            least = distance;
            found = run;
        }
    }
    return found;
}

bool lt_plan_find_curve(plan_curve *out, const plan_runs *runs, const plan_setting *s)
{
    const batches b = s->is_exact ? find_batches(runs, s) : (batches){0};
    const plan_run *nearest = find_noise(runs, s, true), *from = nearest ? nearest : b.reached,
                   *noise = from == nearest ? nearest : find_noise(runs, s, false);
    double x[2];
    *out = (plan_curve){.least_batch = b.least, .most_batch = b.most};
    if (b.distinct > 1 && fit_batches(runs, s, &b, x)) {
        out->least = x[0];
        out->samples = x[1];
        snprintf(out->why, sizeof out->why, "steps a + c / batch of %d runs", b.count);
    } else if (b.reached && noise) {
        const char *whose = noise->is_pilot ? "a pilot" : "a run that did not reach it";
        out->least = from->reached / (1 + noise->noise_scale / (double)from->setting.batch);
        out->samples = out->least * noise->noise_scale;
        snprintf(out->why, sizeof out->why, "noise scale %.3g of %s", noise->noise_scale, whose);
        if (nearest)
            snprintf(out->why, sizeof out->why, "noise scale %.3g of batch %lld",
                     noise->noise_scale, (long long)noise->setting.batch);
    } else {
        return false;
    }
    return true;
}

bool lt_plan_is_on_curve(const plan_run *run, const plan_setting *s)
{
    return s->is_exact && run->reached > 0 && is_alike(&run->setting, s);
}

static bool find_by_batch(const plan_runs *runs, const plan_setting *s, plan_estimate *out)
{
    plan_curve c;
    if (!lt_plan_find_curve(&c, runs, s))
        return false;
    *out = lt_plan_between(c.least + c.samples / (double)s->batch, (double)s->batch, c.least_batch,
                           c.most_batch, c.why);
    return true;
}

bool lt_plan_steps_of_batch(plan_estimate *out, const plan_runs *runs, const plan_setting *s,
                            double steps, double batch)
{
    const double own = (double)s->batch;
    const plan_run *noise = lt_plan_is_same_number(own, batch) ? NULL : find_noise(runs, s, false);
    plan_estimate e = {.value = steps, .trust = PLAN_MODEL, .beyond = 1, .error = (double)NAN};
    if (!s->is_exact || !(steps > 0) || (!noise && !lt_plan_is_same_number(own, batch))
        || (noise && lt_noise_steps(&e.value, noise->noise_scale, steps, batch, own)))
        return false;
    if (noise)
        snprintf(e.why, sizeof e.why, ", and noise scale %.3g of %s", noise->noise_scale,
                 noise->is_pilot ? "a pilot" : "a run");
    *out = e;
    return true;
}

/* --- Hemingway's model --- */

/* Runs whose ranks have as many samples each, so that ranks and batch grow together. */
static bool is_of_loss_model(const plan_setting *a, const plan_setting *b)
{
    return is_alike(a, b)
           && a->setup.batch_size * a->setup.grad_accum
                  == b->setup.batch_size * b->setup.grad_accum;
}

double lt_plan_as_loss(const plan_goal *g, double value)
{
    return g->lower ? value : 100 - value;
}

/* Whether a run lost nothing between its ranks, as it was within one machine, and is otherwise like the setting, which
 * would lose as little there. */
static bool is_of_one_machine(const plan_setting *run, const plan_setting *s)
{
    return run->is_exact && !s->is_exact && run->lossless == s->lossless
           && run->setup.ranks <= s->setup.ranks_per_node
           && run->setup.batch_size * run->setup.grad_accum
                  == s->setup.batch_size * s->setup.grad_accum;
}

static bool is_point_of_loss_model(const plan_setting *run, const plan_setting *s)
{
    return is_of_loss_model(run, s) || is_of_one_machine(run, s);
}

/* The model of all runs like this one. */
static void fit_loss(const plan_runs *runs, const plan_goal *g, plan_run *of)
{
    size_t count = 0;
    for (size_t i = 0; i < runs->count; i++)
        count += runs->run[i].points;
    lt_loss_point *point = calloc(count + 1, sizeof *point);
    count = 0;
    for (size_t i = 0; i < runs->count && point; i++)
        for (size_t k = 0; k < runs->run[i].points; k++) {
            const plan_run *run = &runs->run[i];
            if (is_point_of_loss_model(&run->setting, &of->setting))
                point[count++] =
                    (lt_loss_point){(double)run->setting.setup.ranks, run->point[k].step,
                                    lt_plan_as_loss(g, run->point[k].value)};
        }
    of->has_loss = count && !lt_loss_fit(&of->loss, point, count);
    free(point);
}

void lt_plan_fit_runs(plan_runs *runs, const plan_goal *g)
{
    for (size_t i = 0; i < runs->count && (g->lower || g->percent); i++) {
        plan_run *run = &runs->run[i];
        size_t k = 0;
        while (!is_of_loss_model(&runs->run[k].setting, &run->setting))
            k++;
        if (k == i) {
            fit_loss(runs, g, run);
        } else {
            run->loss = runs->run[k].loss;
            run->has_loss = runs->run[k].has_loss;
        }
    }
}

const lt_loss_model *lt_plan_find_loss(const plan_runs *runs, const plan_setting *s)
{
    for (size_t i = 0; i < runs->count; i++)
        if (runs->run[i].has_loss && is_of_loss_model(&runs->run[i].setting, s))
            return &runs->run[i].loss;
    return NULL;
}

static bool find_by_ranks(const plan_runs *runs, const plan_goal *g, const plan_setting *s,
                          plan_estimate *out)
{
    const double ranks = (double)s->setup.ranks;
    double steps;
    char why[96];
    const lt_loss_model *m = lt_plan_find_loss(runs, s);
    if (!m || lt_loss_steps(&steps, m, ranks, lt_plan_as_loss(g, g->value)))
        return false;
    snprintf(why, sizeof why, "loss fitted to runs of %g to %g ranks and %g steps", m->least,
             m->most, m->last);
    *out = lt_plan_between(steps, ranks, m->least, m->most, why);
    out->error = m->held_out;
    if (steps > m->last && steps / m->last > out->beyond) {
        out->trust = PLAN_EXTRAPOLATED;
        out->beyond = steps / m->last;
    }
    return true;
}

static bool is_seen_by_loss_model(const plan_run *run, const plan_setting *s)
{
    return run->points && !run->is_pilot && is_point_of_loss_model(&run->setting, s);
}

int lt_plan_count_ranks(const plan_runs *runs, const plan_setting *s,
                        bool (*is)(const plan_run *, const plan_setting *))
{
    int count = 0;
    for (size_t i = 0; i < runs->count; i++) {
        const plan_run *run = runs->run;
        bool is_new = is(&run[i], s);
        for (size_t k = 0; k < i && is_new; k++)
            is_new = !is(&run[k], s) || run[k].setting.setup.ranks != run[i].setting.setup.ranks;
        count += is_new;
    }
    return count;
}

/* Of what loses or delays gradients, of which batches and noise scales say nothing. */
static plan_estimate explain_loss(const plan_runs *runs, const plan_goal *g, const plan_setting *s)
{
    const int count = lt_plan_count_ranks(runs, s, is_seen_by_loss_model);
    if (count < LT_LOSS_RANKS)
        return unknown("not enough measurements: what loses gradients needs a run on %d ranks that "
                       "reached %s %g, or runs with this --batch-size on %d numbers of ranks, and "
                       "there are %d",
                       s->setup.ranks, g->metric, g->value, LT_LOSS_RANKS, count);
    return unknown("not enough measurements: the loss fitted to runs on %d numbers of ranks does "
                   "not say when %s is %g",
                   count, g->metric, g->value);
}

/* Why there is no number. */
static plan_estimate explain(const plan_runs *runs, const plan_goal *g, const plan_setting *s)
{
    int alike = 0, reached = 0;
    for (size_t i = 0; i < runs->count; i++)
        if (is_alike(&runs->run[i].setting, s)) {
            alike++;
            reached += runs->run[i].reached > 0;
        }
    if (!runs->count)
        return unknown("not enough measurements: no run (--from)");
    if (!alike)
        return unknown("not enough measurements: no run of %.80s", s->label);
    if (!s->is_exact)
        return explain_loss(runs, g, s);
    if (!reached)
        return unknown("not enough measurements: none of %d runs of it reached %s %g", alike,
                       g->metric, g->value);
    return unknown("not enough measurements: batch %lld needs runs of 2 batches, or a noise scale",
                   (long long)s->batch);
}

plan_estimate lt_plan_steps(const plan_runs *runs, const plan_goal *g, const plan_setting *s)
{
    plan_estimate e;
    if (find_measured(runs, s, &e) || find_by_batch(runs, s, &e) || find_by_ranks(runs, g, s, &e))
        return e;
    return explain(runs, g, s);
}
