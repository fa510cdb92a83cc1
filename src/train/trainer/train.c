/* The training loop: micro-batches make an update, updates an epoch, epochs a run. */

#include "train/trainer/session.h"

#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/profile.h"
#include "lather/readback.h"

#include <math.h>
#include <stdio.h>

enum { MESSAGE = 512 };

/* An update was queued; its results come later, in count_results(). */
static void count_update(session *s)
{
    lt_checkpoint_state *state = &s->state;
    state->step++;
    state->epoch_recorded = 0;
    state->batch += s->args.grad_accum;
}

/* A step in flight, and what else its record says. */
typedef struct update {
    lt_train_result result;
    int queued;
    lt_metric shampoo[SHAMPOO_VALUES];
} update;

/* Under f16 a step that overflows is part of the search for the scale; one that overflows at any
 * scale is not. */
static bool may_skip(const session *s, const lt_train_result *r)
{
    const double hopeless = 0x1p-14;
    return s->args.on_nan == ON_NAN_SKIP
           || (s->args.amp == AMP_F16 && r->optim.loss_scale > hopeless);
}

static lt_status check_finite(session *s, const lt_train_result *r)
{
    if (r->optim.applied)
        return LT_OK;
    s->everywhere = true; /* all ranks have the same gradients */
    if (!may_skip(s, r))
        return lt_fail(LT_E_ARG,
                       "step %lld: a gradient is not finite (loss %g, norm %g); --on-nan skip "
                       "passes over such steps",
                       (long long)r->step, r->sums.loss, r->optim.grad_norm);
    s->everywhere = false;
    if (!s->rank && s->args.amp == AMP_F16)
        lt_log(LT_LOG_INFO, "train", "step %lld skipped: an overflow; the loss scale is %g now",
               (long long)r->step, r->optim.loss_scale);
    else if (!s->rank)
        lt_log(LT_LOG_WARN, "train", "step %lld skipped: a gradient is not finite",
               (long long)r->step);
    return LT_OK;
}

static void count_results(session *s, const lt_train_result *r)
{
    lt_checkpoint_state *state = &s->state;
    state->samples += (int64_t)r->sums.samples;
    state->seconds += r->seconds;
    state->sum[EPOCH_LOSS].value += r->sums.loss * r->sums.samples;
    state->sum[EPOCH_CORRECT].value += r->sums.count[0];
    state->epoch_samples += (int64_t)r->sums.samples;
    state->epoch_seconds += r->seconds;
    state->loss_scale = r->optim.loss_scale;
    if (s->args.amp == AMP_F16)
        state->loss_good_steps = r->optim.good_steps;
    if (r->optim.applied && s->ema)
        state->ema_updates++;
}

static lt_status log_update(session *s, const update *u)
{
    const lt_train_result *r = &u->result;
    double unknown = (double)NAN;
    enum { OWN = 8 };
    lt_metric extra[OWN + SHAMPOO_VALUES] = {
        {"gradient_norm", r->optim.grad_norm},
        {"skipped", r->optim.applied ? unknown : 1},
        {"skipped_steps", s->args.amp == AMP_F16 ? (double)(r->step - r->optim.steps) : unknown},
        {"loss_scale", s->args.amp == AMP_F16 ? r->optim.loss_scale : unknown},
        {"comm_exposed_seconds", s->comm ? r->exposed_seconds : unknown},
        {"comm_bytes", s->comm ? r->comm_bytes : unknown},
        {"loader_queue", u->queued},
        {"image_size", s->sizes.count ? session_train_side(s, s->state.epoch) : unknown},
    };
    for (int i = 0; i < SHAMPOO_VALUES; i++)
        extra[OWN + i] = u->shampoo[i];
    const lt_metric metric[] = {{"loss", r->sums.loss}, {"top1", classification_top1(&r->sums)}};
    lt_run_step_record record = {
        .step = r->step,
        .epoch = s->state.epoch,
        .metric = metric,
        .metrics = sizeof metric / sizeof *metric,
        .lr = r->lr,
        .samples = (int64_t)r->sums.samples,
        .seconds = r->seconds,
        .data_seconds = r->data_seconds,
        .extra = extra,
        .extra_count = sizeof extra / sizeof *extra,
    };
    if (!s->comm) /* together with the other ranks: at the end of the epoch */
        LT_TRY(session_list_bad(s, s->loader, &s->bad_images));
    return lt_run_step(s->run, &record);
}

static lt_status tell_lost(session *s)
{
    char why[MESSAGE];
    long long step = (long long)s->state.step;
    if (s->rank) /* rank 0 tells it and writes the record */
        return LT_OK;
    snprintf(why, sizeof why, "%s", lt_error_message());
    lt_run_warn(s->run, "checkpoint of step %lld not written: %s", step, why);
    return lt_run_event(s->run, "checkpoint_failed", step, "error", why);
}

/* A checkpoint that cannot be written ends nothing: the last good one is still there. */
static lt_status save_or_warn(session *s, bool is_best)
{
    int64_t span = lt_profile_begin();
    LT_TRY(session_gather_statistics(s));
    LT_TRY(lt_run_check(s->run)); /* saving would make the folder anew */
    s->lost = session_save_checkpoint(s, is_best) != LT_OK;
    lt_profile_end(span, LT_PROFILE_PROGRAM, "checkpoint", 0);
    return s->lost ? tell_lost(s) : LT_OK;
}

/* Exit status 1 if the last checkpoint was not written. All ranks have the same s->lost, as saving is
 * collective. */
static lt_status check_saved(session *s)
{
    if (!s->lost)
        return LT_OK;
    s->everywhere = true;
    return lt_fail(LT_E_IO, "%s: the checkpoint of the last step, %lld, is missing", s->args.output,
                   (long long)s->state.step);
}

static bool is_done(const session *s)
{
    return s->state.step >= s->total_steps || s->stop;
}

/* A signal may come between the last update of an epoch and its record, while it is evaluated too:
 * the run that goes on has that to do, even if all its updates are done. */
static bool is_over(const session *s)
{
    return is_done(s) && (s->stop || s->state.epoch_recorded);
}

static void note_side(session *s)
{
    int64_t epoch = s->state.epoch;
    int side = session_train_side(s, epoch);
    if (s->sizes.count && (!epoch || s->state.batch || side != session_train_side(s, epoch - 1)))
        lt_run_note(s->run, "epoch %lld: pictures of %d x %d", (long long)epoch + 1, side, side);
}

/* Waits for the results of a queued update, counts and logs them; number 0: there is none. */
static lt_status record_update(session *s, update *u)
{
    if (!u->result.step)
        return LT_OK;
    LT_TRY(lt_train_step_finish(s->step, &u->result));
    s->stop = s->stop || u->result.stop;
    LT_TRY(check_finite(s, &u->result));
    count_results(s, &u->result);
    LT_TRY(log_update(s, u));
    *u = (update){0};
    return LT_OK;
}

/* Whether the host may queue the next update before it knows what this one gave. */
static bool runs_ahead(const session *s, const update *u)
{
    if (s->comm || !u->result.may_run_ahead || s->args.run_ahead == RUN_AHEAD_OFF)
        return false;
    return s->args.run_ahead == RUN_AHEAD_ON || lt_device_has_queue(s->device);
}

static lt_status begin_update(session *s, update *u)
{
    const int64_t attempt = s->state.step + 1;
    const lt_step numbers = {.lr = lt_schedule_lr(&s->schedule, attempt),
                             .clip_norm = s->args.clip_grad,
                             .attempt = attempt};
    LT_TRY(lt_train_step_begin(s->step, &numbers, &u->result));
    u->queued = s->queued;
    session_shampoo_values(s, u->shampoo);
    s->stop = s->stop || u->result.stop;
    return LT_OK;
}

/* One more update, behind which the one before it is recorded. If the new one fails, the earlier one
 * is recorded all the same. */
static lt_status next_update(session *s, update *pending)
{
    update u = {0};
    char why[MESSAGE];
    lt_status st = begin_update(s, &u);
    if (st)
        snprintf(why, sizeof why, "%s", lt_error_message());
    LT_TRY(record_update(s, pending));
    if (st)
        return lt_fail(st, "%s", why);
    count_update(s);
    *pending = u;
    return runs_ahead(s, pending) ? LT_OK : record_update(s, pending);
}

/* Updates to the end of the epoch, or to where the run stops. */
static lt_status train_epoch(session *s)
{
    int64_t every = s->args.checkpoint_every;
    update pending = {0};
    note_side(s);
    session_feed_begin(s);
    while (s->state.batch < s->batches_per_epoch && !is_done(s)) {
        LT_TRY(next_update(s, &pending));
        if (every && s->state.step % every == 0 && s->state.batch < s->batches_per_epoch) {
            LT_TRY(record_update(s, &pending));
            LT_TRY(save_or_warn(s, false));
        }
    }
    return record_update(s, &pending);
}

static bool evaluates_now(const session *s, bool last)
{
    int64_t every = s->args.eval_every;
    return last || (every && (s->state.epoch + 1) % every == 0);
}

static lt_status evaluate_epoch(session *s, evaluation *e)
{
    lt_dataset *data = s->args.overfit_batches ? s->train_data : s->val_data;
    int64_t span = lt_profile_begin();
    LT_TRY(session_gather_statistics(s));
    LT_TRY(session_swap_ema(s));
    lt_status st = session_evaluate(s, data, e);
    lt_status back = session_swap_ema(s);
    lt_profile_end(span, LT_PROFILE_PROGRAM, "evaluate", 0);
    return st ? st : back;
}

static lt_status log_epoch(session *s, const evaluation *e)
{
    const lt_checkpoint_state *state = &s->state;
    double images = (double)state->epoch_samples, unknown = (double)NAN;
    lt_metric feed[FEED_VALUES];
    const lt_metric metric[] = {{"train_loss", state->sum[EPOCH_LOSS].value / images},
                                {"train_top1", 100 * state->sum[EPOCH_CORRECT].value / images},
                                {"val_loss", e ? e->sums.loss : unknown},
                                {"val_top1", e ? classification_top1(&e->sums) : unknown},
                                {"val_top5", e ? classification_top5(&e->sums) : unknown}};
    lt_run_epoch_record record = {
        .epoch = state->epoch,
        .step = state->step,
        .metric = metric,
        .metrics = sizeof metric / sizeof *metric,
        .seconds = state->epoch_seconds,
        .eval_seconds = e ? e->seconds : 0,
        .extra = feed,
        .extra_count = FEED_VALUES,
    };
    session_feed_values(s, feed);
    session_feed_note(s);
    return lt_run_epoch(s->run, &record);
}

static void start_next_epoch(session *s)
{
    s->state.epoch++;
    s->state.batch = 0;
    for (int i = 0; i < s->state.sums; i++)
        s->state.sum[i].value = 0;
    s->state.epoch_seconds = 0;
    s->state.epoch_samples = 0;
}

/* Evaluation, record and checkpoint at the end of an epoch, or of the run within one; nothing of
 * it if a signal stops the evaluation. */
static lt_status finish_epoch(session *s, bool *reached)
{
    evaluation e = {0};
    if (s->comm)
        LT_TRY(session_list_bad(s, s->loader, &s->bad_images));
    bool last = s->state.step >= s->total_steps, evaluated = evaluates_now(s, last);
    if (evaluated)
        LT_TRY(evaluate_epoch(s, &e));
    if (e.stopped)
        return LT_OK;
    LT_TRY(log_epoch(s, evaluated ? &e : NULL));
    s->state.epoch_recorded = 1;
    const double top1 = evaluated ? classification_top1(&e.sums) : 0;
    bool is_best = evaluated && top1 > s->state.best;
    if (is_best) {
        s->state.best = top1;
        s->state.best_step = s->state.step;
    }
    *reached = evaluated && s->args.target_top1 > 0 && top1 >= s->args.target_top1;
    if (*reached)
        lt_run_note(s->run, "reached %.2f %% top-1 (target %g) at step %lld", top1,
                    s->args.target_top1, (long long)s->state.step);
    if (s->state.batch >= s->batches_per_epoch)
        start_next_epoch(s);
    return save_or_warn(s, is_best);
}

/* To the next epoch, of which the loader has made batches already; a seek would drop them. */
static lt_status go_on(session *s)
{
    lt_batch none;
    lt_status st = lt_loader_next(s->loader, &none);
    if (st && st != LT_END)
        return st;
    return st == LT_END ? LT_OK : lt_loader_seek(s->loader, s->state.epoch, s->state.batch);
}

lt_status session_train(session *s)
{
    bool reached = false;
    LT_TRY(lt_loader_seek(s->loader, s->state.epoch, s->state.batch));
    while (!reached && !is_over(s)) {
        LT_TRY(train_epoch(s));
        if (!s->stop)
            LT_TRY(finish_epoch(s, &reached));
        if (s->stop) {
            LT_TRY(save_or_warn(s, false));
            if (s->comm)
                LT_TRY(session_list_bad(s, s->loader, &s->bad_images));
            return check_saved(s);
        }
        if (!reached && !is_done(s))
            LT_TRY(go_on(s));
    }
    LT_TRY(session_save_weights(s));
    return check_saved(s);
}
