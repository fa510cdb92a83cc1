/* Reads run folders of --from: flags, ranks, seconds of a step, and the goal's metric. */

#include "base/alloc.h"
#include "planner.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOWS = 200, DEPTH = 8 };

/* Sums of step times and of their squares. */
typedef struct times {
    double seconds, squares;
} times;

typedef struct reader {
    plan_run *run;
    char field[PLAN_NAME + 8]; /* key of the metric in records of epochs: "val_top1" */
    bool of_steps;             /* the metric is the loss of steps */
    times all, whole; /* seconds of steps after each start's warm-up; and of their whole periods */
    int64_t steps, timed, period; /* since the last start; timed in all; lt_plan_repeat_period() */
    size_t capacity;
} reader;

static lt_status add_point(reader *r, double step, double value)
{
    plan_run *run = r->run;
    LT_TRY(LT_GROW(&run->point, &r->capacity, run->points + 1));
    run->point[run->points++] = (plan_point){step, value};
    return LT_OK;
}

bool lt_plan_is_step_metric(const plan_goal *g)
{
    return !strcmp(g->metric, "train_loss");
}

static double get_number_or_nan(const lt_json_value *record, const char *key)
{
    const lt_json_value *v = lt_json_member(record, key);
    return v && v->type == LT_JSON_NUMBER ? v->number : (double)NAN;
}

static lt_status read_step(reader *r, const lt_json_value *record)
{
    const double seconds = get_number_or_nan(record, "seconds"),
                 noise = get_number_or_nan(record, "noise_scale");
    if (seconds <= 0)
        return lt_fail(LT_E_FORMAT, "--from %s: step %g took %g s, want more than 0", r->run->name,
                       get_number_or_nan(record, "step"), seconds);
    if (++r->steps > PLAN_WARM_STEPS && isfinite(seconds)) {
        r->all.seconds += seconds;
        r->all.squares += seconds * seconds;
        if (++r->timed % r->period == 0)
            r->whole = r->all;
    }
    if (noise > 0)
        r->run->noise_scale = noise;
    if (!r->of_steps)
        return LT_OK;
    const double loss = get_number_or_nan(record, "loss");
    return isfinite(loss) ? add_point(r, get_number_or_nan(record, "step"), loss) : LT_OK;
}

/* Adds an evaluation's metric as a point; ignores train_loss of an epoch, as its steps are points themselves. */
static lt_status read_evaluation(reader *r, const lt_json_value *record)
{
    if (r->of_steps)
        return LT_OK;
    const double step = get_number_or_nan(record, "step"),
                 value = get_number_or_nan(record, r->field);
    return step > 0 && isfinite(value) ? add_point(r, step, value) : LT_OK;
}

static lt_status read_record(reader *r, const lt_json_value *record)
{
    const char *event;
    LT_TRY(lt_json_string(record, "event", &event));
    if (!strcmp(event, "step"))
        return read_step(r, record);
    if (!strcmp(event, "resume")) { /* drops the incomplete period of the last start */
        r->steps = 0;
        r->timed -= r->timed % r->period;
        r->all = r->whole;
    }
    return !strcmp(event, "epoch") || !strcmp(event, "evaluation") ? read_evaluation(r, record)
                                                                   : LT_OK;
}

/* Reads a record; ignores a last line that a kill has truncated. */
static lt_status read_line(reader *r, const char *path, const char *line, size_t bytes)
{
    lt_json *json;
    if (!bytes || line[bytes - 1] != '\n')
        return LT_OK;
    LT_TRY(lt_json_parse(&json, line, bytes, path, DEPTH));
    lt_status st = read_record(r, lt_json_root(json));
    lt_json_free(&json);
    return st;
}

static lt_status read_metrics_file(reader *r, const char *name, bool must)
{
    char path[PLAN_TEXT + 32], *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    lt_status st = LT_OK;
    snprintf(path, sizeof path, "%s/%s", r->run->name, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return must ? lt_fail(LT_E_ARG, "--from %s: not a run folder: it has no %s", r->run->name,
                              name)
                    : LT_OK;
    while (!st && (bytes = getline(&line, &capacity, file)) >= 0)
        st = read_line(r, path, line, (size_t)bytes);
    free(line);
    fclose(file);
    return st;
}

/* Reads an integer member of a JSON file; 0 if absent. */
static int read_json_file_integer(const char *folder, const char *name, const char *key)
{
    char path[PLAN_TEXT + 64];
    lt_json *json;
    int64_t value = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (lt_json_load(&json, path))
        return 0;
    if (lt_json_integer(lt_json_root(json), key, &value))
        value = 0;
    lt_json_free(&json);
    return (int)value;
}

/* --- Flags --- */

/* Reads a run's flags into line. */
static lt_status load_config(plan_run *run, command_line *line, const command_line *like,
                             int per_node)
{
    char path[PLAN_TEXT + 32];
    static const char state[] = "checkpoints/latest/state.json";
    int ranks = read_json_file_integer(run->name, "env.json", "ranks");
    if (!ranks)
        ranks = read_json_file_integer(run->name, state, "ranks");
    if (ranks < 1)
        return lt_fail(LT_E_ARG,
                       "--from %s: neither env.json nor a checkpoint has the number of ranks",
                       run->name);
    snprintf(path, sizeof path, "%s/config.yaml", run->name);
    LT_TRY(lt_command_line_open(line, like->choice.family, like->program));
    LT_TRY(lt_command_line_open_options(line, NULL));
    lt_status st = lt_options_load(line->options, path);
    if (st)
        return lt_fail(LT_E_ARG, "--from %s: not a run folder: %s", run->name, lt_error_message());
    LT_TRY(lt_optim_flags_resolve(&line->args.optim, line->options));
    LT_TRY(lt_plan_check_same_samples(like->options, line->options, run->name));
    const int64_t own = line->args.ranks.ranks_per_node;
    LT_TRY(lt_plan_read_config(&run->config, line, ranks, own ? (int)own : per_node));
    if (!run->config.threads)
        run->config.real_threads = read_json_file_integer(run->name, state, "threads");
    return LT_OK;
}

static lt_status read_run_config(plan_run *run, const command_line *like, int per_node)
{
    command_line line = {0};
    const lt_status st = load_config(run, &line, like, per_node);
    lt_command_line_close(&line);
    return st;
}

/* --- The goal --- */

static int compare_by_step(const void *x, const void *y)
{
    const plan_point *a = x, *b = y;
    return a->step > b->step ? 1 : -(a->step < b->step);
}

/* Replaces each loss, which is of a single batch, by the mean over the last twentieth of the run before it; drops
 * means of incomplete windows. */
static void smooth_losses(plan_run *run)
{
    const size_t window = run->points / 20 + 5;
    const size_t first = run->points < window ? run->points : window - 1;
    double sum = 0, oldest = 0;
    for (size_t i = 0; i < run->points; i++) {
        sum += run->point[i].value - oldest;
        if (i < first)
            continue;
        oldest = run->point[i - first].value; /* the next window is without it */
        run->point[i - first] = (plan_point){run->point[i].step, sum / (double)window};
    }
    run->points -= first;
}

/* Reduces the points to means over WINDOWS windows of equal length. */
static void reduce_points_to_windows(plan_run *run)
{
    const size_t count = run->points;
    if (count <= WINDOWS)
        return;
    for (size_t i = 0; i < WINDOWS; i++) {
        const size_t from = i * count / WINDOWS, to = (i + 1) * count / WINDOWS;
        plan_point sum = {0};
        for (size_t k = from; k < to; k++) {
            sum.step += run->point[k].step / (double)(to - from);
            sum.value += run->point[k].value / (double)(to - from);
        }
        run->point[i] = sum;
    }
    run->points = WINDOWS;
}

static void find_step_of_goal(plan_run *run, const plan_goal *g)
{
    for (size_t i = 0; i < run->points && !(run->reached > 0); i++)
        if (g->lower ? run->point[i].value <= g->value : run->point[i].value >= g->value)
            run->reached = run->point[i].step;
}

/* Returns the relative standard error of the mean seconds of a step. */
static double relative_standard_error(const reader *r)
{
    if (r->run->timed < 2)
        return 0;
    const double count = (double)r->run->timed, mean = r->run->seconds;
    const double variance = (r->whole.squares / count - mean * mean) / (count - 1);
    return variance > 0 ? sqrt(variance) / mean : 0;
}

static lt_status read_run(plan_run *run, const char *folder, const command_line *like,
                          const plan_goal *goal, int per_node)
{
    reader r = {.run = run, .of_steps = lt_plan_is_step_metric(goal)};
    snprintf(run->name, sizeof run->name, "%s", folder);
    snprintf(r.field, sizeof r.field, "%s%s", r.of_steps ? "" : "val_", goal->metric);
    LT_TRY(read_run_config(run, like, per_node));
    r.period = lt_plan_repeat_period(&run->config.setup);
    LT_TRY(read_metrics_file(&r, "metrics.jsonl", true));
    LT_TRY(read_metrics_file(&r, "metrics-eval.jsonl", false));
    run->timed = r.timed - r.timed % r.period;
    run->seconds = run->timed ? r.whole.seconds / (double)run->timed : 0;
    run->spread = relative_standard_error(&r);
    if (run->points)
        qsort(run->point, run->points, sizeof *run->point, compare_by_step);
    if (r.of_steps)
        smooth_losses(run);
    reduce_points_to_windows(run);
    find_step_of_goal(run, goal);
    return LT_OK;
}

/* --- All of them --- */

static lt_status add_run(plan_runs *runs, const char *name, const command_line *like,
                         const plan_goal *goal, int per_node)
{
    LT_TRY(LT_RESIZE(&runs->run, runs->count + 1));
    plan_run *run = &runs->run[runs->count];
    *run = (plan_run){0};
    const lt_status st = read_run(run, name, like, goal, per_node);
    if (st) {
        lt_free(run->point);
        return st;
    }
    runs->count++;
    runs->most = run->config.setup.ranks > runs->most ? run->config.setup.ranks : runs->most;
    return LT_OK;
}

static lt_status read_run_list(plan_runs *runs, const char *text, const command_line *like,
                               const plan_goal *goal, int per_node)
{
    char name[PLAN_TEXT];
    for (const char *at = text;; at++) {
        const size_t bytes = strcspn(at, ",");
        if (!bytes || bytes >= sizeof name)
            return lt_fail(LT_E_ARG, "--from %s: want run folders separated by commas", text);
        snprintf(name, sizeof name, "%.*s", (int)bytes, at);
        LT_TRY(add_run(runs, name, like, goal, per_node));
        at += bytes;
        if (!*at)
            return LT_OK;
    }
}

lt_status lt_plan_read_runs(plan_runs *out, const lt_option_list *folders, const command_line *like,
                            const plan_goal *goal, int per_node)
{
    const size_t rest = lt_options_positional_count(like->options);
    if (rest && !folders->count)
        return lt_fail(LT_E_ARG, "'%s': an argument without a flag; name runs after --from",
                       lt_options_positional(like->options, 0));
    for (size_t i = 0; i < folders->count; i++)
        LT_TRY(read_run_list(out, folders->item[i], like, goal, per_node));
    for (size_t i = 0; i < rest; i++)
        LT_TRY(add_run(out, lt_options_positional(like->options, i), like, goal, per_node));
    return LT_OK;
}

lt_status lt_plan_read_pilot(plan_runs *runs, const char *folder, const plan *p, bool of_loss)
{
    static const plan_goal loss = {.metric = "train_loss", .lower = true, .value = -HUGE_VAL};
    const plan_goal *g = &p->request.goal;
    if (of_loss && !lt_plan_is_step_metric(g))
        g = &loss;
    LT_TRY(add_run(runs, folder, &p->trainer->line, g, p->request.per_node));
    plan_run *run = &runs->run[runs->count - 1];
    run->is_pilot = true;
    run->points = of_loss ? run->points : 0;
    return LT_OK;
}

lt_status lt_plan_read_losses(plan_run *out, const char *folder)
{
    reader r = {.run = out, .of_steps = true, .period = 1};
    *out = (plan_run){0};
    snprintf(out->name, sizeof out->name, "%s", folder);
    return read_metrics_file(&r, "metrics.jsonl", true);
}

void lt_plan_free_runs(plan_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        lt_free(runs->run[i].point);
    lt_free(runs->run);
    *runs = (plan_runs){0};
}
