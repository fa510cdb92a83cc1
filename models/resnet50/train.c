/* The training loop: micro-batches make an update, updates an epoch, epochs a run. */

#include "session.h"

#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/profile.h"

#include <math.h>

/* What one update showed. */
typedef struct update {
    double loss; /* mean over its micro-batches */
    int64_t images, correct;
    double seconds, data_seconds, lr, grad_norm;
    double exposed_seconds, comm_bytes; /* of this rank */
    bool applied;
} update;

static lt_status next_batch(session *s, lt_batch *batch, double *waited)
{
    double begin = session_clock();
    lt_status st = lt_loader_next(s->loader, batch);
    *waited += session_clock() - begin;
    return st;
}

static lt_status read_hits(session *s, int64_t hits[2])
{
    return lt_tensor_read(s->hits, hits, 2 * sizeof *hits);
}

/* Forward and backward of one micro-batch; adds its share to u. */
static lt_status micro_batch(session *s, int64_t micro, update *u)
{
    lt_batch batch;
    double loss_value;
    LT_TRY(next_batch(s, &batch, &u->data_seconds));
    lt_pass pass = session_pass(s, true);
    pass.attempt = s->state.step + 1;
    pass.micro = (int32_t)(micro * s->ranks + s->rank);
    lt_tape_reset(s->tape, pass);

    lt_tensor *logits = session_forward(s, batch.images);
    lt_tensor *targets = batch.targets ? batch.targets : batch.labels;
    lt_tensor *loss = lt_softmax_xent(s->tape, logits, targets, s->args.label_smoothing);
    LT_TRY(lt_tape_status(s->tape));
    LT_TRY(lt_topk_hits(logits, batch.labels, s->hits));
    if (s->dp)
        lt_data_parallel_begin(s->dp, micro + 1 == s->args.grad_accum);
    LT_TRY(lt_tape_backward(s->tape, loss, 1.0 / (double)s->args.grad_accum));
    LT_TRY(lt_tensor_item(loss, &loss_value));
    u->loss += loss_value / (double)s->args.grad_accum;
    u->images += batch.count;
    return LT_OK;
}

static lt_status apply_gradients(session *s, update *u)
{
    lt_step step = {.lr = u->lr, .clip_norm = s->args.clip_grad, .attempt = s->state.step + 1};
    lt_step_result result;
    int64_t begin = lt_profile_begin();
    LT_TRY(lt_optim_step(s->optim, &step));
    LT_TRY(lt_optim_result(s->optim, &result));
    lt_profile_end(begin, LT_PROFILE_OPTIM, lt_optim_name(s->optim), 0);
    u->applied = result.applied;
    u->grad_norm = result.grad_norm;
    return LT_OK;
}

static lt_status check_finite(session *s, const update *u)
{
    if (u->applied)
        return LT_OK;
    s->everywhere = true; /* all ranks have the same gradients */
    if (s->args.on_nan == ON_NAN_ABORT)
        return lt_fail(LT_E_ARG,
                       "step %lld: a gradient is not finite (loss %g, norm %g); --on-nan skip "
                       "passes over such steps",
                       (long long)s->state.step + 1, u->loss, u->grad_norm);
    s->everywhere = false;
    if (!s->rank)
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
    u->comm_bytes = (double)(lt_comm_bytes(s->comm) - s->bytes);
    return LT_OK;
}

/* Gradients become the mean over ranks. */
static lt_status finish_gradients(session *s, update *u)
{
    int64_t span = lt_profile_begin();
    if (!s->dp)
        return LT_OK;
    LT_TRY(lt_data_parallel_finish(s->dp));
    u->exposed_seconds = lt_data_parallel_exposed(s->dp);
    lt_profile_end(span, LT_PROFILE_COMM, "gradients", 0);
    return begin_totals(s, u);
}

static lt_status run_update(session *s, update *u)
{
    double begin = session_clock();
    int64_t span = lt_profile_begin();
    s->bytes = s->comm ? lt_comm_bytes(s->comm) : 0;
    u->lr = lt_schedule_lr(&s->schedule, s->state.step + 1);
    LT_TRY(lt_tensor_fill(s->hits, 0));
    lt_params_zero_grad(&s->params);
    for (int64_t i = 0; i < s->args.grad_accum; i++)
        LT_TRY(micro_batch(s, i, u));
    LT_TRY(finish_gradients(s, u));
    LT_TRY(apply_gradients(s, u));
    LT_TRY(finish_totals(s, u));
    LT_TRY(check_finite(s, u));
    if (u->applied)
        LT_TRY(session_update_ema(s));
    u->seconds = session_clock() - begin;
    lt_profile_end(span, LT_PROFILE_PROGRAM, "step", 0);
    return LT_OK;
}

static void count_update(session *s, const update *u)
{
    lt_checkpoint_state *state = &s->state;
    state->step++;
    state->batch += s->args.grad_accum;
    state->images += u->images;
    state->seconds += u->seconds;
    state->epoch_loss += u->loss * (double)u->images;
    state->epoch_correct += (double)u->correct;
    state->epoch_images += u->images;
    state->epoch_seconds += u->seconds;
}

static lt_status log_update(session *s, const update *u)
{
    double unknown = (double)NAN;
    enum { OWN = 5 };
    lt_run_value extra[OWN + SHAMPOO_VALUES] = {
        {"gradient_norm", u->grad_norm},
        {"skipped", u->applied ? unknown : 1},
        {"comm_exposed_seconds", s->comm ? u->exposed_seconds : unknown},
        {"comm_bytes", s->comm ? u->comm_bytes : unknown},
        {"image_size", s->sizes.count ? session_train_side(s, s->state.epoch) : unknown},
    };
    session_shampoo_values(s, extra + OWN);
    lt_run_step_record record = {
        .step = s->state.step,
        .epoch = s->state.epoch,
        .loss = u->loss,
        .top1 = 100.0 * (double)u->correct / (double)u->images,
        .lr = u->lr,
        .images = u->images,
        .seconds = u->seconds,
        .data_seconds = u->data_seconds,
        .extra = extra,
        .extra_count = sizeof extra / sizeof *extra,
    };
    if (!s->comm) /* together with the other ranks: at the end of the epoch */
        LT_TRY(session_list_bad(s, s->loader, &s->bad_images));
    return lt_run_step(s->run, &record);
}

/* A checkpoint that cannot be written ends nothing: the last good one is still there. */
static lt_status save_or_warn(session *s, bool is_best)
{
    int64_t span = lt_profile_begin();
    LT_TRY(session_gather_statistics(s));
    if (session_save_checkpoint(s, is_best))
        lt_run_note(s->run, "checkpoint of step %lld not written: %s", (long long)s->state.step,
                    lt_error_message());
    lt_profile_end(span, LT_PROFILE_PROGRAM, "checkpoint", 0);
    return LT_OK;
}

static bool is_done(const session *s)
{
    return s->state.step >= s->total_steps || s->stop;
}

static void note_side(session *s)
{
    int64_t epoch = s->state.epoch;
    int side = session_train_side(s, epoch);
    if (s->sizes.count && (!epoch || s->state.batch || side != session_train_side(s, epoch - 1)))
        lt_run_note(s->run, "epoch %lld: pictures of %d x %d", (long long)epoch + 1, side, side);
}

/* Updates to the end of the epoch, or to where the run stops. */
static lt_status train_epoch(session *s)
{
    int64_t every = s->args.checkpoint_every;
    note_side(s);
    while (s->state.batch < s->batches_per_epoch && !is_done(s)) {
        update u = {0};
        LT_TRY(run_update(s, &u));
        count_update(s, &u);
        LT_TRY(log_update(s, &u));
        if (every && s->state.step % every == 0 && s->state.batch < s->batches_per_epoch)
            LT_TRY(save_or_warn(s, false));
    }
    return LT_OK;
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
    double images = (double)state->epoch_images, unknown = (double)NAN;
    lt_run_epoch_record record = {
        .epoch = state->epoch,
        .step = state->step,
        .train_loss = state->epoch_loss / images,
        .train_top1 = 100 * state->epoch_correct / images,
        .val_loss = e ? e->loss : unknown,
        .val_top1 = e ? e->top1 : unknown,
        .val_top5 = e ? e->top5 : unknown,
        .seconds = state->epoch_seconds,
        .eval_seconds = e ? e->seconds : 0,
    };
    return lt_run_epoch(s->run, &record);
}

static void start_next_epoch(session *s)
{
    s->state.epoch++;
    s->state.batch = 0;
    s->state.epoch_loss = s->state.epoch_correct = s->state.epoch_seconds = 0;
    s->state.epoch_images = 0;
}

/* Evaluation, record and checkpoint at the end of an epoch, or of the run within one. */
static lt_status finish_epoch(session *s, bool *reached)
{
    evaluation e = {0};
    if (s->comm)
        LT_TRY(session_list_bad(s, s->loader, &s->bad_images));
    bool last = s->state.step >= s->total_steps, evaluated = evaluates_now(s, last);
    if (evaluated)
        LT_TRY(evaluate_epoch(s, &e));
    evaluated = evaluated && !e.stopped;
    LT_TRY(log_epoch(s, evaluated ? &e : NULL));
    bool is_best = evaluated && e.top1 > s->state.best_top1;
    if (is_best) {
        s->state.best_top1 = e.top1;
        s->state.best_step = s->state.step;
    }
    *reached = evaluated && s->args.target_top1 > 0 && e.top1 >= s->args.target_top1;
    if (*reached)
        lt_run_note(s->run, "reached %.2f %% top-1 (target %g) at step %lld", e.top1,
                    s->args.target_top1, (long long)s->state.step);
    if (s->state.batch >= s->batches_per_epoch)
        start_next_epoch(s);
    return save_or_warn(s, is_best);
}

lt_status session_train(session *s)
{
    bool reached = false;
    LT_TRY(lt_loader_seek(s->loader, s->state.epoch, s->state.batch));
    while (!reached && !is_done(s)) {
        LT_TRY(train_epoch(s));
        if (s->stop) {
            LT_TRY(save_or_warn(s, false));
            return s->comm ? session_list_bad(s, s->loader, &s->bad_images) : LT_OK;
        }
        LT_TRY(finish_epoch(s, &reached));
        if (!reached && !is_done(s))
            LT_TRY(lt_loader_seek(s->loader, s->state.epoch, s->state.batch));
    }
    return session_save_weights(s);
}
