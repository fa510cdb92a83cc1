/* A plan as one JSON object, described in docs/guides/plan.md. */

#include "base/alloc.h"
#include "planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CURVE = 60 }; /* line segments of a fitted curve */

/* Writes a number; null in place of 0 or less. */
static void put_positive(lt_json_writer *w, const char *key, double value)
{
    lt_json_put_number(w, key, value > 0 ? value : (double)NAN);
}

static void put_goal(lt_json_writer *w, const plan_goal *g)
{
    lt_json_begin_object(w, "goal");
    lt_json_put_string(w, "metric", *g->metric ? g->metric : NULL);
    lt_json_put_number(w, "value", *g->metric ? g->value : (double)NAN);
    put_positive(w, "deadline_seconds", g->deadline);
    lt_json_end(w);
}

static void put_link(lt_json_writer *w, const char *key, const lt_cost_link *l)
{
    lt_json_begin_object(w, key);
    lt_json_put_number(w, "latency_us", 1e6 * l->latency);
    lt_json_put_number(w, "gbit", l->bandwidth * 8 / 1e9);
    lt_json_put_number(w, "gather_gbit", lt_cost_gather_rate(l) * 8 / 1e9);
    lt_json_end(w);
}

static void put_machine(lt_json_writer *w, const plan *p)
{
    const lt_plan_machine *m = &p->request.machine;
    lt_json_begin_object(w, "machine");
    lt_json_put_bool(w, "simulated", p->options.simulate);
    lt_json_put_bool(w, "one_machine", p->options.one_machine);
    lt_json_put_integer(w, "ranks_per_node", p->request.per_node);
    lt_json_put_number(w, "slots", m->slots);
    lt_json_put_number(w, "memory_bytes", m->memory);
    put_link(w, "within", &m->cluster.within);
    put_link(w, "between", &m->cluster.between);
    lt_json_end(w);
}

static void put_profile(lt_json_writer *w, const plan_profile *p)
{
    lt_json_begin_object(w, "profile");
    lt_json_put_string(w, "model", p->model);
    lt_json_put_number(w, "fixed", p->base.fixed);
    lt_json_put_number(w, "per_sample", p->base.per_sample);
    lt_json_put_number(w, "load_per_sample", p->base.load_per_sample);
    lt_json_put_number(w, "samples", p->samples);
    lt_json_put_number(w, "spent_seconds", p->spent);
    lt_json_begin_array(w, "batches");
    for (int i = 0; i < p->batches; i++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_number(w, "batch", p->batch[i]);
        lt_json_put_number(w, "seconds", p->seconds[i]);
        lt_json_end(w);
    }
    lt_json_end(w);
    lt_json_end(w);
}

/* --- Runs, and the curves fitted to them --- */

static void put_point(lt_json_writer *w, double x, double y)
{
    lt_json_begin_array(w, NULL);
    lt_json_put_number(w, NULL, x);
    lt_json_put_number(w, NULL, y);
    lt_json_end(w);
}

static void put_metric_points(lt_json_writer *w, const plan *p, const plan_run *run)
{
    const bool is_of_goal = !run->is_pilot || lt_plan_is_step_metric(&p->request.goal);
    lt_json_begin_array(w, "points");
    for (size_t i = 0; i < run->points && is_of_goal; i++)
        put_point(w, run->point[i].step, run->point[i].value);
    lt_json_end(w);
    lt_json_begin_array(w, "fitted");
    for (int i = 0; i <= CURVE && run->points && run->has_loss; i++) {
        const double first = run->point[0].step, last = run->point[run->points - 1].step,
                     step = first + (last - first) * i / CURVE;
        const double loss = lt_loss_predict(&run->loss, run->config.setup.ranks, step);
        put_point(w, step, lt_plan_as_loss(&p->request.goal, loss));
    }
    lt_json_end(w);
}

static void put_run(lt_json_writer *w, const plan *p, const plan_run *run)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_string(w, "name", run->name);
    lt_json_put_string(w, "setting", run->config.label);
    lt_json_put_integer(w, "ranks", run->config.setup.ranks);
    lt_json_put_integer(w, "batch_size", run->config.setup.batch_size);
    lt_json_put_integer(w, "batch", run->config.batch);
    put_positive(w, "step_seconds", run->seconds);
    put_positive(w, "modelled_seconds", run->modelled.seconds);
    put_positive(w, "noise_scale", run->noise_scale);
    lt_json_put_bool(w, "pilot", run->is_pilot);
    put_positive(w, "steps_to_goal", run->reached);
    put_metric_points(w, p, run);
    lt_json_end(w);
}

static void put_batch_curve(lt_json_writer *w, const plan *p, const plan_config *config)
{
    plan_curve c;
    if (!lt_plan_fit_batch_curve(&c, &p->runs, config))
        return;
    lt_json_begin_object(w, NULL);
    lt_json_put_string(w, "setting", config->label);
    lt_json_put_number(w, "least_steps", c.least);
    lt_json_put_number(w, "noise_scale", c.least > 0 ? c.samples / c.least : (double)NAN);
    lt_json_put_number(w, "samples", c.samples);
    lt_json_put_string(w, "why", c.why);
    lt_json_begin_array(w, "points");
    for (size_t i = 0; i < p->runs.count; i++)
        if (lt_plan_is_on_batch_curve(&p->runs.run[i], config))
            put_point(w, (double)p->runs.run[i].config.batch, p->runs.run[i].reached);
    lt_json_end(w);
    lt_json_end(w);
}

/* Writes steps over batch size, one curve for each convergence class of the candidates. */
static void put_batch_curves(lt_json_writer *w, const plan *p)
{
    const plan_candidate *item = p->table.item;
    lt_json_begin_array(w, "steps_of_batch");
    for (size_t i = 0; i < p->table.kept; i++) {
        size_t k = 0;
        while (item[k].config.convergence != item[i].config.convergence)
            k++;
        if (k == i)
            put_batch_curve(w, p, &item[i].config);
    }
    lt_json_end(w);
}

/* --- Candidates --- */

static void put_config(lt_json_writer *w, const plan_config *c)
{
    const lt_plan_setup *u = &c->setup;
    const bool is_local = u->exchange.scheme == LT_COST_LOCAL_STEPS;
    lt_json_put_string(w, "setting", c->label);
    lt_json_put_integer(w, "ranks", u->ranks);
    lt_json_put_integer(w, "ranks_per_node", u->ranks_per_node);
    lt_json_put_integer(w, "batch_size", u->batch_size);
    lt_json_put_integer(w, "grad_accum", u->grad_accum);
    lt_json_put_integer(w, "batch", c->batch);
    lt_json_put_string(w, "optim", u->optim);
    lt_json_put_integer(w, "precondition_frequency", u->frequency);
    lt_json_put_integer(w, "max_preconditioner_dim", u->block);
    lt_json_put_string(w, "exchange", lt_cost_row_of(&u->exchange)->name);
    lt_json_put_integer(w, "local_steps", is_local ? u->exchange.every : 0);
    lt_json_put_integer(w, "tensor_parallel",
                        u->mesh.data ? u->mesh.depth * u->mesh.rows * u->mesh.columns : 1);
    lt_json_put_integer(w, "backup_workers", u->backup_workers);
    put_positive(w, "drop_compute_seconds", u->deadline);
}

static void put_estimate(lt_json_writer *w, const char *key, const plan_estimate *e)
{
    static const char *const names[] = {"measured", "interpolated", "extrapolated", "model",
                                        "unknown"};
    lt_json_begin_object(w, key);
    lt_json_put_number(w, "value", e->value);
    lt_json_put_string(w, "rests_on", names[e->basis]);
    lt_json_put_number(w, "beyond", e->beyond);
    lt_json_put_number(w, "error", e->error);
    lt_json_put_string(w, "why", e->why);
    lt_json_end(w);
}

/* Writes the parts of a step by the system model; nulls for an optimizer that the profile lacks. */
static void put_cost(lt_json_writer *w, const plan_candidate *of)
{
    const lt_plan_cost *c = &of->cost;
    const double known = of->is_by_runs ? (double)NAN : 1;
    lt_json_begin_object(w, "modelled");
    lt_json_put_number(w, "seconds", known * c->seconds);
    lt_json_put_number(w, "load", known * c->load);
    lt_json_put_number(w, "compute", known * c->compute);
    lt_json_put_number(w, "update", known * c->update);
    lt_json_put_number(w, "exposed", known * c->exposed);
    lt_json_put_number(w, "waiting", known * c->waiting);
    lt_json_end(w);
}

/* Writes the last words of its command line: flags of --vary, and --ranks-per-node if fewer than the flag's. */
static void put_vary_flags(lt_json_writer *w, const plan *p, const plan_candidate *c)
{
    plan_argv all = {0};
    lt_json_begin_array(w, "flags");
    if (!lt_plan_launch_argv(p, c, p->path, &all)) {
        const int flags =
            p->request.axes + (p->trainer->line.args.ranks.ranks_per_node > c->config.setup.ranks);
        for (int i = all.count - flags; i < all.count; i++)
            lt_json_put_string(w, NULL, all.word[i]);
    }
    lt_plan_argv_free(&all);
    lt_json_end(w);
}

static void put_candidate(lt_json_writer *w, const plan *p, const plan_candidate *c)
{
    char *command = lt_plan_command_text(p, c);
    lt_json_begin_object(w, NULL);
    put_config(w, &c->config);
    put_estimate(w, "step_seconds", &c->step);
    put_estimate(w, "steps", &c->steps);
    put_cost(w, c);
    lt_json_put_number(w, "ernest_seconds", c->ernest);
    lt_json_put_string(w, "verdict", *c->verdict.why ? c->verdict.why : NULL);
    lt_json_put_number(w, "memory_bytes", c->cost.memory);
    lt_json_put_number(w, "seconds", c->seconds);
    lt_json_put_number(w, "epoch_seconds", c->epoch);
    lt_json_put_number(w, "price", c->price);
    lt_json_put_string(w, "command", command);
    put_vary_flags(w, p, c);
    lt_json_end(w);
    lt_free(command);
}

static void put_dropped(lt_json_writer *w, const plan_candidate *c)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "ranks", c->config.setup.ranks);
    lt_json_put_string(w, "setting", c->config.label);
    lt_json_put_string(w, "why", c->why);
    if (c->is_possible)
        put_cost(w, c);
    lt_json_end(w);
}

/* --- Pilots --- */

static void put_pilot(lt_json_writer *w, const plan_pilot *q)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "ranks", q->ranks);
    lt_json_put_string(w, "setting", q->label);
    lt_json_put_integer(w, "steps", q->steps);
    lt_json_put_number(w, "predicted_seconds", q->predicted);
    lt_json_put_number(w, "step_seconds", *q->why ? (double)NAN : q->measured);
    lt_json_put_number(w, "rank_seconds", q->spent);
    lt_json_put_string(w, "of", q->of_loss ? "loss" : "step");
    put_positive(w, "slowdown", q->slowdown);
    lt_json_put_string(w, "failed", *q->why ? q->why : NULL);
    lt_json_end(w);
}

static void put_pilots(lt_json_writer *w, const plan *p)
{
    const plan_pilots *all = &p->pilots;
    const bool is_of_flags = all->has_classes && all->class_steps > 0;
    if (!(p->request.pilot_share > 0))
        return;
    lt_json_begin_object(w, "pilots");
    lt_json_put_number(w, "budget_share", p->request.pilot_share);
    lt_json_put_number(w, "rank_seconds", all->spent);
    lt_json_put_number(w, "profile_rank_seconds", p->profile.paid);
    lt_json_put_number(w, "run_rank_seconds", all->run);
    lt_json_put_string(w, "no_more", all->why);
    lt_json_put_number(w, "course_loss", all->has_classes ? all->class_loss : (double)NAN);
    lt_json_put_number(w, "course_steps", is_of_flags ? all->class_steps : (double)NAN);
    lt_json_put_string(w, "course_of",
                       is_of_flags ? p->runs.run[all->class_run].config.label : NULL);
    lt_json_begin_array(w, "made");
    for (int i = 0; i < all->count; i++)
        put_pilot(w, &all->item[i]);
    lt_json_end(w);
    lt_json_end(w);
}

static void put_plan(lt_json_writer *w, const plan *p)
{
    const plan_table *t = &p->table;
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "format", 1);
    lt_json_put_string(w, "program", p->family->program);
    lt_json_put_string(w, "version", lt_version());
    put_goal(w, &p->request.goal);
    put_machine(w, p);
    put_profile(w, &p->profile);
    lt_json_begin_array(w, "runs");
    for (size_t i = 0; i < p->runs.count; i++)
        put_run(w, p, &p->runs.run[i]);
    lt_json_end(w);
    put_batch_curves(w, p);
    put_pilots(w, p);
    lt_json_put_bool(w, "goal_is_known", t->is_known);
    lt_json_begin_array(w, "candidates");
    for (size_t i = 0; i < t->kept; i++)
        put_candidate(w, p, &t->item[i]);
    lt_json_end(w);
    lt_json_begin_array(w, "dropped");
    for (size_t i = t->kept; i < t->count; i++)
        put_dropped(w, &t->item[i]);
    lt_json_end(w);
    lt_json_end(w);
}

lt_status lt_plan_write_json(const plan *p, const char *path)
{
    lt_json_writer w = {0};
    const char *text = NULL;
    size_t bytes;
    put_plan(&w, p);
    lt_status st = strcmp(path, "-") ? lt_json_save(&w, path) : lt_json_text(&w, &text, &bytes);
    if (!st && text)
        puts(text);
    lt_json_writer_clear(&w);
    return st;
}
