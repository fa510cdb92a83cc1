/* Top-1, top-5 and loss over a data set. */

#include "session.h"

#include "lather/ext/fail.h"

static lt_status open_loader(session *s, lt_dataset *data, lt_loader **loader)
{
    const arguments *a = &s->args;
    lt_loader_config c = {
        .transform = session_eval_transform(s),
        .batch = (int)(a->eval_batch_size ? a->eval_batch_size : a->batch_size),
        .threads = (int)a->workers,
        .max_bad = a->max_bad_images,
        .max_batches = a->limit_eval_batches,
        .limit = a->overfit_batches * a->batch_size,
    };
    if (c.limit > lt_dataset_count(data))
        c.limit = 0;
    return lt_loader_new(loader, data, s->device, &c);
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
    e->loss += loss_value * batch->count;
    e->images += batch->count;
    return LT_OK;
}

static lt_status run(session *s, lt_loader *loader, evaluation *e)
{
    lt_batch batch;
    lt_status st;
    int64_t batches = lt_loader_batches(loader);
    LT_TRY(lt_tensor_fill(s->hits, 0));
    while (!(st = lt_loader_next(loader, &batch))) {
        e->stopped = signals_seen() > 0;
        if (e->stopped)
            return LT_OK;
        LT_TRY(evaluate_batch(s, &batch, e));
        lt_run_part(s->run, "evaluate", batch.index + 1, batches);
    }
    return st == LT_END ? LT_OK : st;
}

static lt_status finish(session *s, evaluation *e)
{
    int64_t hits[2];
    LT_TRY(lt_tensor_read(s->hits, hits, sizeof hits));
    double images = (double)(e->images ? e->images : 1);
    e->loss /= images;
    e->top1 = 100 * (double)hits[0] / images;
    e->top5 = 100 * (double)hits[1] / images;
    return LT_OK;
}

lt_status session_evaluate(session *s, lt_dataset *data, evaluation *out)
{
    lt_loader *loader = NULL;
    evaluation e = {0};
    double begin = session_clock();
    LT_TRY(open_loader(s, data, &loader));
    lt_status st = run(s, loader, &e);
    for (int64_t i = 0; !st && lt_loader_bad(loader, i); i++)
        st = lt_run_bad_image(s->run, lt_loader_bad(loader, i));
    lt_loader_free(&loader);
    LT_TRY(st);
    LT_TRY(finish(s, &e));
    e.seconds = session_clock() - begin;
    *out = e;
    return LT_OK;
}
