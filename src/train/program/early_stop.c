/* Early stopping: a hook that ends a run whose metric has not improved in the last evaluations. Prechelt, "Early
 * stopping - but when?", 1998: the criterion UP, with a least improvement. */

#include "program.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 512, MOST_PATIENCE = 1000000000 };

static const char train_part[] = "train_", val_part[] = "val_";

/* --- The option's text --- */

static bool has_prefix(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

/* Lists the metrics of the task's epochs. */
static void list_metrics(char out[NAMES], const lt_task_ops *task)
{
    int at = snprintf(out, NAMES, "train_loss, val_loss");
    for (int i = 0; i < task->metrics && at < NAMES; i++) {
        const lt_task_metric *m = &task->metric[i];
        if (m->of_training)
            at += snprintf(out + at, (size_t)(NAMES - at), ", train_%s", m->name);
        if (at < NAMES)
            at += snprintf(out + at, (size_t)(NAMES - at), ", val_%s", m->name);
    }
}

/* Finds a metric by its name in records of epochs, and its direction. */
static bool find_metric(const char *name, const lt_task_ops *task, bool *higher)
{
    const bool is_train = has_prefix(name, train_part);
    if (!is_train && !has_prefix(name, val_part))
        return false;
    const char *own = name + strlen(is_train ? train_part : val_part);
    *higher = false;
    if (!strcmp(own, "loss"))
        return true;
    for (int i = 0; i < task->metrics; i++) {
        const lt_task_metric *m = &task->metric[i];
        *higher = !m->lower_is_better;
        if (!strcmp(own, m->name) && (m->of_training || !is_train))
            return true;
    }
    return false;
}

/* Parses ":PATIENCE" and ":MIN_DELTA" after the metric. */
static lt_status parse_limits(early_stop *out, const char *text, const char *at)
{
    char *end;
    if (*at != ':' || !at[1])
        return lt_fail(LT_E_ARG,
                       "--early-stop: '%s' has no patience; %s:3 ends the run after 3 evaluations "
                       "without an improvement",
                       text, out->metric);
    errno = 0;
    out->patience = strtoll(at + 1, &end, 10);
    if (end == at + 1 || (*end && *end != ':') || errno || out->patience < 1
        || out->patience > MOST_PATIENCE)
        return lt_fail(LT_E_ARG, "--early-stop: the patience in '%s' is not a number from 1 to %d",
                       text, MOST_PATIENCE);
    if (!*end)
        return LT_OK;
    const char *delta = end + 1;
    out->min_delta = strtod(delta, &end);
    if (end == delta || *end || !(out->min_delta >= 0) || isinf(out->min_delta))
        return lt_fail(LT_E_ARG, "--early-stop: MIN_DELTA in '%s' is not a number of at least 0",
                       text);
    return LT_OK;
}

/* --- The hook --- */

static bool is_patience_over(const early_stop *e)
{
    return e->count >= (double)e->patience;
}

static bool is_better(const early_stop *e, double value)
{
    if (isnan(e->best) || isnan(value))
        return !isnan(value);
    return e->higher_is_better ? value > e->best + e->min_delta : value < e->best - e->min_delta;
}

static lt_status count_evaluation(void *context, const lt_train_view *view, bool *stop)
{
    early_stop *e = context;
    const double value = lt_train_view_metric(view, e->metric);
    if (is_better(e, value)) {
        e->best = value;
        e->count = 0;
        return LT_OK;
    }
    e->count++;
    *stop = is_patience_over(e);
    if (*stop)
        lt_train_note(view, "%s %.6g: no improvement on %.6g in %lld evaluations", e->metric, value,
                      e->best, (long long)e->patience);
    return LT_OK;
}

/* Ends a resumed run that had ended so, unless the patience is larger now. */
static lt_status check_resumed(void *context, const lt_train_view *view, bool *stop)
{
    const early_stop *e = context;
    *stop = is_patience_over(e);
    if (*stop)
        lt_train_note(view,
                      "%s: no improvement on %.6g in %.0f evaluations before this resume; a larger "
                      "patience of --early-stop trains on",
                      e->metric, e->best, e->count);
    return LT_OK;
}

lt_status lt_early_stop_parse(early_stop *out, const char *text, const lt_task_ops *task)
{
    const size_t bytes = strcspn(text, ":");
    char names[NAMES];
    *out = (early_stop){.best = (double)NAN};
    out->hooks.name = "early_stop";
    if (!strcmp(text, "off"))
        return LT_OK;
    snprintf(out->metric, sizeof out->metric, "%.*s", (int)bytes, text);
    if (!find_metric(out->metric, task, &out->higher_is_better)) {
        list_metrics(names, task);
        return lt_fail(LT_E_ARG, "--early-stop: unknown metric '%s'; metrics: %s", out->metric,
                       names);
    }
    LT_TRY(parse_limits(out, text, text + bytes));
    static const char *const suffix[] = {"best", "count"};
    for (int i = 0; i < 2; i++) {
        snprintf(out->name[i], sizeof out->name[i], "%.48s_%s", out->metric, suffix[i]);
        out->number[i] = (lt_train_number){out->name[i], i ? &out->count : &out->best};
    }
    out->hooks.context = out;
    out->hooks.number = out->number;
    out->hooks.numbers = 2;
    out->hooks.before_run = check_resumed;
    if (has_prefix(out->metric, train_part))
        out->hooks.after_epoch = count_evaluation;
    else
        out->hooks.after_evaluation = count_evaluation;
    return LT_OK;
}

lt_status lt_early_stop_check(const early_stop *e, const evaluation_options *o)
{
    if (!e->hooks.context)
        return LT_OK;
    if (o->eval || o->watch)
        return lt_fail(LT_E_ARG, "--early-stop and --%s contradict each other: nothing is trained",
                       o->eval ? "eval" : "watch");
    if (e->hooks.after_evaluation && o->eval_every < 1)
        return lt_fail(
            LT_E_ARG,
            "--early-stop %s: needs evaluations during the run, but --eval-every is %lld; "
            "1 evaluates after each epoch",
            e->metric, (long long)o->eval_every);
    return LT_OK;
}
