/* One update. What the device does in it is two functions, compute() and change(), without a
 * read-back or a choice that depends on results: a device with graphs records them once and replays
 * them. The data reaches it at fixed addresses, what changes from step to step lies in its memory. */

#include "update.h"

#include "lather/ext/fail.h"
#include "lather/ext/view.h"
#include "lather/log.h"
#include "lather/profile.h"

static lt_status next_batch(session *s, lt_batch *batch, update *u)
{
    double begin = session_clock();
    u->queued = lt_loader_statistics(s->loader).queued;
    lt_status st = lt_loader_next(s->loader, batch);
    u->data_seconds += session_clock() - begin;
    return st;
}

static lt_status read_hits(session *s, int64_t hits[2])
{
    return lt_tensor_read(s->hits, hits, 2 * sizeof *hits);
}

/* A micro-batch, and what belongs to the same piece of work. */
typedef struct work {
    session *s;
    lt_batch batch;
    int64_t micro;
    bool changes; /* change() too */
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
    return w->changes ? change(s) : LT_OK;
}

/* All that tells one recording from another. Pictures may grow from epoch to epoch; tensors are
 * aligned, so that their addresses leave the lowest bits free. */
static uint64_t recording_key(const work *w)
{
    const lt_view images = lt_tensor_view(w->batch.images);
    bool first = !w->micro, last = is_last(w);
    return (uint64_t)first | (uint64_t)last << 1 | (uint64_t)w->changes << 2
           | (uint64_t)(uintptr_t)images.data | (uint64_t)images.shape.dim[2] << 52;
}

static lt_status run(work *w)
{
    session *s = w->s;
    if (!s->args.graph)
        return compute(w);
    return lt_graph_run(s->device, &s->graph, recording_key(w), compute, w);
}

/* Losses wait on the device until the update is on its way. */
static lt_status collect_losses(session *s, update *u)
{
    for (int i = 0; i < s->losses; i++) {
        double value;
        LT_TRY(lt_tensor_read(s->kept_loss[i], &value, sizeof value));
        u->loss += value / (double)s->args.grad_accum;
    }
    s->losses = 0;
    return LT_OK;
}

static lt_status keep_loss(session *s, update *u)
{
    if (s->losses == KEPT_LOSSES)
        LT_TRY(collect_losses(s, u));
    lt_tensor **kept = &s->kept_loss[s->losses++];
    if (!*kept)
        LT_TRY(lt_tensor_new(kept, s->device, LT_F64, LT_SCALAR));
    return lt_tensor_copy(*kept, s->loss);
}

static lt_status micro_batch(session *s, int64_t micro, bool changes, update *u)
{
    work w = {.s = s, .micro = micro, .changes = changes};
    LT_TRY(next_batch(s, &w.batch, u));
    LT_TRY(run(&w));
    u->images += w.batch.count;
    return keep_loss(s, u);
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
                       (long long)s->state.step + 1, u->loss, u->grad_norm);
    s->everywhere = false;
    if (!s->rank && s->args.amp == AMP_F16)
        lt_log(LT_LOG_INFO, "train", "step %lld skipped: an overflow; the loss scale is %g now",
               (long long)s->state.step + 1, u->loss_scale);
    else if (!s->rank)
        lt_log(LT_LOG_WARN, "train", "step %lld skipped: a gradient is not finite",
               (long long)s->state.step + 1);
    return LT_OK;
}

/* What is counted on each rank and told of all, and whether a signal came to any of them: on its
 * way while the optimizer works. */
enum { SUM_LOSS, SUM_IMAGES, SUM_CORRECT, SUM_SIGNALS, SUMS };

static lt_status begin_totals(session *s, const update *u)
{
    int64_t hits[2];
    LT_TRY(read_hits(s, hits));
    const double sum[SUMS] = {[SUM_LOSS] = u->loss * (double)u->images,
                              [SUM_IMAGES] = (double)u->images,
                              [SUM_CORRECT] = (double)hits[0],
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
    int64_t hits[2];
    if (!s->comm) {
        LT_TRY(read_hits(s, hits));
        u->correct = hits[0];
        s->stop = signals_seen() > 0;
        return LT_OK;
    }
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
    s->bytes = s->comm ? lt_comm_bytes(s->comm) : 0;
    s->replays = lt_graph_statistics(s->graph).replays;
    s->losses = 0;
    u->lr = lt_schedule_lr(&s->schedule, s->state.step + 1);
    const lt_step step = {
        .lr = u->lr, .clip_norm = s->args.clip_grad, .attempt = s->state.step + 1};
    return lt_optim_prepare(s->optim, &step);
}

/* Whether the optimizer's work is one piece with the last micro-batch's. On several ranks only where
 * it is recorded: elsewhere totals are on their way while it works. */
static bool changes_at_once(const session *s)
{
    return lt_optim_is_steady(s->optim) && (!s->dp || (s->args.graph && session_on_gpu(s)));
}

/* The gradients are on their way, or have come. */
static lt_status tell_others(session *s, update *u)
{
    if (!s->dp)
        return LT_OK;
    u->exposed_seconds = lt_data_parallel_exposed(s->dp);
    LT_TRY(collect_losses(s, u));
    return begin_totals(s, u);
}

lt_status session_update(session *s, update *u)
{
    double begin = session_clock();
    int64_t span = lt_profile_begin();
    LT_TRY(prepare(s, u));
    bool together = changes_at_once(s);
    for (int64_t i = 0, count = s->args.grad_accum; i < count; i++)
        LT_TRY(micro_batch(s, i, together && i + 1 == count, u));
    LT_TRY(tell_others(s, u));
    if (!together)
        LT_TRY(change(s));
    lt_optim_advance(s->optim);
    LT_TRY(collect_losses(s, u));
    LT_TRY(read_result(s, u));
    LT_TRY(finish_totals(s, u));
    LT_TRY(check_finite(s, u));
    u->seconds = session_clock() - begin;
    lt_profile_end(span, LT_PROFILE_PROGRAM, "step", 0);
    return LT_OK;
}
