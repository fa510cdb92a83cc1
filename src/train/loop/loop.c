/* The training loop. Checkpoints and records cover only finished steps: a step in flight is finished before them. */

#include "loop.h"

#include "base/clock.h"
#include "tensor/statistics.h"

#include "lather/detail/readback.h"
#include "lather/detail/shard_params.h"
#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE = 512 };

/* A step in flight, and the further values of its record. */
typedef struct update {
    lt_train_result result;
    int queued;
    lt_metric value[LOOP_VALUES];
    int values;
    bool met; /* an outer step of --local-steps followed this step */
    double outer_seconds, outer_bytes;
} update;

static const lt_task_ops *task_of(const lt_train_loop *l)
{
    return l->config->task.ops;
}

/* An overflow of f16 is part of the search for the loss scale. */
static bool is_scaled(const lt_train_loop *l)
{
    return l->config->dtype == LT_F16;
}

/* --- Hooks --- */

static bool is_ended_by_hook(const lt_train_loop *l)
{
    return l->hooks.ended_by;
}

/* Calls the hooks of a point about a step, with the numbers of its record or its epoch's. */
static lt_status call_hooks(lt_train_loop *l, lt_hook_point point, int64_t step,
                            const lt_metric *metric, size_t metrics)
{
    const lt_train_view view = {
        .step = step,
        .epoch = l->state->now.epoch,
        .total_steps = l->total_steps,
        .lr = lt_schedule_lr(&l->schedule, (step > 0 ? step : 1) - l->state->offset),
        .metric = metric,
        .metrics = metrics,
        .params = l->parts.params,
        .optim = l->parts.optim,
        .rank = l->ranks->rank,
        .ranks = l->ranks->count,
        .folder = l->config->output,
        .run = l->run,
    };
    return lt_hooks_call(&l->hooks, point, &view, l->ranks);
}

/* Restores the numbers of the hooks from the state, and calls before_run. */
static lt_status begin_hooks(lt_train_loop *l)
{
    lt_hooks_restore(&l->hooks, &l->state->now);
    return call_hooks(l, LT_HOOK_BEFORE_RUN, l->state->now.step, NULL, 0);
}

/* Records and shows which hook ended the run. */
static lt_status record_end_by_hook(const lt_train_loop *l)
{
    const char *by = l->hooks.ended_by;
    const int64_t step = l->state->now.step;
    lt_run_note(l->run, "%s ended the run at step %lld", by, (long long)step);
    return lt_run_event(l->run, "ended", step, "by", by);
}

/* --- A step --- */

/* An overflow in f16 is part of the search for the loss scale, unless even a tiny scale overflows. */
static bool may_skip(const lt_train_loop *l, const lt_train_result *r)
{
    const double hopeless = 0x1p-14;
    return l->config->skip_nan || (is_scaled(l) && r->optim.loss_scale > hopeless);
}

static lt_status check_finite(const lt_train_loop *l, const lt_train_result *r)
{
    if (r->optim.applied)
        return LT_OK;
    if (!may_skip(l, r)) {
        l->ranks->same_failure =
            !l->local; /* all ranks have the same gradients, or those of a group */
        return lt_fail(LT_E_ARG,
                       "step %lld: a gradient is not finite (loss %g, norm %g); --on-nan skip "
                       "skips such steps",
                       (long long)r->step, r->sums.loss, r->optim.grad_norm);
    }
    const bool tells = !(l->local ? lt_comm_rank(lt_local_steps_comm(l->local)) : l->ranks->rank);
    if (tells && is_scaled(l))
        lt_log(LT_LOG_INFO, "train", "step %lld skipped: overflow; the loss scale is now %g",
               (long long)r->step, r->optim.loss_scale);
    else if (tells)
        lt_log(LT_LOG_WARN, "train", "step %lld skipped: a gradient is not finite",
               (long long)r->step);
    return LT_OK;
}

/* Returns the loss and the metrics that the task has in training. */
static size_t train_metrics(const lt_train_loop *l, const lt_task_sums *sums,
                            lt_metric out[LT_TASK_METRICS + 1])
{
    size_t count = 0;
    out[count++] = (lt_metric){"loss", sums->loss};
    for (int i = 0; i < task_of(l)->metrics; i++) {
        const lt_task_metric *m = &task_of(l)->metric[i];
        if (m->of_training)
            out[count++] = (lt_metric){m->name, m->value(sums)};
    }
    return count;
}

/* Returns the units of the displayed speed per sample: tokens of a sequence, or 1. */
static int64_t speed_units_per_sample(const lt_train_loop *l)
{
    const lt_task *task = &l->evaluator.task;
    return task->ops->rate_per_sample ? task->ops->rate_per_sample(task->context) : 1;
}

/* Records which ranks or micro-batches contributed to the step, and shows a new deadline. */
static lt_status record_stragglers(const lt_train_loop *l, int64_t step)
{
    lt_stragglers *s = l->stragglers;
    if (!s)
        return LT_OK;
    const lt_drop_plan *plan = lt_stragglers_take_new_plan(s);
    if (plan && plan->deadline > 0)
        lt_run_note(l->run,
                    "--drop-compute: a deadline of %.4g s: %.1f %% of the micro-batches in %.4g s, "
                    "%.1f %% more of them per second",
                    plan->deadline, 100 * plan->kept, plan->step, 100 * (plan->gain - 1));
    else if (plan)
        lt_run_note(l->run, "--drop-compute: no deadline computes more micro-batches per second");
    return lt_run_event(l->run, lt_stragglers_event(s), step, lt_stragglers_text_key(s),
                        lt_stragglers_format_record(s));
}

static lt_status record_step(lt_train_loop *l, const update *u)
{
    const lt_train_result *r = &u->result;
    const double unknown = (double)NAN;
    const bool many = l->ranks->comm, shares = l->evaluator.share;
    enum { OWN = 16 };
    lt_metric metric[LT_TASK_METRICS + 1 + OWN + LOOP_VALUES];
    const size_t metrics = train_metrics(l, &r->sums, metric);
    const lt_metric own[OWN] = {
        {"gradient_norm", r->optim.grad_norm},
        {"skipped", r->optim.applied ? unknown : 1},
        {"skipped_steps", is_scaled(l) ? (double)(r->step - r->optim.steps) : unknown},
        {"loss_scale", is_scaled(l) ? r->optim.loss_scale : unknown},
        {"comm_exposed_seconds", many ? r->exposed_seconds : unknown},
        {"comm_bytes", many ? r->comm_bytes : unknown},
        {"tp_bytes", l->ranks->mesh ? r->parallel_bytes : unknown},
        {"loader_queue", u->queued},
        {"grad_bytes_between", l->ranks->nodes.count > 1 && !l->local ? r->between_bytes : unknown},
        {"outer_seconds", u->met ? u->outer_seconds : unknown},
        {"outer_bytes", u->met ? u->outer_bytes : unknown},
        {"turn", shares ? (double)r->turn.number : unknown},
        {"turn_seconds", shares ? r->turn.seconds : unknown},
        {"micro_dropped", lt_stragglers_count_dropped(l->stragglers)},
        {"drop_deadline", lt_stragglers_deadline(l->stragglers)},
        {"noise_scale", lt_train_state_noise_scale(l->state)},
    };
    const size_t all = metrics + OWN + (size_t)u->values;
    memcpy(metric + metrics, own, sizeof own);
    memcpy(metric + metrics + OWN, u->value, (size_t)u->values * sizeof *u->value);
    const lt_run_step_record record = {
        .step = r->step,
        .epoch = l->state->now.epoch,
        .metric = metric,
        .metrics = metrics,
        .lr = r->lr,
        .samples = (int64_t)r->sums.samples * speed_units_per_sample(l),
        .seconds = r->seconds,
        .data_seconds = r->data_seconds,
        .extra = metric + metrics,
        .extra_count = all - metrics,
    };
    if (!many) /* several ranks: at the end of the epoch */
        LT_TRY(lt_train_input_record_corrupt(l->ranks, l->run, l->input->loader,
                                             &l->input->bad_listed));
    LT_TRY(lt_run_step(l->run, &record));
    LT_TRY(record_stragglers(l, r->step));
    return call_hooks(l, LT_HOOK_AFTER_STEP, r->step, metric, all);
}

/* --- Outer steps of local steps --- */

/* Runs an outer step if one is due, or in any case if `now`. The EMA follows the synchronized weights. */
static lt_status outer_step(const lt_train_loop *l, bool now, bool *met)
{
    *met = false;
    if (!l->local)
        return LT_OK;
    const int64_t since = lt_local_steps_since_sync(l->local);
    int64_t span = lt_profile_begin();
    LT_TRY(now ? lt_local_steps_synchronize(l->local, met) : lt_local_steps_step(l->local, met));
    lt_profile_end(span, LT_PROFILE_PROGRAM, "outer step", 0);
    return *met && l->state->ema ? lt_ema_update_by_steps(l->state->ema, since + !now) : LT_OK;
}

static double outer_bytes(const lt_train_loop *l)
{
    const lt_local_steps_bytes sent = lt_local_steps_bytes_sent(l->local);
    return (double)(sent.within + sent.between);
}

/* Runs an outer step that is due after a finished step, and adds its time and bytes to the step's. */
static lt_status run_and_time_outer_step(const lt_train_loop *l, update *u)
{
    if (!l->local)
        return LT_OK;
    const double begin = lt_clock_seconds(), sent = outer_bytes(l);
    LT_TRY(outer_step(l, false, &u->met));
    if (!u->met)
        return LT_OK;
    u->outer_seconds = lt_clock_seconds() - begin;
    u->outer_bytes = outer_bytes(l) - sent;
    u->result.seconds += u->outer_seconds;
    u->result.comm_bytes += u->outer_bytes;
    return LT_OK;
}

/* Waits for the results of a step in flight, counts and records them; does nothing if u is empty. */
static lt_status finish_step(lt_train_loop *l, update *u)
{
    if (!u->result.step)
        return LT_OK;
    lt_status st = lt_train_step_finish(l->step, &u->result);
    if (st && l->stragglers && lt_stragglers_same_failure(l->stragglers))
        l->ranks->same_failure = true;
    if (st)
        return st;
    l->ranks->stop = l->ranks->stop || u->result.stop;
    LT_TRY(check_finite(l, &u->result));
    LT_TRY(run_and_time_outer_step(l, u));
    lt_train_state_count_results(l->state, task_of(l), &u->result);
    LT_TRY(lt_train_add_noise_sample(l->state, &u->result));
    LT_TRY(record_step(l, u));
    *u = (update){0};
    return LT_OK;
}

static lt_status begin_step(const lt_train_loop *l, update *u)
{
    const int64_t attempt = l->state->now.step + 1;
    const lt_step numbers = {.lr = lt_schedule_lr(&l->schedule, attempt - l->state->offset),
                             .clip_norm = l->config->clip_norm,
                             .attempt = attempt};
    LT_TRY(lt_optim_stats_before(l->stats.optim, attempt));
    LT_TRY(lt_train_step_begin(l->step, &numbers, &u->result));
    LT_TRY(lt_optim_stats_after(l->stats.optim, attempt));
    u->queued = l->input->queued;
    u->values = l->step_values ? l->step_values(l->context, u->value) : 0;
    l->ranks->stop = l->ranks->stop || u->result.stop;
    return LT_OK;
}

static bool runs_ahead(const lt_train_loop *l, const update *u)
{
    if (l->ranks->comm || !u->result.may_run_ahead || l->ahead == LT_RUN_AHEAD_OFF)
        return false;
    return l->ahead == LT_RUN_AHEAD_ON || lt_device_has_queue(l->evaluator.device);
}

/* Begins one more step, then finishes the one before it, which is recorded even if the new one fails. A step that
 * --optim-stats measures is finished at once. */
static lt_status pipeline_next_step(lt_train_loop *l, update *pending)
{
    const int64_t attempt = l->state->now.step + 1;
    const bool measured = lt_optim_stats_is_due(l->stats.optim, attempt);
    update u = {0};
    char why[MESSAGE];
    lt_status st = begin_step(l, &u);
    if (st)
        snprintf(why, sizeof why, "%s", lt_error_message());
    LT_TRY(finish_step(l, pending));
    if (st)
        return lt_fail(st, "%s", why);
    lt_train_state_count_queued(l->state, l->config->grad_accum);
    *pending = u;
    if (!measured && runs_ahead(l, pending))
        return LT_OK;
    LT_TRY(finish_step(l, pending));
    return measured ? lt_train_stats_write(&l->stats, l->run, attempt) : LT_OK;
}

/* --- Checkpoints --- */

/* Averages running statistics over the ranks, for the EMA too. */
static lt_status average_running_statistics(const lt_train_loop *l)
{
    if (!l->dp)
        return LT_OK;
    LT_TRY(lt_data_parallel_sync_statistics(l->dp));
    if (!l->state->ema)
        return LT_OK;
    LT_TRY(lt_train_state_swap_ema(l->state));
    lt_status st = lt_data_parallel_sync_statistics(l->dp);
    lt_status back = lt_train_state_swap_ema(l->state);
    return st ? st : back;
}

static lt_status report_failed_save(const lt_train_loop *l)
{
    char why[MESSAGE];
    long long step = (long long)l->state->now.step;
    if (l->ranks->rank) /* rank 0 reports it and writes the record */
        return LT_OK;
    snprintf(why, sizeof why, "%s", lt_error_message());
    lt_run_warn(l->run, "checkpoint of step %lld not written: %s", step, why);
    return lt_run_event(l->run, "checkpoint_failed", step, "error", why);
}

/* Fails on a running statistic that is not finite: no later step repairs it, and an evaluation would be
 * meaningless. */
static lt_status check_statistics(const lt_train_loop *l)
{
    char where[32];
    snprintf(where, sizeof where, "step %lld", (long long)l->state->now.step);
    return lt_statistics_check(l->parts.params, where);
}

/* Recomputes batch norm's statistics unless an evaluation of this step did. */
static lt_status recompute_bn_statistics(const lt_train_loop *l)
{
    if (!l->update_bn || l->update_bn->step == l->state->now.step)
        return LT_OK;
    LT_TRY(lt_optim_gather_params(l->parts.optim));
    LT_TRY(lt_train_use_eval_weights(l->state, l->parts.optim));
    lt_status st = lt_update_bn_run(l->update_bn, &l->evaluator, l->state->now.step);
    lt_status back = lt_train_use_train_weights(l->state, l->parts.optim);
    return st ? st : back;
}

/* Saves a checkpoint. A failure is a warning only: the previous checkpoint still exists. */
static lt_status save_or_warn(const lt_train_loop *l, bool is_best)
{
    const lt_checkpoint_policy policy = {.keep = l->config->keep, .is_best = is_best};
    int64_t span = lt_profile_begin();
    LT_TRY(average_running_statistics(l));
    LT_TRY(recompute_bn_statistics(l));
    LT_TRY(check_statistics(l));
    lt_hooks_store(&l->hooks, &l->state->now);
    LT_TRY(lt_run_check(l->run)); /* otherwise saving would make the folder again */
    l->state->save_failed =
        lt_train_state_save(l->state, &l->parts, l->config->output, &policy) != LT_OK;
    LT_TRY(lt_train_state_record_hash(l->state, &l->parts, l->run));
    lt_optim_release_params(l->parts.optim);
    lt_profile_end(span, LT_PROFILE_PROGRAM, "checkpoint", 0);
    return l->state->save_failed ? report_failed_save(l) : LT_OK;
}

/* Records a hash between checkpoints of a reproducible run. */
static lt_status hash_now(const lt_train_loop *l)
{
    return l->state->now.reproducible ? lt_train_state_record_hash(l->state, &l->parts, l->run)
                                      : LT_OK;
}

/* Fails if the last checkpoint was not written. All ranks agree on save_failed, as saving is collective. */
static lt_status check_saved(const lt_train_loop *l)
{
    if (!l->state->save_failed)
        return LT_OK;
    l->ranks->same_failure = true;
    return lt_fail(LT_E_IO, "%s: the checkpoint of the last step, %lld, is missing",
                   l->config->output, (long long)l->state->now.step);
}

/* --- An epoch --- */

static bool is_done(const lt_train_loop *l)
{
    return l->state->now.step >= l->total_steps || l->ranks->stop || is_ended_by_hook(l);
}

/* A signal may come between the last step of an epoch and its record, even during its evaluation: the resumed run
 * then still has that to do, even if all steps are done. */
static bool is_run_over(const lt_train_loop *l)
{
    return is_done(l) && (l->ranks->stop || l->state->now.epoch_recorded);
}

/* Trains to the end of the epoch, or until the run stops. */
static lt_status train_epoch(lt_train_loop *l)
{
    const lt_checkpoint_state *now = &l->state->now;
    const int64_t every = l->config->checkpoint_every;
    update pending = {0};
    if (l->begin_epoch)
        l->begin_epoch(l->context);
    if (l->stragglers)
        lt_stragglers_record_again(l->stragglers);
    lt_train_input_begin_stats(l->input, now->epoch_seconds);
    while (now->batch < l->input->batches_per_epoch && !is_done(l)) {
        LT_TRY(call_hooks(l, LT_HOOK_BEFORE_STEP, now->step + 1, NULL, 0));
        if (is_ended_by_hook(l))
            break;
        LT_TRY(pipeline_next_step(l, &pending));
        const bool saves = every && now->step % every == 0,
                   hashes = l->hash_every && now->step % l->hash_every == 0 && !is_done(l);
        if ((saves || hashes) && now->batch < l->input->batches_per_epoch) {
            LT_TRY(finish_step(l, &pending));
            LT_TRY(saves ? save_or_warn(l, false) : hash_now(l));
        }
    }
    return finish_step(l, &pending);
}

static lt_status evaluate(const lt_train_loop *l, lt_evaluation *e)
{
    int64_t span = lt_profile_begin();
    LT_TRY(
        lt_optim_gather_params(l->parts.optim)); /* ranks may have different numbers of batches */
    LT_TRY(average_running_statistics(l));
    LT_TRY(lt_train_use_eval_weights(l->state, l->parts.optim));
    lt_status st = LT_OK;
    if (l->update_bn)
        st = lt_update_bn_run(l->update_bn, &l->evaluator, l->state->now.step);
    if (!st)
        st = check_statistics(l);
    if (!st)
        st = lt_evaluate(&l->evaluator, l->evaluated, e);
    lt_status back = lt_train_use_train_weights(l->state, l->parts.optim);
    lt_optim_release_params(l->parts.optim);
    lt_profile_end(span, LT_PROFILE_PROGRAM, "evaluate", 0);
    if (!st && !e->stopped && !l->ranks->rank
        && isnan(e->sums.loss)) /* NaN is not written to records */
        lt_run_warn(l->run, "step %lld: the validation loss is NaN", (long long)l->state->now.step);
    return st ? st : back;
}

static lt_status record_epoch(lt_train_loop *l, const lt_evaluation *e)
{
    const lt_checkpoint_state *now = &l->state->now;
    const lt_task_ops *task = task_of(l);
    const lt_task_sums sums = lt_train_state_sums(l->state, task);
    enum { EXTRA = INPUT_VALUES + 2 + EVALUATION_VALUES, ALL = 2 * (LT_TASK_METRICS + 1) };
    lt_metric extra[EXTRA], training[LT_TASK_METRICS + 1], shown[ALL + 2 + EXTRA];
    lt_epoch_metrics all = {.count = 0};
    const size_t count = train_metrics(l, &sums, training);
    for (size_t i = 0; i < count; i++)
        lt_epoch_metrics_add(&all, "train", training[i].name, training[i].value);
    lt_epoch_metrics_add_evaluation(&all, "val", task, e);
    const lt_run_epoch_record record = {
        .epoch = now->epoch,
        .step = now->step,
        .metric = all.metric,
        .metrics = all.count,
        .seconds = now->epoch_seconds,
        .eval_seconds = e ? e->seconds : 0,
        .extra = extra,
        .extra_count = EXTRA,
    };
    lt_train_input_metrics(l->input, extra);
    extra[INPUT_VALUES] = (lt_metric){"optimizer_bytes", /* on this rank */
                                      (double)lt_optim_state_bytes(l->parts.optim)};
    extra[INPUT_VALUES + 1] = (lt_metric){"cpu_seconds", lt_clock_process_cpu_seconds()};
    lt_evaluation_sample_metrics(e, extra + INPUT_VALUES + 2);
    lt_train_input_log_bottleneck(l->input, l->run, now->epoch, now->epoch_seconds);
    LT_TRY(lt_run_epoch(l->run, &record));
    memcpy(shown, all.metric, all.count * sizeof *shown);
    shown[all.count] = (lt_metric){"seconds", record.seconds};
    shown[all.count + 1] = (lt_metric){"eval_seconds", record.eval_seconds};
    memcpy(shown + all.count + 2, extra, sizeof extra);
    if (e)
        LT_TRY(call_hooks(l, LT_HOOK_AFTER_EVALUATION, now->step, shown, all.count + 2 + EXTRA));
    return call_hooks(l, LT_HOOK_AFTER_EPOCH, now->step, shown, all.count + 2 + EXTRA);
}

/* Returns true if the evaluation's best metric is the run's best so far; *reached: it reaches the target. */
static bool check_best_and_target(const lt_train_loop *l, const lt_evaluation *e, bool *reached)
{
    const lt_task_ops *task = task_of(l);
    const lt_task_metric loss = {.label = "loss", .lower_is_better = true};
    const lt_task_metric *m = task->metrics ? &task->metric[task->best] : &loss;
    const double value = m->value ? m->value(&e->sums) : e->sums.loss;
    *reached = l->config->target > 0
               && (m->lower_is_better ? value <= l->config->target : value >= l->config->target);
    if (*reached)
        lt_run_note(l->run, "reached %.2f%s%s %s (target %g) at step %lld", value,
                    m->unit ? " " : "", m->unit ? m->unit : "", m->label, l->config->target,
                    (long long)l->state->now.step);
    return lt_train_state_update_best(l->state, task, value);
}

/* Ends an epoch, or a run within one: outer step, evaluation, record, checkpoint. A signal during the evaluation
 * skips the rest. */
static lt_status finish_epoch(lt_train_loop *l, bool *reached)
{
    lt_checkpoint_state *now = &l->state->now;
    lt_evaluation e = {0};
    bool met;
    LT_TRY(outer_step(l, true, &met));
    if (l->ranks->comm)
        LT_TRY(lt_train_input_record_corrupt(l->ranks, l->run, l->input->loader,
                                             &l->input->bad_listed));
    const bool is_due = l->config->eval_every > 0 && (now->epoch + 1) % l->config->eval_every == 0;
    const bool evaluated = is_due || (l->config->eval_every >= 0 && now->step >= l->total_steps);
    if (evaluated)
        LT_TRY(evaluate(l, &e));
    e.unsplit = e.unsplit || l->evaluated == l->input->train;
    if (e.stopped)
        return LT_OK;
    LT_TRY(record_epoch(l, evaluated ? &e : NULL));
    now->epoch_recorded = 1;
    const bool is_best = evaluated && check_best_and_target(l, &e, reached);
    if (now->batch >= l->input->batches_per_epoch)
        lt_train_state_next_epoch(l->state);
    return save_or_warn(l, is_best);
}

static lt_status save_on_stop(const lt_train_loop *l)
{
    LT_TRY(save_or_warn(l, false));
    if (l->ranks->comm)
        LT_TRY(lt_train_input_record_corrupt(l->ranks, l->run, l->input->loader,
                                             &l->input->bad_listed));
    return check_saved(l);
}

/* Returns true if a hook ended the run within an epoch, which a resume then continues. */
static bool is_ended_within_epoch(const lt_train_loop *l)
{
    const lt_checkpoint_state *now = &l->state->now;
    return is_ended_by_hook(l) && now->step < l->total_steps
           && now->batch < l->input->batches_per_epoch;
}

/* Saves a run that a hook ended; local steps then synchronize for the final weights. */
static lt_status save_within_epoch(const lt_train_loop *l)
{
    bool met;
    LT_TRY(save_on_stop(l));
    return outer_step(l, true, &met);
}

/* Sets ranks->stop if a rank was asked to stop after its epoch, whose checkpoint is saved. Collective. */
static lt_status ask_for_stop(const lt_train_loop *l)
{
    double asked = l->stops_after_epoch && l->stops_after_epoch();
    if (l->stops_after_epoch)
        LT_TRY(lt_ranks_sum(l->ranks, &asked, 1));
    l->ranks->stop = asked > 0;
    return l->ranks->stop ? check_saved(l) : LT_OK;
}

lt_status lt_train_loop_run(lt_train_loop *l)
{
    const lt_checkpoint_state *now = &l->state->now;
    bool reached = false;
    LT_TRY(begin_hooks(l));
    LT_TRY(lt_train_state_record_data(l->state, l->run));
    LT_TRY(hash_now(l));
    LT_TRY(lt_loader_seek(l->input->loader, now->epoch, now->batch));
    while (!reached && !is_ended_by_hook(l) && !is_run_over(l)) {
        LT_TRY(train_epoch(l));
        if (!l->ranks->stop)
            LT_TRY(is_ended_within_epoch(l) ? save_within_epoch(l) : finish_epoch(l, &reached));
        if (l->ranks->stop)
            return save_on_stop(l);
        if (reached || is_done(l))
            continue;
        LT_TRY(ask_for_stop(l));
        if (l->ranks->stop)
            return LT_OK;
        LT_TRY(lt_train_input_next_epoch(l->input, now->epoch, now->batch));
    }
    if (is_ended_by_hook(l))
        LT_TRY(record_end_by_hook(l));
    if (l->config->output) {
        LT_TRY(lt_optim_gather_params(l->parts.optim));
        LT_TRY(lt_train_state_save_weights(l->state, &l->parts, l->config->output));
    }
    return check_saved(l);
}
