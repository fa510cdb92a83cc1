/* Evaluation of a task: forward passes over a data set, summed over batches and ranks. */

#include "evaluate.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/heartbeat.h"

#include "lather/averaging.h"
#include "lather/ext/dataset.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sums {
    lt_tensor *counts; /* i64 counts of the task; NULL if it has none */
    double loss, samples;
    double *batch_loss; /* [batches] losses times weights, on a reproducible device; else NULL */
    int64_t batches;
    int64_t terms; /* sum so far of the count that lt_task_ops.terms selects; weighs the losses */
    bool stopped;
} sums;

/* Opens this rank's loader; NULL if the rank gets no sample. */
static lt_status open_loader(const lt_evaluator *e, lt_dataset *data, lt_loader **loader)
{
    lt_loader_config c = e->loader;
    c.rank = e->ranks->data_rank;
    c.size = e->ranks->data_count;
    c.spread = !c.limit;
    if (c.limit > lt_dataset_count(data))
        c.limit = 0;
    const int64_t first = lt_device_is_reproducible(e->device) ? (int64_t)c.rank * c.batch : c.rank;
    if ((c.limit ? c.limit : lt_dataset_count(data)) <= first)
        return LT_OK;
    return lt_loader_new(loader, data, e->device, &c);
}

/* Returns the weight of a batch's loss: its samples, or the terms that it is the mean of. */
static lt_status compute_loss_weight(const lt_evaluator *e, const lt_batch *batch, sums *sum,
                                     double *out)
{
    int64_t count[LT_TASK_COUNTS] = {0};
    const int terms = e->task.ops->terms;
    *out = batch->count;
    if (!terms)
        return LT_OK;
    LT_TRY(lt_tensor_read(sum->counts, count, lt_tensor_bytes(sum->counts)));
    *out = (double)(count[terms - 1] - sum->terms);
    sum->terms = count[terms - 1];
    return LT_OK;
}

static lt_status evaluate_batch(const lt_evaluator *e, const lt_batch *batch, sums *sum)
{
    const lt_task *task = &e->task;
    double loss, weight;
    lt_task_output out = {0};
    lt_tape_reset(e->tape, e->pass);
    LT_TRY(task->ops->forward(task->context, e->tape, batch, sum->counts, &out));
    LT_TRY(lt_tape_status(e->tape));
    LT_TRY(lt_tensor_item(out.loss, &loss));
    if (task->ops->observe)
        LT_TRY(task->ops->observe(task->context, e->tape, batch, &out));
    LT_TRY(compute_loss_weight(e, batch, sum, &weight));
    sum->loss += loss * weight;
    if (sum->batch_loss)
        sum->batch_loss[batch->index] = loss * weight;
    sum->samples += batch->count;
    return LT_OK;
}

static lt_status run_batches(const lt_evaluator *e, lt_loader *loader, sums *sum)
{
    lt_batch batch;
    lt_status st;
    if (!loader)
        return LT_OK;
    const int64_t batches = lt_loader_batches(loader);
    while (!(st = lt_loader_next(loader, &batch))) {
        sum->stopped = e->stop && e->stop(e->context);
        if (sum->stopped)
            return LT_OK;
        LT_TRY(evaluate_batch(e, &batch, sum));
        lt_heartbeat_progress();
        if (e->run)
            lt_run_part(e->run, "evaluate", batch.index + 1, batches);
    }
    return st == LT_END ? LT_OK : st;
}

/* Runs the batches in one time slice of a shared device. All ranks take part, those without a sample too. */
static lt_status run_in_time_slice(const lt_evaluator *e, lt_loader *loader, sums *sum)
{
    lt_share_turn turn;
    if (!e->share)
        return run_batches(e, loader, sum);
    LT_TRY(lt_share_begin(e->share, &turn));
    LT_TRY(run_batches(e, loader, sum));
    return lt_share_end(e->share);
}

/* On a reproducible device: allocates the losses of this rank's batches. */
static lt_status open_batch_losses(const lt_evaluator *e, const lt_loader *loader, sums *sum)
{
    if (!lt_device_is_reproducible(e->device) || e->ranks->count < 2)
        return LT_OK;
    sum->batches = loader ? lt_loader_batches(loader) : 0;
    return LT_ALLOC(&sum->batch_loss, (size_t)sum->batches + 1);
}

/* Adds the losses of all ranks' batches in the order of the data, in which batch b is that of rank b mod n. */
static lt_status sum_batch_losses(const lt_evaluator *e, sums *own)
{
    char *all;
    size_t bytes;
    const int64_t ranks = e->ranks->count;
    if (!own->batch_loss)
        return LT_OK;
    own->loss = 0;
    LT_TRY(lt_ranks_gather(e->ranks, own->batch_loss, (size_t)own->batches * sizeof(double), &all,
                           &bytes));
    const int64_t batches = (int64_t)(bytes / sizeof(double)), rest = batches % ranks;
    for (int64_t b = 0; b < batches; b++) {
        const int64_t r = b % ranks, before = r * (batches / ranks) + (r < rest ? r : rest);
        double loss;
        memcpy(&loss, all + (size_t)(before + b / ranks) * sizeof loss, sizeof loss);
        own->loss += loss;
    }
    lt_free(all);
    return LT_OK;
}

/* Sums over all replicas of the model: counts are exact, and losses are added in rank order. */
static lt_status sum_over_replicas(const lt_evaluator *e, const sums *own, lt_evaluation *out)
{
    enum { LOSS, SAMPLES, STOPPED, COUNT, TOTALS = COUNT + LT_TASK_COUNTS };
    _Static_assert(TOTALS <= (int)RANK_SUMS, "lt_ranks_sum() is too short");
    int64_t count[LT_TASK_COUNTS] = {0};
    if (own->counts)
        LT_TRY(lt_tensor_read(own->counts, count, lt_tensor_bytes(own->counts)));
    double sum[TOTALS] = {[LOSS] = own->loss, [SAMPLES] = own->samples, [STOPPED] = own->stopped};
    for (int i = 0; i < LT_TASK_COUNTS; i++)
        sum[COUNT + i] = (double)count[i];
    if (own->batch_loss && e->ranks->rank) /* the sum of all, on each rank */
        sum[LOSS] = 0;
    for (int i = 0; i < TOTALS && !e->ranks->is_counted; i++)
        sum[i] = i == STOPPED ? sum[i] : 0;
    LT_TRY(lt_ranks_sum(e->ranks, sum, TOTALS));
    out->samples = (int64_t)sum[SAMPLES];
    out->sums.samples = sum[SAMPLES] > 0 ? sum[SAMPLES] : 1;
    const int terms = e->task.ops->terms;
    const double weight = terms ? sum[COUNT + terms - 1] : out->sums.samples;
    out->sums.loss = weight > 0 ? sum[LOSS] / weight : 0;
    memcpy(out->sums.count, sum + COUNT, sizeof out->sums.count);
    out->stopped = sum[STOPPED] > 0;
    return LT_OK;
}

lt_status lt_evaluator_new_counts(const lt_evaluator *e, lt_tensor **counts)
{
    const int count = e->task.ops->counts;
    if (!count)
        return LT_OK;
    LT_TRY(lt_tensor_new(counts, e->device, LT_I64, LT_SHAPE(count)));
    return lt_tensor_fill(*counts, 0);
}

lt_status lt_evaluate(const lt_evaluator *e, lt_dataset *data, lt_evaluation *out)
{
    lt_loader *loader = NULL;
    lt_evaluation result = {0};
    sums sum = {0};
    int64_t listed = 0;
    const double begin = lt_clock_seconds();
    if (e->optim && !lt_optim_is_eval(e->optim))
        return lt_fail(LT_E_ARG, "evaluate: the model has the training weights of an averaging "
                                 "optimizer: call lt_optim_eval() first");
    LT_TRY(open_loader(e, data, &loader));
    lt_status st = lt_evaluator_new_counts(e, &sum.counts);
    if (!st)
        st = open_batch_losses(e, loader, &sum);
    if (!st)
        st = run_in_time_slice(e, loader, &sum);
    if (!st && e->run)
        st = lt_train_input_record_corrupt(e->ranks, e->run, loader, &listed);
    lt_loader_free(&loader);
    if (!st)
        st = sum_batch_losses(e, &sum);
    if (!st)
        st = sum_over_replicas(e, &sum, &result);
    lt_free(sum.batch_loss);
    lt_tensor_free(&sum.counts);
    if (st)
        return st;
    result.seconds = lt_clock_seconds() - begin;
    result.total = lt_dataset_count(data);
    result.unsplit = data->unsplit;
    e->ranks->stop = e->ranks->stop || result.stopped;
    *out = result;
    return LT_OK;
}

void lt_evaluation_sample_metrics(const lt_evaluation *e, lt_metric out[EVALUATION_VALUES])
{
    const bool is_part = e && e->samples < e->total;
    out[0] = (lt_metric){"val_samples", is_part ? (double)e->samples : (double)NAN};
    out[1] = (lt_metric){"val_total", is_part ? (double)e->total : (double)NAN};
    out[2] = (lt_metric){"val_is_train", e && e->unsplit ? 1 : (double)NAN};
}

void lt_epoch_metrics_add(lt_epoch_metrics *out, const char *part, const char *name, double value)
{
    char *to = out->name[out->count];
    snprintf(to, LT_CHECKPOINT_NAME, "%s_%s", part, name);
    out->metric[out->count++] = (lt_metric){to, value};
}

void lt_epoch_metrics_add_evaluation(lt_epoch_metrics *out, const char *part,
                                     const lt_task_ops *task, const lt_evaluation *e)
{
    const double unknown = (double)NAN;
    lt_epoch_metrics_add(out, part, "loss", e ? e->sums.loss : unknown);
    for (int i = 0; i < task->metrics; i++)
        lt_epoch_metrics_add(out, part, task->metric[i].name,
                             e ? task->metric[i].value(&e->sums) : unknown);
}
