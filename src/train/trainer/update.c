/* One update. What the device does in it is two functions, compute() and change(), without a
 * read-back or a choice that depends on results: a device with graphs records them once and replays
 * them. The data reaches it at fixed addresses, what changes from step to step lies in its memory. */

#include "update.h"

#include "lather/ext/fail.h"
#include "lather/ext/view.h"
#include "lather/log.h"
#include "lather/profile.h"

#include <string.h>

static lt_status next_batch(session *s, lt_batch *batch, update *u)
{
    double begin = session_clock();
    u->queued = lt_loader_statistics(s->loader).queued;
    lt_status st = lt_loader_next(s->loader, batch);
    u->data_seconds += session_clock() - begin;
    return st;
}

/* What of the optimizer's work belongs to the last micro-batch's. */
typedef enum changes {
    CHANGES_NOTHING,
    CHANGES_ALL,   /* change() */
    CHANGES_FIRST, /* up to where the host has something to do */
    CHANGES_SECOND /* the rest: change_second(), a graph of its own */
} changes;

/* A micro-batch, and what belongs to the same piece of work. */
typedef struct work {
    session *s;
    lt_batch batch;
    int64_t micro;
    changes changes;
} work;

static bool is_last(const work *w)
{
    return w->micro + 1 == w->s->args.grad_accum;
}

/* Forward and backward. */
static lt_status pass(const work *w)
{
    session *s = w->s;
    lt_pass p = session_pass(s, true);
    p.attempt = s->state.step + 1;
    p.micro = (int32_t)(w->micro * s->ranks + s->rank);
    lt_tape_reset(s->tape, p);

    lt_tensor *logits = session_forward(s, w->batch.images);
    lt_tensor *targets = w->batch.targets ? w->batch.targets : w->batch.labels;
    lt_tensor *loss = lt_softmax_xent(s->tape, logits, targets, s->args.label_smoothing);
    LT_TRY(lt_tape_status(s->tape));
    LT_TRY(lt_topk_hits(logits, w->batch.labels, s->hits));
    if (s->dp)
        lt_data_parallel_begin(s->dp, is_last(w));
    LT_TRY(lt_tape_backward_by(s->tape, loss, 1.0 / (double)s->args.grad_accum,
                               lt_optim_loss_scale(s->optim)));
    return lt_tensor_copy(s->loss, loss);
}

/* The optimizer and the average of the weights: nothing, if a gradient is not finite. */
static lt_status change(session *s)
{
    int64_t begin = lt_profile_begin();
    LT_TRY(lt_optim_update(s->optim));
    lt_profile_end(begin, LT_PROFILE_OPTIM, lt_optim_name(s->optim), 0);
    return session_update_ema(s);
}

/* Gradients become the mean over ranks. */
static lt_status finish_gradients(session *s)
{
    int64_t span = lt_profile_begin();
    LT_TRY(lt_data_parallel_finish(s->dp));
    lt_profile_end(span, LT_PROFILE_COMM, "gradients", 0);
    return LT_OK;
}

static lt_status compute(void *context)
{
    const work *w = context;
    session *s = w->s;
    if (!w->micro) {
        LT_TRY(lt_tensor_fill(s->hits, 0));
        lt_params_zero_grad(&s->params);
    }
    LT_TRY(pass(w));
    if (s->dp && is_last(w))
        LT_TRY(finish_gradients(s));
    if (w->changes == CHANGES_FIRST)
        return lt_optim_update_first(s->optim);
    return w->changes == CHANGES_ALL ? change(s) : LT_OK;
}

static lt_status change_second(void *context)
{
    session *s = context;
    LT_TRY(lt_optim_update_second(s->optim));
    return session_update_ema(s);
}

/* Images may grow from epoch to epoch, and lie in either of the loader's two buffers. */
static lt_graph_key graph_key(const work *w)
{
    const lt_view images = lt_tensor_view(w->batch.images);
    return (lt_graph_key){.kind = (int)w->changes,
                          .first = !w->micro,
                          .last = is_last(w),
                          .input = images.data,
                          .shape = images.shape};
}

static lt_status run(work *w)
{
    session *s = w->s;
    if (!s->args.graph)
        return compute(w);
    return lt_graph_run(s->device, &s->graph, graph_key(w), compute, w);
}

static lt_readback *numbers_of(const session *s, const update *u)
{
    return s->numbers[u->step % 2];
}

static lt_status begin_numbers(session *s, const update *u)
{
    lt_readback **numbers = &s->numbers[u->step % 2];
    const size_t bytes =
        (size_t)s->args.grad_accum * lt_tensor_bytes(s->loss) + lt_tensor_bytes(s->hits);
    if (!*numbers)
        LT_TRY(lt_readback_new(numbers, s->device, bytes));
    lt_readback_begin(*numbers);
    return LT_OK;
}

/* Of the micro-batches; on its way from here on. */
static lt_status send_numbers(session *s, const update *u)
{
    lt_readback *numbers = numbers_of(s, u);
    LT_TRY(lt_readback_add(numbers, s->hits));
    return lt_readback_send(numbers);
}

/* As micro_batch() and send_numbers() put them there. */
static lt_status read_numbers(session *s, update *u)
{
    const void *data;
    LT_TRY(lt_readback_wait(numbers_of(s, u), &data));
    const char *at = data;
    const bool wide = lt_tensor_dtype(s->loss) == LT_F64;
    for (int64_t i = 0; i < s->args.grad_accum; i++, at += lt_tensor_bytes(s->loss)) {
        float narrow = 0;
        double value = 0;
        memcpy(wide ? (void *)&value : (void *)&narrow, at, lt_tensor_bytes(s->loss));
        u->loss += (wide ? value : (double)narrow) / (double)s->args.grad_accum;
    }
    memcpy(&u->correct, at, sizeof u->correct);
    return LT_OK;
}

static lt_status micro_batch(session *s, int64_t micro, changes last, update *u)
{
    work w = {.s = s, .micro = micro};
    if (is_last(&w))
        w.changes = last;
    LT_TRY(next_batch(s, &w.batch, u));
    LT_TRY(run(&w));
    u->images += w.batch.count;
    return lt_readback_add(numbers_of(s, u), s->loss);
}

static lt_status read_result(session *s, update *u)
{
    lt_step_result result;
    LT_TRY(lt_optim_result(s->optim, &result));
    u->applied = result.applied;
    u->grad_norm = result.grad_norm;
    u->steps = result.steps;
    u->loss_scale = s->state.loss_scale = result.loss_scale;
    if (s->args.amp == AMP_F16)
        s->state.loss_good_steps = result.good_steps;
    if (u->applied && s->ema)
        s->state.ema_updates++;
    return LT_OK;
}

/* Under f16 a step that overflows is part of the search for the scale; one that overflows at any
 * scale is not. */
static bool may_skip(const session *s, const update *u)
{
    const double hopeless = 0x1p-14;
    return s->args.on_nan == ON_NAN_SKIP || (s->args.amp == AMP_F16 && u->loss_scale > hopeless);
}

static lt_status check_finite(session *s, const update *u)
{
    if (u->applied)
        return LT_OK;
    s->everywhere = true; /* all ranks have the same gradients */
    if (!may_skip(s, u))
        return lt_fail(LT_E_ARG,
                       "step %lld: a gradient is not finite (loss %g, norm %g); --on-nan skip "
                       "passes over such steps",
                       (long long)u->step, u->loss, u->grad_norm);
    s->everywhere = false;
    if (!s->rank && s->args.amp == AMP_F16)
        lt_log(LT_LOG_INFO, "train", "step %lld skipped: an overflow; the loss scale is %g now",
               (long long)u->step, u->loss_scale);
    else if (!s->rank)
        lt_log(LT_LOG_WARN, "train", "step %lld skipped: a gradient is not finite",
               (long long)u->step);
    return LT_OK;
}

/* What is counted on each rank and told of all, and whether a signal came to any of them: on its
 * way while the optimizer works. */
enum { SUM_LOSS, SUM_IMAGES, SUM_CORRECT, SUM_SIGNALS, SUMS };

static lt_status begin_totals(session *s, const update *u)
{
    const double sum[SUMS] = {[SUM_LOSS] = u->loss * (double)u->images,
                              [SUM_IMAGES] = (double)u->images,
                              [SUM_CORRECT] = (double)u->correct,
                              [SUM_SIGNALS] = signals_seen()};
    return session_sum_begin(s, sum, SUMS);
}

/* What this rank sent; a replayed update asks for nothing, and sends as much as the last one that
 * did. */
static void count_bytes(session *s, update *u)
{
    if (lt_graph_statistics(s->graph).replays == s->replays)
        s->update_bytes = lt_comm_bytes(s->comm) - s->bytes;
    u->comm_bytes = (double)s->update_bytes;
}

static lt_status finish_totals(session *s, update *u)
{
    double sum[SUMS];
    if (!s->comm)
        return LT_OK;
    LT_TRY(session_sum_finish(s, sum, SUMS));
    u->loss = sum[SUM_LOSS] / sum[SUM_IMAGES];
    u->images = (int64_t)sum[SUM_IMAGES];
    u->correct = (int64_t)sum[SUM_CORRECT];
    s->stop = sum[SUM_SIGNALS] > 0;
    count_bytes(s, u);
    return LT_OK;
}

static lt_status prepare(session *s, update *u)
{
    u->begin = session_clock();
    u->step = s->state.step + 1;
    s->bytes = s->comm ? lt_comm_bytes(s->comm) : 0;
    s->replays = lt_graph_statistics(s->graph).replays;
    u->lr = lt_schedule_lr(&s->schedule, u->step);
    const lt_step step = {.lr = u->lr, .clip_norm = s->args.clip_grad, .attempt = u->step};
    LT_TRY(begin_numbers(s, u));
    return lt_optim_prepare(s->optim, &step);
}

/* Totals are on their way while the optimizer works, but for where its work may be recorded with the
 * gradients': then they come behind it on all ranks, as ranks may differ in what they replay. */
static bool tells_late(const session *s)
{
    return s->args.graph && session_on_gpu(s);
}

/* Whether the optimizer's work is one piece with the last micro-batch's. */
static changes changes_at_once(const session *s)
{
    if (lt_optim_is_steady(s->optim))
        return !s->dp || tells_late(s) ? CHANGES_ALL : CHANGES_NOTHING;
    return s->args.graph && lt_optim_is_split(s->optim) ? CHANGES_FIRST : CHANGES_NOTHING;
}

/* What changes_at_once() left. */
static lt_status change_rest(session *s, changes done)
{
    if (done == CHANGES_ALL)
        return LT_OK;
    if (done == CHANGES_NOTHING)
        return change(s);
    int64_t begin = lt_profile_begin();
    LT_TRY(lt_optim_update_host(s->optim));
    lt_profile_end(begin, LT_PROFILE_OPTIM, lt_optim_name(s->optim), 0);
    return lt_graph_run(s->device, &s->graph, (lt_graph_key){.kind = CHANGES_SECOND}, change_second,
                        s);
}

/* The gradients are on their way, or have come. */
static lt_status tell_others(session *s, update *u)
{
    if (!s->dp)
        return LT_OK;
    u->exposed_seconds = lt_data_parallel_exposed(s->dp);
    LT_TRY(read_numbers(s, u));
    return begin_totals(s, u);
}

lt_status session_update(session *s, update *u)
{
    int64_t span = lt_profile_begin();
    LT_TRY(prepare(s, u));
    changes together = changes_at_once(s);
    for (int64_t i = 0, count = s->args.grad_accum; i < count; i++)
        LT_TRY(micro_batch(s, i, together, u));
    LT_TRY(send_numbers(s, u));
    if (!tells_late(s))
        LT_TRY(tell_others(s, u));
    LT_TRY(change_rest(s, together));
    if (tells_late(s))
        LT_TRY(tell_others(s, u));
    lt_optim_advance(s->optim);
    LT_TRY(lt_optim_send_result(s->optim));
    session_shampoo_values(s, u->shampoo);
    u->may_wait = together != CHANGES_NOTHING;
    if (!s->comm)
        s->stop = signals_seen() > 0;
    lt_profile_end(span, LT_PROFILE_PROGRAM, "step", 0);
    return LT_OK;
}

/* Two updates on their way at once share the time: one's begins when the other's results are there. */
static void measure(session *s, update *u)
{
    const double now = session_clock();
    u->seconds = now - (u->begin > s->finished ? u->begin : s->finished);
    s->finished = now;
}

lt_status session_update_finish(session *s, update *u)
{
    if (!s->comm)
        LT_TRY(read_numbers(s, u));
    LT_TRY(read_result(s, u));
    LT_TRY(finish_totals(s, u));
    LT_TRY(check_finite(s, u));
    measure(s, u);
    return LT_OK;
}
