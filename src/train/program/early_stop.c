/* Early stopping: a hook that ends a run whose metric has not improved in the last evaluations. Prechelt, "Early
 * stopping - but when?", 1998: the criterion UP, with a least improvement. */

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

lt_status lt_check_run_metric(const char *flag, const char *metric, const evaluation_options *o,
                              const lt_task_ops *task, bool *higher_is_better)
{
    char names[NAMES];
    if (!find_metric(metric, task, higher_is_better, names))
        return lt_fail(LT_E_ARG, "--%s: unknown metric '%s'; metrics: %s", flag, metric, names);
    if (!is_of_training(metric) && !o->eval && o->eval_every < 1)
        return lt_fail(LT_E_ARG,
                       "--%s %s: needs evaluations during the run, but --eval-every is %lld; "
                       "1 evaluates after each epoch",
                       flag, metric, (long long)o->eval_every);
    return LT_OK;
}

void lt_call_with_metric(lt_train_hooks *hooks, const char *metric, lt_train_hook *call)
{
    *(is_of_training(metric) ? &hooks->after_epoch : &hooks->after_evaluation) = call;
}

/* Parses METRIC:PATIENCE[:MIN_DELTA]. */
static lt_status parse(early_stop *e, const char *text, const evaluation_options *o,
                       const lt_task_ops *task)
{
    const size_t bytes = strcspn(text, ":");
    const char *at = text + bytes + (text[bytes] == ':');
    char *end;
    snprintf(e->metric, sizeof e->metric, "%.*s", (int)bytes, text);
    LT_TRY(lt_check_run_metric("early-stop", e->metric, o, task, &e->higher_is_better));
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
    if (isnan(e->best) || isnan(value))
        return !isnan(value);
    return e->higher_is_better ? value > e->best + e->min_delta : value < e->best - e->min_delta;
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
    const double value = lt_train_view_metric(view, e->metric);
    const bool better = is_better(e, value);
    e->count = better ? 0 : e->count + 1;
    e->best = better ? value : e->best;
    return check_patience(context, view, stop);
}

lt_status lt_early_stop_open(early_stop *e, const evaluation_options *o, const lt_task_ops *task)
{
    static const char *const suffix[] = {"best", "count"};
    *e = (early_stop){.best = (double)NAN};
    e->hooks = (lt_train_hooks){.name = "early_stop", .context = e};
    if (!o->early_stop || !strcmp(o->early_stop, "off"))
        return LT_OK;
    LT_TRY(parse(e, o->early_stop, o, task));
    if (o->eval)
        return lt_fail(LT_E_ARG, "--early-stop and --eval contradict each other");
    for (int i = 0; i < 2; i++) {
        snprintf(e->name[i], sizeof e->name[i], "%.48s_%s", e->metric, suffix[i]);
        e->number[i] = (lt_train_number){e->name[i], i ? &e->count : &e->best};
    }
    e->hooks.number = e->number;
    e->hooks.numbers = 2;
    e->hooks.before_run = check_patience;
    lt_call_with_metric(&e->hooks, e->metric, count_evaluation);
    return LT_OK;
}
