/* --watch RUN: evaluates the checkpoints of a run one after the other while another process trains it. Rank 0
 * finds them and informs the other ranks. */

#include "base/clock.h"
#include "train/run/metrics.h"
#include "trainer.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* --- Settings of the run --- */

static bool is_listed(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

/* Returns true if an option is taken from the run's config.yaml, which another user may have written: options that
 * determine the model and the results of its evaluation, but none that names a file to write, a device or a limit. */
static bool is_wanted(const lt_option *option)
{
    static const char *const not_of_model[] = {"weights", "reset-head", "freeze", "freeze-bn"};
    static const char *const others[] = {
        "data",       "val-labels",      "exif",          "mean",
        "std",        "image-size",      "interpolation", "image-size-schedule",
        "crop-pct",   "max-bad-images",  "seq-len",       "block-size",
        "tokenizer",  "documents",       "val-fraction",  "limit-eval-batches",
        "batch-size", "eval-batch-size", "amp",           "overfit-batches",
        "seed",       "label-smoothing", "deterministic",
    };
    return !strcmp(option->group, "Model")
               ? !is_listed(not_of_model, sizeof not_of_model / sizeof *not_of_model, option->name)
               : is_listed(others, sizeof others / sizeof *others, option->name);
}

/* Waits for the run to begin: a launcher of both may start the evaluation first. */
static lt_status wait_for_run(const char *folder, const char *seconds)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    const double end = lt_clock_seconds() + (seconds ? strtod(seconds, NULL) : 0);
    lt_status st;
    while ((st = lt_watch_check(folder)) && lt_clock_seconds() < end)
        nanosleep(&pause, NULL);
    return st ? lt_fail(LT_E_ARG, "--watch: %s", lt_error_message()) : LT_OK;
}

lt_status lt_watch_settings(lt_options *options, const char *folder, const char *seconds)
{
    enum { PATH = 1200 };
    char path[PATH];
    struct stat info;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    LT_TRY(wait_for_run(folder, seconds));
    if (stat(path, &info))
        return LT_OK; /* the command line has all settings */
    lt_status st = lt_options_load_some(options, path, is_wanted);
    return st ? lt_fail(st, "--watch: %s", lt_error_message()) : LT_OK;
}

/* --- The next checkpoint --- */

typedef struct news {
    lt_watched found;
    bool ended, stop;
} news;

/* Looks for the next checkpoint to evaluate, on rank 0. */
static lt_status look(lt_trainer *t, news *out)
{
    out->stop = lt_signals_seen() > 0;
    lt_status st = out->stop ? LT_OK : lt_watch_next(t->watch, &out->found);
    out->ended = st == LT_END;
    return st == LT_END ? LT_OK : st;
}

static lt_status tell(lt_trainer *t, news *n)
{
    char *all;
    size_t bytes;
    if (!t->ranks.comm)
        return LT_OK;
    LT_TRY(lt_ranks_gather(&t->ranks, n, t->ranks.rank ? 0 : sizeof *n, &all, &bytes));
    memcpy(n, all, sizeof *n);
    free(all);
    return LT_OK;
}

/* Waits for the next checkpoint; *over: there is no other. Collective. */
static lt_status wait_for_next(lt_trainer *t, bool *over)
{
    const struct timespec pause = {.tv_nsec = 300000000};
    news n = {0};
    for (;;) {
        if (!t->ranks.rank)
            LT_TRY(look(t, &n));
        LT_TRY(tell(t, &n));
        *over = n.ended || n.stop;
        t->ranks.stop = n.stop;
        t->watched = n.found;
        if (*over || *n.found.path)
            return LT_OK;
        nanosleep(&pause, NULL);
    }
}

lt_status lt_trainer_open_watch(lt_trainer *t, bool *over)
{
    lt_signals_install();
    if (!t->ranks.rank)
        LT_TRY(lt_watch_open(&t->watch, t->args.evaluation.watch));
    LT_TRY(wait_for_next(t, over));
    snprintf(t->weights, sizeof t->weights, "%s/model.safetensors", t->watched.path);
    return LT_OK;
}

/* --- Evaluation --- */

/* Results for a checkpoint: the numbers of an epoch's record, for the EMA weights if the run has them; then also
 * those of the plain weights. */
typedef struct findings {
    lt_epoch_metrics val, raw;
    double seconds;
} findings;

static lt_status evaluate(lt_trainer *t, findings *f)
{
    lt_evaluation raw = {0}, averaged = {0};
    const lt_weights_config config = lt_family_weights(&t->choice);
    char path[LT_WATCH_PATH + 32];
    snprintf(path, sizeof path, "%s/model.safetensors", t->watched.path);
    LT_TRY(lt_weights_load(path, &t->params, &config));
    LT_TRY(lt_trainer_evaluate(t, &raw));
    lt_status st = t->ranks.stop ? LT_OK : lt_watch_load_averages(t->watched.path, &t->params);
    const bool has_averages = !st && !t->ranks.stop;
    if (has_averages)
        st = lt_trainer_evaluate(t, &averaged);
    lt_epoch_metrics_add_evaluation(&f->val, "val", t->program->task,
                                    has_averages ? &averaged : &raw);
    if (has_averages)
        lt_epoch_metrics_add_evaluation(&f->raw, "val_raw", t->program->task, &raw);
    _Static_assert((int)EVALUATION_VALUES <= (int)LT_TASK_METRICS + 1, "raw is too short");
    raw.unsplit = raw.unsplit && !lt_options_is_typed(t->options, "data");
    lt_evaluation_values(&raw, f->raw.metric + f->raw.count);
    f->raw.count += EVALUATION_VALUES;
    f->seconds = raw.seconds + averaged.seconds;
    return st == LT_END ? LT_OK : st;
}

static lt_status record(const lt_trainer *t, const findings *f)
{
    const lt_run_config c = {.progress = (lt_progress)t->args.output.progress,
                             .label = t->labels.label,
                             .labels = t->labels.count,
                             .append = true,
                             .records = LT_RUN_EVALUATIONS,
                             .rank = t->ranks.rank,
                             .id = t->watch && *lt_watch_run(t->watch) ? lt_watch_run(t->watch)
                                                                       : NULL};
    const lt_run_epoch_record r = {.is_evaluation = true,
                                   .epoch = t->watched.epoch,
                                   .step = t->watched.step,
                                   .metric = f->val.metric,
                                   .metrics = f->val.count,
                                   .seconds = (double)NAN,
                                   .eval_seconds = f->seconds,
                                   .extra = f->raw.metric,
                                   .extra_count = f->raw.count};
    lt_run *run = NULL;
    LT_TRY(lt_run_open(&run, t->args.evaluation.watch, &c));
    lt_status st = lt_run_epoch(run, &r);
    lt_run_close(&run);
    return st;
}

static lt_status evaluate_one(lt_trainer *t)
{
    const lt_run_config c = {.progress = (lt_progress)t->args.output.progress,
                             .rank = t->ranks.rank};
    findings f = {.seconds = 0};
    LT_TRY(lt_run_open(&t->run, NULL, &c));
    LT_TRY(evaluate(t, &f));
    lt_run_close(&t->run); /* erases its bar before the record's line */
    return t->ranks.stop ? LT_OK : record(t, &f);
}

lt_status lt_trainer_watch(lt_trainer *t)
{
    bool over = false;
    lt_train_labels(t->program->task, &t->labels);
    while (!over) {
        LT_TRY(evaluate_one(t));
        if (t->ranks.stop)
            return LT_OK;
        LT_TRY(wait_for_next(t, &over));
    }
    return LT_OK;
}
