/* A plan as text: the table of candidates, the reasons of rejections, and the command line of the best. */

#include "base/alloc.h"
#include "planner.h"

#include <math.h>
#include <stdio.h>

static const double gib = 0x1p30;

/* Text of a number, which the caller's printf() prints. */
typedef struct cell {
    char text[64];
} cell;

static cell seconds_cell(double s)
{
    static const struct {
        double seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    const double least = 1e-9; /* a smaller difference is rounding */
    cell c = {"?"};
    size_t i = 0;
    while (i + 1 < sizeof units / sizeof *units && s < units[i].seconds)
        i++;
    if (isfinite(s) && fabs(s) < least)
        snprintf(c.text, sizeof c.text, "0 s");
    else if (isfinite(s))
        snprintf(c.text, sizeof c.text, "%.3g %s", s / units[i].seconds, units[i].unit);
    return c;
}

static cell basis_cell(const plan_estimate *e)
{
    static const char *const names[] = {"measured", "interpolated", "extrapolated", "model only",
                                        "not enough measurements"};
    cell c;
    snprintf(c.text, sizeof c.text, e->beyond > 1 ? "%s x%.3g" : "%s", names[e->basis], e->beyond);
    return c;
}

/* The model is within a factor of 2 of measured steps (docs/results/plan.md); an extrapolation further than that is
 * weaker. */
static double evidence_weakness(const plan_estimate *e)
{
    return e->basis != PLAN_UNKNOWN && e->beyond > PLAN_BEYOND ? PLAN_MODEL + 0.5 : e->basis;
}

/* Returns the estimate with the weaker evidence: seconds of a step, or steps to the goal. */
static const plan_estimate *weaker_estimate(const plan_candidate *c)
{
    const double steps = evidence_weakness(&c->steps), step = evidence_weakness(&c->step);
    return steps > step || (steps >= step && c->steps.beyond > c->step.beyond) ? &c->steps
                                                                               : &c->step;
}

/* --- The table --- */

/* The column "by Ernest", which exists if some candidate has enough runs for Ernest's model. */
static void print_ernest_column(const plan_table *t, const char *text, FILE *out)
{
    size_t i = 0;
    while (i < t->kept && !isfinite(t->item[i].ernest))
        i++;
    if (i < t->kept)
        fprintf(out, " %10s", text);
}

static void print_pilot(const plan_pilot *q, FILE *out)
{
    fprintf(out, "  %d ranks, %s: %lld steps, %.3g rank-seconds: ", q->ranks, q->label,
            (long long)q->steps, q->spent);
    if (*q->why)
        fprintf(out, "failed, and is not used: %s", q->why);
    else
        fprintf(out, "%s a step, predicted %s", seconds_cell(q->measured).text,
                seconds_cell(q->predicted).text);
    if (q->slowdown > 0)
        fprintf(out, "; %.4g times the steps", q->slowdown);
    fprintf(out, "\n");
}

static void print_pilots(const plan *p, FILE *out)
{
    const plan_pilots *all = &p->pilots;
    if (!(p->request.pilot_share > 0))
        return;
    fprintf(out,
            "pilots: %d, %.3g rank-seconds, and the profile %.3g: %.3g %% of the %.4g of the run "
            "below (budget %g %%); ended: %s\n",
            all->count, all->spent, p->profile.paid,
            100 * (all->spent + p->profile.paid) / all->run, all->run, 100 * p->request.pilot_share,
            all->why);
    if (all->has_classes && all->class_steps > 0)
        fprintf(out,
                "  optimizers and schedules are compared at a training loss of %.4g, predicted of "
                "%s after the %.0f steps that the flags give\n",
                all->class_loss, p->runs.run[all->class_run].config.label, all->class_steps);
    for (int i = 0; i < all->count; i++)
        print_pilot(&all->item[i], out);
}

static void print_head(const plan *p, FILE *out)
{
    const plan_goal *g = &p->request.goal;
    fprintf(out, "goal:");
    if (*g->metric)
        fprintf(out, " %s %s %g", g->metric, g->lower ? "<=" : ">=", g->value);
    if (g->deadline > 0)
        fprintf(out, " within %s", seconds_cell(g->deadline).text);
    fprintf(out, "\nprofile: %s, %s a sample plus %s a step, %g samples an epoch\n",
            p->profile.model, seconds_cell(p->profile.base.per_sample).text,
            seconds_cell(p->profile.base.fixed).text, p->profile.samples);
    if (p->runs.count)
        fprintf(out, "runs: %zu, of at most %d ranks\n", p->runs.count, p->runs.most);
    print_pilots(p, out);
    fprintf(out, "\n%6s %8s %-36s %10s", "ranks", "batch", "setting", "step");
    print_ernest_column(&p->table, "by Ernest", out);
    fprintf(out, " %10s %10s %10s %8s  %s\n", "steps", p->table.is_known ? "time" : "epoch", "cost",
            "GiB", "rests on");
}

static void print_row(const plan *p, const plan_candidate *c, FILE *out)
{
    const double seconds = p->table.is_known ? c->seconds : c->epoch;
    char steps[PLAN_NAME], cost[PLAN_NAME], memory[PLAN_NAME];
    snprintf(steps, sizeof steps, isfinite(c->steps.value) ? "%.0f" : "?", c->steps.value);
    snprintf(cost, sizeof cost, isfinite(c->price) ? "%.2f" : "-", c->price);
    snprintf(memory, sizeof memory, isfinite(c->cost.memory) ? "%.3g" : "?", c->cost.memory / gib);
    fprintf(out, "%6d %8lld %-36s %10s", c->config.setup.ranks, (long long)c->config.batch,
            c->config.label, seconds_cell(c->step.value).text);
    print_ernest_column(&p->table, seconds_cell(c->ernest).text, out);
    fprintf(out, " %10s %10s %10s %8s  %s\n", steps, seconds_cell(seconds).text, cost, memory,
            basis_cell(weaker_estimate(c)).text);
}

static void print_dropped(const plan_table *t, FILE *out)
{
    char text[PLAN_REASON];
    if (t->kept < t->count)
        fprintf(out, "\ndropped: %zu of %zu\n", t->count - t->kept, t->count);
    for (size_t i = t->kept; i < t->count; i++)
        if (lt_plan_format_rejection(t, i, text, sizeof text))
            fprintf(out, "  %s\n", text);
}

static void print_why(const plan *p, const plan_candidate *best, FILE *out)
{
    const lt_plan_cost *c = &best->cost;
    if (!p->table.is_known)
        fprintf(out, "\nsteps to the goal: %s; the table is per epoch%s\n", best->steps.why,
                p->options.price > 0 ? ", and the cost of a run is unknown" : "");
    else
        fprintf(out, "\nsteps: %s\n", best->steps.why);
    fprintf(out, "step: %s", best->step.why);
    if (!best->is_by_runs)
        fprintf(out,
                "; modelled %s: compute %s, update %s, exposed exchange %s, waiting %s, loading %s",
                seconds_cell(c->seconds).text, seconds_cell(c->compute).text,
                seconds_cell(c->update).text, seconds_cell(c->exposed).text,
                seconds_cell(c->waiting).text, seconds_cell(c->load).text);
    fprintf(out, "\n%s%s", best->verdict.why, *best->verdict.why ? "\n" : "");
}

void lt_plan_print(const plan *p, FILE *out)
{
    const plan_table *t = &p->table;
    const size_t rows = (size_t)p->options.rows;
    print_head(p, out);
    for (size_t i = 0; i < t->kept && i < rows; i++)
        print_row(p, &t->item[i], out);
    if (t->kept > rows)
        fprintf(out, "  and %zu more (--rows)\n", t->kept - rows);
    print_dropped(t, out);
    if (!t->kept)
        return;
    print_why(p, &t->item[0], out);
    char *command = lt_plan_command_text(p, &t->item[0]);
    if (command)
        fprintf(out, "\n%s\n", command);
    lt_free(command);
}
