/* --plan auto: plans, prints the choice and its reasons, and trains with it in the same process. The choice becomes
 * ordinary flags, so that config.yaml stores them, and a resume repeats them without planning. */

#include "planner.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 5 };

/* Prediction and progress of the chosen run. */
typedef struct progress {
    double step_seconds; /* predicted; 0: nothing was planned */
    double steps;        /* predicted, to the goal; NaN: unknown */
    char metric[32];     /* goal, as named in records of epochs: "val_loss"; "": none */
    plan_goal goal;
    double seconds;     /* training time so far */
    lt_power_fit power; /* power law fitted to the losses of the epochs so far */
    lt_loss_model loss; /* Hemingway's model, fitted to the plan's runs; valid if ranks > 0 */
    double ranks;       /* number of ranks of this run; 0: no model of the loss */
    double above;       /* sum of epochs' log10 of (measured - floor) / (predicted loss - floor) */
    double epochs;      /* number of epochs in the sum `above` */
} progress;

/* --- Resuming --- */

/* Finds config.yaml of the run that --resume continues; path becomes "" if absent. */
static void find_config_to_resume(const output_options *o, char *path, size_t size)
{
    snprintf(path, size, "%s/config.yaml", o->output ? o->output : "");
    if (!o->resume || !o->output || access(path, F_OK))
        *path = 0;
}

/* Adds the training flags, and the flags of --vary with the values in the resumed run's config.yaml. */
static lt_status add_flags_of_resumed_run(const plan *p, const char *config, plan_argv *out)
{
    command_line then = {0};
    char value[PLAN_TEXT];
    lt_status st = lt_command_line_open(&then, p->family, p->program);
    if (!st)
        st = lt_command_line_open_options(&then, NULL);
    if (!st)
        st = lt_options_load(then.options, config);
    for (int i = 0; i < p->argv.count && !st; i++)
        st = lt_plan_argv_add(out, "%s", p->argv.word[i]);
    for (int i = 0; i < p->request.axes && !st; i++) {
        const char *flag = p->request.axis[i].flag;
        if (lt_options_applies(then.options, flag))
            st = lt_plan_argv_add_flag(out, then.options, flag,
                                       lt_options_text(then.options, flag, value, sizeof value));
    }
    lt_command_line_close(&then);
    return st;
}

static lt_status resume_without_planning(plan *p, int argc, char *const *argv, const char *config,
                                         plan_argv *out)
{
    const command_line *line = &p->trainer->line;
    LT_TRY(lt_plan_parse_request(&p->request, &p->options, line->args.ranks.ranks_per_node));
    LT_TRY(lt_plan_training_argv(&p->argv, argc, argv, &p->request, line->options));
    fprintf(stderr, "%s: --plan auto: continues with the flags of %s\n", p->family->program,
            config);
    return add_flags_of_resumed_run(p, config, out);
}

/* --- A new run --- */

/* Rejects several ranks without an existing profile: each rank plans independently, so all must read the same one. */
static lt_status check_ranks_can_plan(const plan *p)
{
    const char *profile = p->options.step_profile;
    if (!strcmp(lt_comm_launched_kind(), "self"))
        return LT_OK;
    if (p->options.pilots == PILOTS_AUTO || !profile || access(profile, F_OK))
        return lt_fail(LT_E_ARG, "--plan auto: each rank plans independently: several ranks need "
                                 "an existing --step-profile and no --pilots");
    return LT_OK;
}

/* Checks that there is something to fit models to. Errors: LT_E_ARG: neither runs of --from nor --pilots. */
static lt_status check_has_measurements(const plan *p)
{
    const size_t runs =
        p->options.from.count + lt_options_positional_count(p->trainer->line.options);
    if (p->options.pilots == PILOTS_AUTO || runs)
        return LT_OK;
    return lt_fail(LT_E_ARG, "--plan auto: no measurements: add runs by --from, or --pilots auto");
}

/* Errors: LT_E_ARG: the best candidate has another number of ranks than this run. */
static lt_status check_ranks_of_best(const plan *p)
{
    int rank, ranks;
    const int wanted = p->table.item[0].config.setup.ranks;
    lt_comm_launched_local(&rank, &ranks);
    const int64_t now = ranks * (p->options.nodes ? p->options.nodes : 1);
    if (wanted == now || (!strcmp(lt_comm_launched_kind(), "self") && wanted == 1))
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--plan auto: the best candidate has %d ranks, this run has %d: start it by the "
                   "command above",
                   wanted, ranks);
}

static void print_plan(plan *p)
{
    int rank, ranks;
    lt_comm_launched_local(&rank, &ranks);
    if (!lt_options_is_set(p->trainer->line.options, lt_plan_flag_name(&p->options, "rows")))
        p->options.rows = ROWS;
    if (!rank)
        lt_plan_print(p, stdout);
    fflush(stdout);
}

static void store_prediction(const plan *p, progress *out)
{
    const plan_candidate *best = &p->table.item[0];
    const plan_goal *g = &p->request.goal;
    *out = (progress){.step_seconds = best->step.value, .steps = best->steps.value, .goal = *g};
    const lt_loss_model *loss = lt_plan_find_loss_model(&p->runs, &best->config);
    if (loss) {
        out->loss = *loss;
        out->ranks = best->config.setup.ranks;
    }
    if (*g->metric)
        snprintf(out->metric, sizeof out->metric, "%s%.24s",
                 strcmp(g->metric, "train_loss") ? "val_" : "", g->metric);
}

static lt_status plan_and_choose(plan *p, int argc, char *const *argv, plan_argv *out,
                                 progress *expected)
{
    LT_TRY(check_ranks_can_plan(p));
    LT_TRY(check_has_measurements(p));
    LT_TRY(lt_plan_run(p, argc, argv));
    print_plan(p);
    p->trainer->at_work = false; /* errors from here on are those of the command line */
    LT_TRY(check_ranks_of_best(p));
    store_prediction(p, expected);
    return lt_plan_candidate_argv(p, p->table.item[0].choice, out);
}

static lt_status plan_or_resume(plan *p, int argc, char *const *argv, plan_argv *out,
                                progress *expected)
{
    char config[PLAN_TEXT];
    const lt_program text = {.name = p->family->program,
                             .summary = "plans, then trains",
                             .usage = "--plan auto --goal NAME=VALUE [OPTION]...",
                             .rest = true};
    LT_TRY(lt_plan_parse(p, &text, argc, argv));
    if (lt_options_requested(p->trainer->line.options) != LT_OPTIONS_RUN)
        return lt_options_print_request(p->trainer->line.options, stdout);
    LT_TRY(lt_plan_argv_add(out, "%s", argv[0]));
    find_config_to_resume(&p->trainer->line.args.output, config, sizeof config);
    return *config ? resume_without_planning(p, argc, argv, config, out)
                   : plan_and_choose(p, argc, argv, out, expected);
}

/* --- While it runs --- */

/* Adds an epoch's loss to both models; loss: its metric, mapped to a value that falls to 0. */
static void add_epoch_loss(progress *p, double step, double loss)
{
    lt_plan_add_power_law_point(&p->power, step, loss);
    const double predicted = p->ranks > 0 ? lt_loss_predict(&p->loss, p->ranks, step) : 0;
    if (!(p->ranks > 0) || !(loss > p->loss.floor))
        return;
    p->above += log10((loss - p->loss.floor) / (predicted - p->loss.floor));
    p->epochs++;
}

/* Steps to the goal by Hemingway's model of the plan's runs, shifted to the mean level of the epochs so far; without a
 * model by a power law through the epochs. NaN: unknown. */
static double predict_steps_from_epochs(const progress *p)
{
    const double goal = lt_plan_as_loss(&p->goal, p->goal.value);
    const double by = pow(10, p->above / p->epochs);
    double steps;
    if (p->epochs > 0
        && !lt_loss_steps(&steps, &p->loss, p->ranks, p->loss.floor + (goal - p->loss.floor) / by))
        return steps;
    return lt_plan_power_law_steps(&p->power, goal);
}

/* Returns the steps to the goal: predicted by the epochs so far, else as planned; at most the length of the run. */
static double refine_steps(progress *p, const lt_train_view *view)
{
    const double total = (double)view->total_steps;
    const bool falls = p->goal.lower || p->goal.percent;
    const double value = lt_train_view_metric(view, p->metric);
    if (falls && !isnan(value))
        add_epoch_loss(p, (double)view->step, lt_plan_as_loss(&p->goal, value));
    const double own = predict_steps_from_epochs(p);
    const double steps = isfinite(own) ? own : p->steps;
    return isfinite(steps) && steps < total ? steps : total;
}

/* After-epoch hook: writes an event "plan" with the seconds so far and the predicted rest to metrics.jsonl. */
static lt_status record_prediction(void *context, const lt_train_view *view, bool *stop)
{
    progress *p = context;
    const double now = (double)view->step;
    (void)stop;
    p->seconds += lt_train_view_metric(view, "seconds");
    const double steps = refine_steps(p, view), step = p->seconds / now;
    const lt_metric value[] = {{"predicted_seconds", p->step_seconds * p->steps},
                               {"predicted_step_seconds", p->step_seconds},
                               {"measured_seconds", p->seconds},
                               {"measured_step_seconds", step},
                               {"steps", steps},
                               {"left_seconds", steps > now ? (steps - now) * step : 0}};
    return lt_run_event_values(view->run, "plan", view->step, value, sizeof value / sizeof *value);
}

static int plan_then_train(int argc, char **argv, const lt_model_family *family,
                           const lt_trainer_program *program)
{
    lt_trainer t = {0};
    plan p = {.family = family, .program = program, .trainer = &t, .path = argv[0]};
    plan_argv chosen = {0};
    progress expected = {0};
    const lt_train_hooks hooks = {
        .name = "plan", .context = &expected, .after_epoch = record_prediction};
    const lt_status st = plan_or_resume(&p, argc, argv, &chosen, &expected);
    int code = lt_plan_finish(&p, family->program, st);
    if (!st && chosen.count) /* 0: --help */
        code = lt_trainer_train_by(chosen.count, chosen.word, family, program,
                                   expected.step_seconds > 0 ? &hooks : NULL);
    lt_plan_argv_free(&chosen);
    return code;
}

/* --- The command of the trainer --- */

static int plan_main(int argc, char **argv, const lt_model_family *family,
                     const lt_trainer_program *program)
{
    return argc > 1 && !strcmp(argv[1], lt_plan_command.name)
               ? lt_command_plan(argc - 1, argv + 1, family, program)
               : plan_then_train(argc, argv, family, program);
}

static bool has_plan_auto_flag(int argc, char *const *argv)
{
    static const char flag[] = "--plan";
    bool has_auto = false;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!strcmp(argv[i], flag))
            has_auto = i + 1 < argc && !strcmp(argv[i + 1], "auto");
        else if (!strncmp(argv[i], "--plan=", strlen("--plan=")))
            has_auto = !strcmp(argv[i] + strlen("--plan="), "auto");
    }
    return has_auto;
}

/* clang-format off */
static const lt_option option = {
    "Plan", .name = "plan", .type = LT_OPTION_CHOICE, .choices = "off|auto", .once = true, .help = "auto: plan first, by --goal, --ranks, --vary, --pilots and other flags of the command plan, then train with the best candidate"
};
/* clang-format on */

const lt_trainer_command lt_plan_command = {
    .name = "plan", .main = plan_main, .option = &option, .is_asked = has_plan_auto_flag};
