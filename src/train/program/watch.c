/* --watch RUN: evaluates the checkpoints of a run one after the other while another process trains it. Rank 0
 * finds them and informs the other ranks. */

#include "base/alloc.h"
#include "train/run/metrics.h"
#include "trainer.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- The next checkpoint --- */

typedef struct news {
    lt_watched found;
    bool ended, stop;
} news;

/* Looks for the next checkpoint to evaluate, on rank 0. */
static lt_status find_next_checkpoint(lt_watch *watch, news *out)
{
    out->stop = lt_signals_seen(NULL);
    lt_status st = out->stop ? LT_OK : lt_watch_next(watch, &out->found);
    out->ended = st == LT_END;
    return st == LT_END ? LT_OK : st;
}

static lt_status broadcast_next_checkpoint(lt_ranks *ranks, news *n)
{
    char *all;
    size_t bytes;
    if (!ranks->comm)
        return LT_OK;
    LT_TRY(lt_ranks_gather(ranks, n, ranks->rank ? 0 : sizeof *n, &all, &bytes));
    memcpy(n, all, sizeof *n);
    lt_free(all);
    return LT_OK;
}

/* Waits for the next checkpoint; *over: there is no other. Collective. */
static lt_status wait_for_next(trainer_watching *w, lt_ranks *ranks, bool *over)
{
    const struct timespec pause = {.tv_nsec = 300000000};
    news n = {0};
    for (;;) {
        if (!ranks->rank)
            LT_TRY(find_next_checkpoint(w->watch, &n));
        LT_TRY(broadcast_next_checkpoint(ranks, &n));
        *over = n.ended || n.stop;
        ranks->stop = n.stop;
        w->found = n.found;
        if (*over || *n.found.path)
            return LT_OK;
        nanosleep(&pause, NULL);
    }
}

lt_status lt_trainer_open_watch(trainer_watching *w, lt_trainer *t, bool *over)
{
    trainer_model *m = &t->model;
    lt_signals_install();
    if (!t->ranks.rank)
        LT_TRY(lt_watch_open(&w->watch, t->line.args.evaluation.watch));
    LT_TRY(wait_for_next(w, &t->ranks, over));
    snprintf(m->weights, sizeof m->weights, "%s/model.safetensors", w->found.path);
    return LT_OK;
}

/* --- Evaluation --- */

/* Results for a checkpoint: the numbers of an epoch's record, for the EMA weights if the run has them; then also
 * those of the plain weights. */
typedef struct findings {
    lt_epoch_metrics val, raw;
    double seconds;
} findings;

static lt_status evaluate_raw_and_averaged(const lt_watched *found, lt_trainer *t, lt_share *share,
                                           findings *f)
{
    const lt_task_ops *task = t->line.program->task;
    const lt_evaluator evaluator = lt_trainer_evaluator(t, share);
    lt_evaluation raw = {0}, averaged = {0};
    const lt_weights_config config = lt_family_weights_config(&t->line.choice);
    char path[LT_WATCH_PATH + 32];
    snprintf(path, sizeof path, "%s/model.safetensors", found->path);
    LT_TRY(lt_weights_load(path, &t->model.params, &config));
    LT_TRY(lt_evaluate(&evaluator, t->input.val, &raw));
    lt_status st = t->ranks.stop ? LT_OK : lt_watch_load_averages(found->path, &t->model.params);
    const bool has_averages = !st && !t->ranks.stop;
    if (has_averages)
        st = lt_evaluate(&evaluator, t->input.val, &averaged);
    lt_epoch_metrics_add_evaluation(&f->val, "val", task, has_averages ? &averaged : &raw);
    if (has_averages)
        lt_epoch_metrics_add_evaluation(&f->raw, "val_raw", task, &raw);
    _Static_assert((int)EVALUATION_VALUES <= (int)LT_TASK_METRICS + 1, "raw is too short");
    raw.unsplit = raw.unsplit && !lt_options_is_typed(t->line.options, "data");
    lt_evaluation_sample_metrics(&raw, f->raw.metric + f->raw.count);
    f->raw.count += EVALUATION_VALUES;
    f->seconds = raw.seconds + averaged.seconds;
    return st == LT_END ? LT_OK : st;
}

static lt_status record_evaluation(const trainer_watching *w, const lt_trainer *t,
                                   const findings *f)
{
    const arguments *a = &t->line.args;
    const char *id = w->watch ? lt_watch_run(w->watch) : "";
    const lt_run_config c = {.progress = (lt_progress)a->output.progress,
                             .label = t->output.labels.label,
                             .labels = t->output.labels.count,
                             .append = true,
                             .records = LT_RUN_EVALUATIONS,
                             .rank = t->ranks.rank,
                             .id = *id ? id : NULL};
    const lt_run_epoch_record r = {.is_evaluation = true,
                                   .epoch = w->found.epoch,
                                   .step = w->found.step,
                                   .metric = f->val.metric,
                                   .metrics = f->val.count,
                                   .seconds = (double)NAN,
                                   .eval_seconds = f->seconds,
                                   .extra = f->raw.metric,
                                   .extra_count = f->raw.count};
    lt_run *run = NULL;
    LT_TRY(lt_run_open(&run, a->evaluation.watch, &c));
    lt_status st = lt_run_epoch(run, &r);
    lt_run_close(&run);
    return st;
}

static lt_status evaluate_one(const trainer_watching *w, lt_trainer *t, lt_share *share)
{
    const lt_run_config c = {.progress = (lt_progress)t->line.args.output.progress,
                             .rank = t->ranks.rank};
    lt_run **run = &t->output.run;
    findings f = {.seconds = 0};
    LT_TRY(lt_run_open(run, NULL, &c));
    LT_TRY(evaluate_raw_and_averaged(&w->found, t, share, &f));
    lt_run_close(run); /* erases its bar before the record's line */
    return t->ranks.stop ? LT_OK : record_evaluation(w, t, &f);
}

lt_status lt_trainer_watch(trainer_watching *w, lt_trainer *t, lt_share *share)
{
    bool over = false;
    lt_train_fill_metric_labels(t->line.program->task, &t->output.labels);
    while (!over) {
        LT_TRY(evaluate_one(w, t, share));
        if (t->ranks.stop)
            return LT_OK;
        LT_TRY(wait_for_next(w, &t->ranks, &over));
    }
    return LT_OK;
}
