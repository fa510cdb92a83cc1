/* Hooks about a metric that has not improved in the last evaluations. Early stopping ends the run: Prechelt, "Early
 * stopping - but when?", 1998: the criterion UP, with a least improvement. --sched plateau lowers the learning rate, as
 * torch's ReduceLROnPlateau with its default threshold. */

#include "program.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 512, MOST_PATIENCE = 1000000000 };

/* Finds a metric among those of an epoch's record; names lists them all. */
static bool find_metric(const char *metric, const lt_task_ops *task, bool *higher_is_better,
                        char names[NAMES])
{
    const lt_task_metric loss = {.name = "loss", .of_training = true, .lower_is_better = true};
    bool found = false;
    size_t at = 0;
    for (int i = 0; i < 2 * (task->metrics + 1); i++) {
        const lt_task_metric *m = i < 2 ? &loss : &task->metric[i / 2 - 1];
        char name[LT_CHECKPOINT_NAME];
        if (!m->of_training && i % 2 == 0)
            continue;
        snprintf(name, sizeof name, "%s_%s", i % 2 ? "val" : "train", m->name);
        at += (size_t)snprintf(names + at, NAMES - at, "%s%s", i ? ", " : "", name);
        at = at < NAMES ? at : NAMES - 1;
        if (strcmp(name, metric) != 0)
            continue;
        found = true;
        *higher_is_better = !m->lower_is_better;
    }
    return found;
}

static bool is_of_training(const char *metric)
{
    return !strncmp(metric, "train_", 6);
}

/* Checks that the run computes the metric that the flag names, in evaluations or epochs. */
static lt_status check_metric(early_stop *e, const char *flag, const evaluation_options *o,
                              const lt_task_ops *task)
{
    char names[NAMES];
    if (!find_metric(e->metric, task, &e->higher_is_better, names))
        return lt_fail(LT_E_ARG, "--%s: unknown metric '%s'; metrics: %s", flag, e->metric, names);
    if (!is_of_training(e->metric) && !o->eval && o->eval_every < 1)
        return lt_fail(LT_E_ARG,
                       "--%s %s: needs evaluations during the run, but --eval-every is %lld; "
                       "1 evaluates after each epoch",
                       flag, e->metric, (long long)o->eval_every);
    return LT_OK;
}

lt_status lt_check_target(const char *flag, double target, const evaluation_options *o)
{
    return !(target > 0) || o->eval || o->watch || o->eval_every >= 0
               ? LT_OK
               : lt_fail(LT_E_ARG,
                         "--%s: needs evaluations during the run, but --eval-every is %lld; 1 "
                         "evaluates after each epoch",
                         flag, (long long)o->eval_every);
}

/* Lists the numbers to save, and sets the function to call when the metric is known. */
static void set_hooks(early_stop *e, int numbers, lt_train_hook *call)
{
    static const char *const suffix[] = {"best", "count", "reductions"};
    double *const value[] = {&e->best, &e->count, &e->reductions};
    for (int i = 0; i < 3 && i < numbers; i++) {
        snprintf(e->name[i], sizeof e->name[i], "%.48s_%s", e->metric, suffix[i]);
        e->number[i] = (lt_train_number){e->name[i], value[i]};
    }
    e->hooks.number = e->number;
    e->hooks.numbers = (size_t)numbers;
    *(is_of_training(e->metric) ? &e->hooks.after_epoch : &e->hooks.after_evaluation) = call;
}

/* Parses METRIC:PATIENCE[:MIN_DELTA]. */
static lt_status parse(early_stop *e, const char *text, const evaluation_options *o,
                       const lt_task_ops *task)
{
    const size_t bytes = strcspn(text, ":");
    const char *at = text + bytes + (text[bytes] == ':');
    char *end;
    snprintf(e->metric, sizeof e->metric, "%.*s", (int)bytes, text);
    LT_TRY(check_metric(e, "early-stop", o, task));
    e->patience = strtoll(at, &end, 10);
    bool is_valid = e->patience >= 1 && e->patience <= MOST_PATIENCE;
    if (*end == ':') {
        at = end + 1;
        e->min_delta = strtod(at, &end);
        is_valid = is_valid && end > at && e->min_delta >= 0 && isfinite(e->min_delta);
    }
    if (is_valid && !*end)
        return LT_OK;
    return lt_fail(
        LT_E_ARG,
        "--early-stop: got '%s', want METRIC:PATIENCE[:MIN_DELTA] with a patience of 1 to "
        "%d and a MIN_DELTA of 0 or more, such as %s:3",
        text, MOST_PATIENCE, e->metric);
}

static bool is_better(const early_stop *e, double value)
{
    const double least = e->schedule ? 1e-4 * fabs(e->best) : e->min_delta;
    if (isnan(e->best) || isnan(value))
        return !isnan(value);
    return e->higher_is_better ? value > e->best + least : value < e->best - least;
}

static void count_value(early_stop *e, double value)
{
    const bool better = is_better(e, value);
    e->count = better ? 0 : e->count + 1;
    e->best = better ? value : e->best;
}

/* Ends the run if the patience is over; before a resumed run, if it had ended so. */
static lt_status check_patience(void *context, const lt_train_view *view, bool *stop)
{
    const early_stop *e = context;
    *stop = e->count >= (double)e->patience;
    if (*stop)
        lt_train_note(view,
                      "%s: no improvement on %.6g in %.0f evaluations; a larger patience of "
                      "--early-stop would train on",
                      e->metric, e->best, e->count);
    return LT_OK;
}

static lt_status count_evaluation(void *context, const lt_train_view *view, bool *stop)
{
    early_stop *e = context;
    count_value(e, lt_train_view_metric(view, e->metric));
    return check_patience(context, view, stop);
}

lt_status lt_early_stop_open(early_stop *e, const evaluation_options *o, const lt_task_ops *task)
{
    *e = (early_stop){.best = (double)NAN};
    e->hooks = (lt_train_hooks){.name = "early_stop", .context = e};
    if (!o->early_stop || !strcmp(o->early_stop, "off"))
        return LT_OK;
    LT_TRY(parse(e, o->early_stop, o, task));
    if (o->eval)
        return lt_fail(LT_E_ARG, "--early-stop and --eval contradict each other");
    e->hooks.before_run = check_patience;
    set_hooks(e, 2, count_evaluation);
    return LT_OK;
}

static lt_status restore_rate(void *context, const lt_train_view *view, bool *stop)
{
    const early_stop *e = context;
    (void)view;
    (void)stop;
    e->schedule->reductions = (int64_t)e->reductions;
    return LT_OK;
}

static lt_status lower_rate(void *context, const lt_train_view *view, bool *stop)
{
    early_stop *e = context;
    (void)stop;
    count_value(e, lt_train_view_metric(view, e->metric));
    if (e->count <= (double)e->patience)
        return LT_OK;
    e->schedule->reductions = (int64_t)++e->reductions;
    lt_train_note(view,
                  "%s: no improvement on %.6g in %.0f evaluations; the learning rate is now %g",
                  e->metric, e->best, e->count, lt_schedule_lr(e->schedule, view->step + 1));
    e->count = 0;
    return LT_OK;
}

lt_status lt_plateau_open(early_stop *e, const schedule_options *o,
                          const evaluation_options *evaluation, const lt_task_ops *task,
                          lt_schedule *schedule)
{
    *e = (early_stop){.best = (double)NAN, .patience = o->patience, .schedule = schedule};
    e->hooks = (lt_train_hooks){.name = "plateau", .context = e};
    if (o->sched != LT_SCHEDULE_PLATEAU || evaluation->eval)
        return LT_OK;
    snprintf(e->metric, sizeof e->metric, "%s", o->plateau_metric);
    LT_TRY(check_metric(e, "sched-kwargs metric", evaluation, task));
    e->hooks.before_run = restore_rate;
    set_hooks(e, 3, lower_rate);
    return LT_OK;
}
