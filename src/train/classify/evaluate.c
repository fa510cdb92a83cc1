/* Top-1, top-5 and loss over a data set. */

#include "session.h"

#include "lather/ext/fail.h"

#include <math.h>

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

/* One batch: adds to the sums. */
static lt_status evaluate_batch(session *s, const lt_batch *batch, evaluation *e)
{
    double loss_value;
    lt_tape_reset(s->tape, session_pass(s, false));
    lt_tensor *logits = session_forward(s, batch->images);
    lt_tensor *loss = lt_softmax_xent(s->tape, logits, batch->labels, 0);
    LT_TRY(lt_tape_status(s->tape));
    LT_TRY(lt_topk_hits(logits, batch->labels, s->hits));
    LT_TRY(lt_tensor_item(loss, &loss_value));
    if (s->details)
        LT_TRY(session_add_details(s, batch, logits));
    e->loss += loss_value * batch->count;
    e->images += batch->count;
    return LT_OK;
}

static lt_status run(session *s, lt_loader *loader, evaluation *e)
{
    lt_batch batch;
    lt_status st;
    LT_TRY(lt_tensor_fill(s->hits, 0));
    if (!loader)
        return LT_OK;
    int64_t batches = lt_loader_batches(loader);
    while (!(st = lt_loader_next(loader, &batch))) {
        e->stopped = signals_seen() > 0;
        if (e->stopped)
            return LT_OK;
        LT_TRY(evaluate_batch(s, &batch, e));
        lt_run_part(s->run, "evaluate", batch.index + 1, batches);
    }
    return st == LT_END ? LT_OK : st;
}

/* Of all ranks: counts are exact, and the loss is added in rank order. */
static lt_status finish(session *s, evaluation *e)
{
    enum { LOSS, IMAGES, TOP1, TOP5, STOPPED, COUNT };
    int64_t hits[2];
    LT_TRY(lt_tensor_read(s->hits, hits, sizeof hits));
    double sum[COUNT] = {[LOSS] = e->loss,
                         [IMAGES] = (double)e->images,
                         [TOP1] = (double)hits[0],
                         [TOP5] = (double)hits[1],
                         [STOPPED] = e->stopped};
    LT_TRY(session_sum(s, sum, COUNT));
    double images = sum[IMAGES] > 0 ? sum[IMAGES] : 1;
    e->images = (int64_t)sum[IMAGES];
    e->loss = sum[LOSS] / images;
    e->top1 = 100 * sum[TOP1] / images;
    e->top5 = 100 * sum[TOP5] / images;
    e->stopped = s->stop = sum[STOPPED] > 0;
    return LT_OK;
}

lt_status session_evaluate(session *s, lt_dataset *data, evaluation *out)
{
    lt_loader *loader = NULL;
    evaluation e = {0};
    int64_t listed = 0;
    double begin = session_clock();
    LT_TRY(open_loader(s, data, &loader));
    lt_status st = run(s, loader, &e);
    if (!st)
        st = session_list_bad(s, loader, &listed);
    lt_loader_free(&loader);
    LT_TRY(st);
    LT_TRY(finish(s, &e));
    e.seconds = session_clock() - begin;
    *out = e;
    return LT_OK;
}
