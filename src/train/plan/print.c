/* A plan for people: the table, why others fell, and the command line of the best. */

#include "planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double gib = 0x1p30;

const char *lt_plan_seconds_text(double s, char *text, size_t size)
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

/* --- The command --- */

static size_t add(char *text, size_t size, size_t at, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "-_=./,:@%+";
    const bool plain = *word && strspn(word, safe) == strlen(word);
    if (at + 8 >= size)
        return at;
    at += (size_t)snprintf(text + at, size - at, "%s%s", at ? " " : "", plain ? "" : "'");
    for (; *word && at + 8 < size; word++)
        if (*word == '\'')
            at += (size_t)snprintf(text + at, size - at, "'\\''");
        else
            text[at++] = *word;
    text[at] = 0;
    return plain ? at : at + (size_t)snprintf(text + at, size - at, "'");
}

lt_status lt_plan_start_words(const plan *p, const plan_candidate *c, const char *program,
                              plan_words *out)
{
    const lt_plan_setup *u = &c->setting.setup;
    if (u->ranks > 1) {
        LT_TRY(lt_plan_add_word(out, "mpirun"));
        LT_TRY(lt_plan_add_word(out, "-n"));
        LT_TRY(lt_plan_add_word(out, "%d", u->ranks));
    }
    if (u->ranks > 1 && (p->options.simulate || p->options.nodes)) {
        LT_TRY(lt_plan_add_word(out, "--map-by"));
        LT_TRY(lt_plan_add_word(out, "ppr:%d:node", u->ranks_per_node));
    }
    LT_TRY(lt_plan_add_word(out, "%s", program));
    LT_TRY(lt_plan_candidate_words(p, c->choice, out));
    if (p->trainer->args.ranks.ranks_per_node
        > u->ranks) /* what all machines have; this run is on a part of one */
        LT_TRY(lt_plan_add_word(out, "--ranks-per-node=%d", u->ranks));
    return LT_OK;
}

const char *lt_plan_command_text(const plan *p, const plan_candidate *c, char *text, size_t size)
{
    plan_words w = {0};
    size_t at = 0;
    *text = 0;
    const bool whole = !lt_plan_start_words(p, c, p->path, &w);
    for (int i = 0; i < w.count && whole; i++)
        at = add(text, size, at, w.word[i]);
    lt_plan_free_words(&w);
    return text;
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

static void print_head(const plan *p, FILE *out)
{
    const plan_goal *g = &p->request.goal;
    char time[PLAN_NAME];
    fprintf(out, "goal:");
    if (*g->metric)
        fprintf(out, " %s %s %g", g->metric, g->lower ? "<=" : ">=", g->value);
    if (g->deadline > 0)
        fprintf(out, " within %s", lt_plan_seconds_text(g->deadline, time, sizeof time));
    fprintf(out, "\nprofile: %s, %s a sample and %s a step beside, %g samples an epoch\n",
            p->profile.model, lt_plan_seconds_text(p->profile.base.per_sample, time, sizeof time),
            lt_plan_seconds_text(p->profile.base.fixed, (char[PLAN_NAME]){0}, PLAN_NAME),
            p->profile.samples);
    if (p->runs.count)
        fprintf(out, "runs: %zu, of at most %d ranks\n", p->runs.count, p->runs.most);
    lt_plan_print_pilots(p, out);
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
            c->setting.label, lt_plan_seconds_text(c->step.value, step, sizeof step));
    print_ernest(&p->table, lt_plan_seconds_text(c->ernest, ernest, sizeof ernest), out);
    fprintf(out, " %10s %10s %10s %8s  %s\n", steps,
            lt_plan_seconds_text(seconds, whole, sizeof whole), cost, memory,
            trust_text(weaker(c), trust, sizeof trust));
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
    fprintf(out, "; modelled %s:", lt_plan_seconds_text(c->seconds, time, sizeof time));
    fprintf(out, " compute %s,", lt_plan_seconds_text(c->compute, time, sizeof time));
    fprintf(out, " update %s,", lt_plan_seconds_text(c->update, time, sizeof time));
    fprintf(out, " exposed exchange %s,", lt_plan_seconds_text(c->exposed, time, sizeof time));
    fprintf(out, " waiting %s,", lt_plan_seconds_text(c->waiting, time, sizeof time));
    fprintf(out, " loading %s", lt_plan_seconds_text(c->load, time, sizeof time));
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
