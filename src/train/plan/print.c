/* A plan for people: the table, why others fell, and the command line of the best. */

#include "planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double gib = 0x1p30;

static const char *seconds_text(double s, char *text, size_t size)
{
    static const struct {
        double seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    const double least = 1e-9; /* below it a difference is rounding */
    snprintf(text, size, isfinite(s) && fabs(s) < least ? "0 s" : "?");
    for (size_t i = 0; isfinite(s) && fabs(s) >= least && i < sizeof units / sizeof *units; i++)
        if (s >= units[i].seconds || i + 1 == sizeof units / sizeof *units) {
            snprintf(text, size, "%.3g %s", s / units[i].seconds, units[i].unit);
            break;
        }
    return text;
}

static const char *trust_text(const plan_estimate *e, char *text, size_t size)
{
    static const char *const names[] = {"measured", "interpolated", "extrapolated", "model only",
                                        "not enough measurements"};
    if (e->beyond > 1)
        snprintf(text, size, "%s x%.3g", names[e->trust], e->beyond);
    else
        snprintf(text, size, "%s", names[e->trust]);
    return text;
}

/* The model was within a factor of 2 of steps (docs/results/plan.md); more than twice beyond runs nothing is bounded so. */
static double weakness(const plan_estimate *e)
{
    return e->trust != PLAN_UNKNOWN && e->beyond > PLAN_BEYOND ? PLAN_MODEL + 0.5 : e->trust;
}

/* Of step and steps, the one that is known less well. */
static const plan_estimate *weaker(const plan_candidate *c)
{
    const double steps = weakness(&c->steps), step = weakness(&c->step);
    return steps > step || (steps >= step && c->steps.beyond > c->step.beyond) ? &c->steps
                                                                               : &c->step;
}

/* --- The table --- */

/* Whether runs say enough for Ernest's model of any candidate, which then is a column. */
static bool has_ernest(const plan_table *t)
{
    size_t i = 0;
    while (i < t->kept && !isfinite(t->item[i].ernest))
        i++;
    return i < t->kept;
}

/* Seconds in a column, or nothing where there is none. */
static void print_ernest(const plan_table *t, const char *text, FILE *out)
{
    if (has_ernest(t))
        fprintf(out, " %10s", text);
}

static void print_pilots(const plan *p, FILE *out)
{
    char now[PLAN_NAME], before[PLAN_NAME];
    const plan_pilots *all = &p->pilots;
    if (!(p->request.pilot_share > 0))
        return;
    fprintf(
        out,
        "pilots: %d, %.3g rank-seconds, and the profile %.3g, %.3g %% of the %.4g of the run below (budget %g %%); no more: %s\n",
        all->count, all->spent, p->profile.paid, 100 * (all->spent + p->profile.paid) / all->run,
        all->run, 100 * p->request.pilot_share, all->why);
    if (all->has_courses && all->course_steps > 0)
        fprintf(
            out,
            "  steps of each course: to a training loss of %.4g, predicted of %s after the %.0f steps that the flags give\n",
            all->course_loss, p->runs.run[all->course_run].setting.label, all->course_steps);
    for (int i = 0; i < all->count; i++) {
        const plan_pilot *q = &all->item[i];
        fprintf(out, "  %d ranks, %s: %lld steps, %.3g rank-seconds: ", q->ranks, q->label,
                (long long)q->steps, q->spent);
        if (*q->why)
            fprintf(out, "failed, and is not used: %s\n", q->why);
        else
            fprintf(out, "%s a step, predicted %s", seconds_text(q->measured, now, sizeof now),
                    seconds_text(q->predicted, before, sizeof before));
        if (q->slowdown > 0)
            fprintf(out, "; %.4g times the steps", q->slowdown);
        if (!*q->why)
            fprintf(out, "\n");
    }
}

static void print_head(const plan *p, FILE *out)
{
    const plan_goal *g = &p->request.goal;
    char time[PLAN_NAME];
    fprintf(out, "goal:");
    if (*g->metric)
        fprintf(out, " %s %s %g", g->metric, g->lower ? "<=" : ">=", g->value);
    if (g->deadline > 0)
        fprintf(out, " within %s", seconds_text(g->deadline, time, sizeof time));
    fprintf(out, "\nprofile: %s, %s a sample and %s a step beside, %g samples an epoch\n",
            p->profile.model, seconds_text(p->profile.base.per_sample, time, sizeof time),
            seconds_text(p->profile.base.fixed, (char[PLAN_NAME]){0}, PLAN_NAME),
            p->profile.samples);
    if (p->runs.count)
        fprintf(out, "runs: %zu, of at most %d ranks\n", p->runs.count, p->runs.most);
    print_pilots(p, out);
    fprintf(out, "\n%6s %8s %-36s %10s", "ranks", "batch", "setting", "step");
    print_ernest(&p->table, "by Ernest", out);
    fprintf(out, " %10s %10s %10s %8s  %s\n", "steps", p->table.is_known ? "time" : "epoch", "cost",
            "GiB", "rests on");
}

static void print_row(const plan *p, const plan_candidate *c, FILE *out)
{
    char step[PLAN_NAME], whole[PLAN_NAME], trust[64], steps[PLAN_NAME], cost[PLAN_NAME];
    char memory[PLAN_NAME], ernest[PLAN_NAME];
    const double seconds = p->table.is_known ? c->seconds : c->epoch;
    snprintf(steps, sizeof steps, isfinite(c->steps.value) ? "%.0f" : "?", c->steps.value);
    snprintf(cost, sizeof cost, isfinite(c->price) ? "%.2f" : "-", c->price);
    snprintf(memory, sizeof memory, isfinite(c->cost.memory) ? "%.3g" : "?", c->cost.memory / gib);
    fprintf(out, "%6d %8lld %-36s %10s", c->setting.setup.ranks, (long long)c->setting.batch,
            c->setting.label, seconds_text(c->step.value, step, sizeof step));
    print_ernest(&p->table, seconds_text(c->ernest, ernest, sizeof ernest), out);
    fprintf(out, " %10s %10s %10s %8s  %s\n", steps, seconds_text(seconds, whole, sizeof whole),
            cost, memory, trust_text(weaker(c), trust, sizeof trust));
}

static void print_dropped(const plan *p, FILE *out)
{
    const plan_table *t = &p->table;
    char text[PLAN_REASON];
    if (t->kept < t->count)
        fprintf(out, "\ndropped: %zu of %zu\n", t->count - t->kept, t->count);
    for (size_t i = t->kept; i < t->count; i++)
        if (lt_plan_reason(t, i, text, sizeof text))
            fprintf(out, "  %s\n", text);
}

static void print_parts(const lt_plan_cost *c, FILE *out)
{
    char time[PLAN_NAME];
    fprintf(out, "; modelled %s:", seconds_text(c->seconds, time, sizeof time));
    fprintf(out, " compute %s,", seconds_text(c->compute, time, sizeof time));
    fprintf(out, " update %s,", seconds_text(c->update, time, sizeof time));
    fprintf(out, " exposed exchange %s,", seconds_text(c->exposed, time, sizeof time));
    fprintf(out, " waiting %s,", seconds_text(c->waiting, time, sizeof time));
    fprintf(out, " loading %s", seconds_text(c->load, time, sizeof time));
}

static void print_why(const plan *p, const plan_candidate *best, FILE *out)
{
    if (!p->table.is_known)
        fprintf(out, "\nsteps to the goal: %s; the table is of an epoch%s\n", best->steps.why,
                p->options.price > 0 ? ", and a run's cost is not known" : "");
    else
        fprintf(out, "\nsteps: %s\n", best->steps.why);
    fprintf(out, "step: %s", best->step.why);
    if (!best->is_by_runs)
        print_parts(&best->cost, out);
    fprintf(out, "\n");
    if (*best->verdict.why)
        fprintf(out, "%s\n", best->verdict.why);
}

void lt_plan_print(const plan *p, FILE *out)
{
    enum { COMMAND = 1 << 16 };
    const plan_table *t = &p->table;
    const size_t rows = (size_t)p->options.rows;
    print_head(p, out);
    for (size_t i = 0; i < t->kept && i < rows; i++)
        print_row(p, &t->item[i], out);
    if (t->kept > rows)
        fprintf(out, "  and %zu more (--rows)\n", t->kept - rows);
    print_dropped(p, out);
    if (t->kept)
        print_why(p, &t->item[0], out);
    char *command = t->kept ? malloc(COMMAND) : NULL;
    if (command)
        fprintf(out, "\n%s\n", lt_plan_command_text(p, &t->item[0], command, COMMAND));
    free(command);
}
