/* The command `plan`: parses flags, reads runs, reads or measures the profile, chooses, and prints the plan. */

#include "base/alloc.h"
#include "base/clock.h"
#include "planner.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char description[] =
    "Predicts the time, cost and memory of runs on several numbers of ranks and with several flags, and prints a table, the "
    "best first, and the command line of the best. Takes all flags of training, as training does. The parts of a step are "
    "measured here at one rank (--step-profile keeps them), its communication is simulated; runs of --from give the number "
    "of steps to the goal. What cannot be predicted is marked as unknown.\n\n"
    "Exit status: 0 done, 1 an error, 2 a wrong command line.";

/* --- The profile --- */

/* Measures the CPU time of the candidate's gradient reducer; of all reducers if --step-profile saves a file. */
static lt_status measure_exchange(plan *p, const plan_config *c)
{
    const double begin = lt_clock_seconds();
    LT_TRY(
        lt_plan_measure_exchange(&p->profile, c->setup.exchange.reducer, p->options.step_profile));
    p->profile.spent += lt_clock_seconds() - begin;
    return LT_OK;
}

/* Measures a candidate's optimizer unless it is already in the profile. */
static lt_status measure_choice(plan *p, const int *choice)
{
    lt_trainer t = {0};
    plan_config c;
    lt_status st = lt_plan_parse_candidate(p, choice, &t);
    if (!st)
        st = lt_plan_read_config(&c, &t.line, 1, 1);
    const bool is_rejected = st == LT_E_ARG; /* reported with the candidates */
    if (!st && !lt_plan_find_optimizer(&p->profile, &c))
        st = lt_plan_measure_step_parts(&p->profile, &t, p->options.profile_seconds);
    if (!st)
        st = measure_exchange(p, &c);
    lt_trainer_close(&t);
    return is_rejected ? LT_OK : st;
}

static lt_status measure_all_choices(plan *p)
{
    int choice[PLAN_AXES] = {0};
    plan_workers workers;
    p->profile.ranks = (double)p->options.profile_ranks;
    lt_status st = lt_plan_workers_start(&workers, p, lt_plan_worker_run);
    p->profile.workers = &workers;
    do
        st = st ? st : measure_choice(p, choice);
    while (lt_plan_next_choice(&p->request, choice) && !st);
    p->profile.paid = p->profile.ranks * p->profile.spent;
    p->profile.workers = NULL;
    lt_plan_workers_stop(&workers);
    return st;
}

static lt_status load_or_measure_profile(plan *p)
{
    const char *path = p->options.step_profile;
    if (path && !access(path, F_OK)) {
        LT_TRY(lt_plan_profile_load(&p->profile, path));
        return lt_plan_check_profile(p);
    }
    if (p->options.simulate && !path)
        fprintf(stderr,
                "%s plan: measures steps on this machine; give --step-profile FILE of the "
                "simulated machine instead\n",
                p->family->program);
    LT_TRY(measure_all_choices(p));
    return path && p->profile.batches ? lt_plan_profile_save(&p->profile, path) : LT_OK;
}

/* --- The command --- */

/* Looks up the goal's metric in the task's table: is lower better, and is it a percentage. */
static lt_status resolve_goal_metric(plan_goal *g, const lt_task_ops *task)
{
    char known[PLAN_TEXT] = "loss, train_loss";
    size_t at = strlen(known);
    g->lower = !strcmp(g->metric, "loss") || !strcmp(g->metric, "train_loss");
    for (int i = 0; i < task->metrics; i++) {
        const lt_task_metric *m = &task->metric[i];
        if (!strcmp(m->name, g->metric)) {
            g->lower = m->lower_is_better;
            g->percent = m->unit && !strcmp(m->unit, "%");
            return LT_OK;
        }
        if (at < sizeof known)
            at += (size_t)snprintf(known + at, sizeof known - at, ", %s", m->name);
    }
    return g->lower || !*g->metric
               ? LT_OK
               : lt_fail(LT_E_ARG, "--goal %s: no metric of this program; known: %s, deadline",
                         g->metric, known);
}

static lt_status read_request_and_runs(plan *p, int argc, char *const *argv)
{
    const command_line *line = &p->trainer->line;
    LT_TRY(lt_trainer_check(p->trainer));
    LT_TRY(lt_plan_parse_request(&p->request, &p->options, line->args.ranks.ranks_per_node));
    LT_TRY(resolve_goal_metric(&p->request.goal, line->program->task));
    LT_TRY(lt_plan_training_argv(&p->argv, argc, argv, &p->request, line->options));
    LT_TRY(
        lt_plan_read_runs(&p->runs, &p->options.from, line, &p->request.goal, p->request.per_node));
    return lt_plan_fit_loss_models(&p->runs, &p->request.goal);
}

static lt_status output_plan(const plan *p)
{
    const char *json = p->options.json;
    if (json)
        LT_TRY(lt_plan_write_json(p, json));
    if (!json || strcmp(json, "-") != 0)
        lt_plan_print(p, stdout);
    return LT_OK;
}

lt_status lt_plan_run(plan *p, int argc, char *const *argv)
{
    LT_TRY(read_request_and_runs(p, argc, argv));
    LT_TRY(load_or_measure_profile(p));
    p->pilots.racing = p->request.pilot_share > 0;
    LT_TRY(lt_plan_choose(p));
    if (p->request.pilot_share > 0)
        LT_TRY(lt_plan_run_all_pilots(p));
    p->trainer->at_work = true;
    return LT_OK;
}

lt_status lt_plan_parse(plan *p, const lt_program *program, int argc, char *const *argv)
{
    command_line training = {0};
    arguments_more more = {.program = program};
    lt_status st = lt_command_line_open(&training, p->family, p->program);
    if (!st)
        st = lt_command_line_open_options(&training, NULL);
    if (!st)
        more.table = lt_plan_option_table(&p->options, training.options);
    lt_command_line_close(&training);
    LT_TRY(st);
    return lt_trainer_parse(p->trainer, p->family, p->program, &more, argc, argv);
}

static lt_status run_plan_command(plan *p, const lt_program *program, int argc, char *const *argv)
{
    LT_TRY(lt_plan_parse(p, program, argc, argv));
    if (lt_options_requested(p->trainer->line.options) != LT_OPTIONS_RUN)
        return lt_options_print_request(p->trainer->line.options, stdout);
    char why[PLAN_REASON];
    const lt_status st = lt_plan_run(p, argc, argv);
    if (st && (p->table.kept || !p->table.count))
        return st;
    snprintf(why, sizeof why, "%s", lt_error_message()); /* the table has all reasons */
    LT_TRY(output_plan(p));
    return st ? lt_fail(st, "%s", why) : LT_OK;
}

int lt_plan_finish(plan *p, const char *name, lt_status st)
{
    const int code = lt_trainer_exit_status(p->trainer, st);
    if (st)
        fprintf(stderr, "%s: %s\n", name, lt_error_message());
    lt_trainer_close(p->trainer);
    lt_plan_profile_clear(&p->profile);
    lt_plan_free_runs(&p->runs);
    lt_plan_argv_free(&p->argv);
    lt_free(p->table.item);
    return code;
}

int lt_command_plan(int argc, char **argv, const lt_model_family *family,
                    const lt_trainer_program *program)
{
    char name[PLAN_TEXT];
    lt_trainer t = {0};
    plan p = {.family = family, .program = program, .trainer = &t, .path = argv[-1]};
    const lt_program text = {.name = name,
                             .summary = "predicts the cost of runs and chooses one",
                             .usage = "--goal NAME=VALUE --ranks A..B --data DIR [OPTION]...",
                             .description = description,
                             .rest = true};
    snprintf(name, sizeof name, "%s plan", family->program);
    return lt_plan_finish(&p, name, run_plan_command(&p, &text, argc, argv));
}
