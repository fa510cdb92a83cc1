/* Loss and metrics of the task over a data set. */

#include "base/clock.h"
#include "train/trainer/session.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <string.h>

/* Every picture is of one rank, also where their number does not divide; a rank may get none. */
static lt_status open_loader(session *s, lt_dataset *data, lt_loader **loader)
{
    const arguments *a = &s->args;
    lt_loader_config c = {
        .transform = session_eval_transform(s),
        .batch = (int)(a->eval_batch_size ? a->eval_batch_size : a->batch_size),
        .rank = s->rank,
        .size = s->ranks,
        .threads = s->workers,
        .max_bad = a->max_bad_images,
        .max_batches = a->limit_eval_batches,
        .read_ahead = a->read_ahead,
        .limit = a->overfit_batches * a->batch_size * s->ranks,
    };
    if (c.limit > lt_dataset_count(data))
        c.limit = 0;
    if ((c.limit ? c.limit : lt_dataset_count(data)) <= s->rank)
        return LT_OK;
    return lt_loader_new(loader, data, s->device, &c);
}

void session_softmax(double *logits, int classes)
{
    double largest = logits[0], sum = 0;
    for (int k = 1; k < classes; k++)
        largest = fmax(largest, logits[k]);
    for (int k = 0; k < classes; k++)
        sum += logits[k] = exp(logits[k] - largest);
    for (int k = 0; k < classes; k++)
        logits[k] /= sum;
}

/* What is summed up, and where. */
typedef struct sums {
    lt_task task;
    lt_tensor *counts; /* i64, of the task; NULL: it has none */
    double loss, samples;
    bool stopped;
} sums;

/* One batch: adds to the sums. */
static lt_status evaluate_batch(session *s, const lt_batch *batch, sums *sum)
{
    const lt_task *task = &sum->task;
    double loss;
    lt_task_output out = {0};
    lt_tape_reset(s->tape, session_pass(s, false));
    LT_TRY(task->ops->forward(task->context, s->tape, batch, sum->counts, &out));
    LT_TRY(lt_tensor_item(out.loss, &loss));
    if (task->ops->observe)
        LT_TRY(task->ops->observe(task->context, s->tape, batch, &out));
    sum->loss += loss * batch->count;
    sum->samples += batch->count;
    return LT_OK;
}

static lt_status run(session *s, lt_loader *loader, sums *sum)
{
    lt_batch batch;
    lt_status st;
    if (sum->counts)
        LT_TRY(lt_tensor_fill(sum->counts, 0));
    if (!loader)
        return LT_OK;
    int64_t batches = lt_loader_batches(loader);
    while (!(st = lt_loader_next(loader, &batch))) {
        sum->stopped = signals_seen() > 0;
        if (sum->stopped)
            return LT_OK;
        LT_TRY(evaluate_batch(s, &batch, sum));
        lt_run_part(s->run, "evaluate", batch.index + 1, batches);
    }
    return st == LT_END ? LT_OK : st;
}

/* Of all ranks: counts are exact, and the loss is added in rank order. */
static lt_status finish(session *s, const sums *own, evaluation *e)
{
    enum { LOSS, SAMPLES, STOPPED, COUNT, TOTALS = COUNT + LT_TASK_COUNTS };
    int64_t count[LT_TASK_COUNTS] = {0};
    if (own->counts)
        LT_TRY(lt_tensor_read(own->counts, count, lt_tensor_bytes(own->counts)));
    double sum[TOTALS] = {[LOSS] = own->loss, [SAMPLES] = own->samples, [STOPPED] = own->stopped};
    for (int i = 0; i < LT_TASK_COUNTS; i++)
        sum[COUNT + i] = (double)count[i];
    LT_TRY(session_sum(s, sum, TOTALS));
    e->samples = (int64_t)sum[SAMPLES];
    e->sums.samples = sum[SAMPLES] > 0 ? sum[SAMPLES] : 1;
    e->sums.loss = sum[LOSS] / e->sums.samples;
    memcpy(e->sums.count, sum + COUNT, sizeof e->sums.count);
    e->stopped = s->stop = sum[STOPPED] > 0;
    return LT_OK;
}

static lt_status open_sums(session *s, sums *sum)
{
    sum->task = session_task(s);
    const int counts = sum->task.ops->counts;
    return counts ? lt_tensor_new(&sum->counts, s->device, LT_I64, LT_SHAPE(counts)) : LT_OK;
}

lt_status session_evaluate(session *s, lt_dataset *data, evaluation *out)
{
    lt_loader *loader = NULL;
    evaluation e = {0};
    sums sum = {0};
    int64_t listed = 0;
    double begin = lt_clock_seconds();
    LT_TRY(open_loader(s, data, &loader));
    lt_status st = open_sums(s, &sum);
    if (!st)
        st = run(s, loader, &sum);
    if (!st)
        st = session_list_bad(s, loader, &listed);
    lt_loader_free(&loader);
    if (!st)
        st = finish(s, &sum, &e);
    lt_tensor_free(&sum.counts);
    LT_TRY(st);
    e.seconds = lt_clock_seconds() - begin;
    *out = e;
    return LT_OK;
}
