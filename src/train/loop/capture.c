/* The device work of a training step, as functions that lt_graph_run() captures once and replays: they read
 * nothing back and do not branch on device data. Data is at fixed addresses; numbers that change from step to step
 * are in device memory. */

#include "base/heartbeat.h"
#include "step_parts.h"
#include "stragglers.h"

#include "lather/averaging.h"
#include "lather/detail/view.h"
#include "lather/ext/fail.h"
#include "lather/profile.h"

#include <string.h>

/* A micro-batch, and the optimizer phases in the same graph. */
typedef struct work {
    lt_train_step *step;
    const lt_batch *batch;
    int64_t micro, attempt;
    bool is_last;
    optim_phases phases;
} work;

static lt_status update_ema(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    if (!c->ema)
        return LT_OK;
    LT_TRY(lt_optim_eval(c->optim)); /* the average is of the weights that evaluations use */
    lt_status st = lt_ema_update(c->ema, c->optim);
    lt_status back = lt_optim_train(c->optim);
    return st ? st : back;
}

/* Runs the optimizer and updates the EMA; neither changes anything if a gradient is not finite. */
static lt_status update_weights_and_ema(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    int64_t begin = lt_profile_begin();
    LT_TRY(lt_optim_update(c->optim));
    lt_profile_end(begin, LT_PROFILE_OPTIM, lt_optim_name(c->optim), 0);
    return update_ema(step);
}

static lt_status run_second_optimizer_phase(void *context)
{
    lt_train_step *step = context;
    LT_TRY(lt_optim_update_second(step->config.optim));
    return update_ema(step);
}

static lt_status forward_backward(const work *w)
{
    lt_train_step *step = w->step;
    const lt_train_step_config *c = &step->config;
    const bool is_weighed = step->number[0];
    const lt_tensor *scale = lt_optim_loss_scale(c->optim);
    lt_task_output out = {0};
    lt_pass pass = c->pass;
    pass.attempt = w->attempt;
    pass.micro = (int32_t)(step->shards ? step->rank * c->grad_accum + w->micro
                                        : w->micro * step->ranks + step->rank);
    lt_tape_reset(c->tape, pass);
    LT_TRY(c->task.ops->forward(c->task.context, c->tape, w->batch, step->counts, &out));
    LT_TRY(lt_tape_status(c->tape));
    LT_TRY(lt_step_weigh_loss(step, out.loss, !w->micro, w->is_last));
    if (c->dp) {
        lt_data_parallel_set_loss_scale(c->dp, is_weighed ? step->number[TERMS_SCALE] : scale);
        /* sums of several shards are complete after backward only */
        lt_data_parallel_begin(c->dp, w->is_last && !(step->shards && c->grad_accum > 1));
    }
    return lt_tape_backward_by(c->tape, out.loss, 1 / step->divisor,
                               is_weighed ? step->number[TERMS_SEED] : scale);
}

/* Averages the gradients over the ranks. */
static lt_status finish_gradient_averaging(const lt_train_step *step)
{
    int64_t begin = lt_profile_begin();
    LT_TRY(lt_data_parallel_finish(step->config.dp));
    lt_profile_end(begin, LT_PROFILE_COMM, "gradients", 0);
    return LT_OK;
}

/* Ends this job's time slice after the last backward, so that the shared device may run another job. */
static lt_status end_time_slice(const lt_train_step *step)
{
    LT_TRY(lt_device_sync(step->config.device));
    return lt_share_end(step->config.share);
}

lt_status lt_step_end_backward(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    if (c->share && step->left < c->grad_accum)
        LT_TRY(end_time_slice(step));
    if (c->dp)
        LT_TRY(finish_gradient_averaging(step));
    LT_TRY(lt_step_finish_shards(step));
    return lt_step_finish_loss_weights(step);
}

static lt_status compute_micro_batch(void *context)
{
    const work *w = context;
    lt_train_step *step = w->step;
    const lt_train_step_config *c = &step->config;
    if (!w->micro && step->counts)
        LT_TRY(lt_tensor_fill(step->counts, 0));
    LT_TRY(lt_step_begin_shard(step, w->micro));
    LT_TRY(forward_backward(w));
    lt_heartbeat_progress();
    if (!w->micro)
        LT_TRY(lt_step_measure_grad_norms(step));
    LT_TRY(lt_step_add_shard(step, w->micro));
    if (c->stragglers)
        LT_TRY(lt_stragglers_note_computed(c->stragglers, w->micro + 1));
    if (w->is_last)
        LT_TRY(lt_step_end_backward(step));
    if (w->phases == PHASES_FIRST)
        return lt_optim_update_first(c->optim);
    return w->phases == PHASES_ALL ? update_weights_and_ema(step) : LT_OK;
}

/* Returns the key of the graph. Image sizes may grow from epoch to epoch, and batches alternate between the
 * loader's two buffers. */
static lt_graph_key graph_key(const work *w)
{
    const lt_view input = lt_tensor_view(w->batch->inputs);
    return (lt_graph_key){.kind = (int)w->phases,
                          .first = !w->micro,
                          .last = w->is_last,
                          .input = input.data,
                          .shape = input.shape};
}

/* A reducer may need the host; micro-batches then run eagerly. */
static bool has_capturable_gradients(const lt_train_step *step)
{
    return !step->config.dp || lt_data_parallel_is_capturable(step->config.dp);
}

/* NCCL's collectives can be captured. The host's cannot; the optimizer then cannot share backward's graph. */
static bool captures_gradients(const lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    return c->graph && has_capturable_gradients(step)
           && !strncmp(lt_device_name(c->device), "cuda", strlen("cuda"));
}

/* Decides which optimizer phases join backward's graph: all of a capturable optimizer (lt_optim_is_capturable());
 * the first phase of one with a host phase, such as the choice of blocks whose inverse roots are due. Sums over
 * ranks before the optimizer overlap with its work. But where gradients are captured, one rank may replay a step
 * that another runs eagerly, and all ranks must issue their collectives in the same order: the sums then come
 * after it. */
capture_plan lt_step_plan_capture(const lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    capture_plan plan = {.with_backward = PHASES_NONE, .sums_last = captures_gradients(step)};
    if (c->share)
        return plan;
    if (lt_optim_is_capturable(c->optim))
        plan.with_backward = !c->dp || plan.sums_last ? PHASES_ALL : PHASES_NONE;
    else if (c->graph && lt_optim_has_host_phase(c->optim))
        plan.with_backward = PHASES_FIRST;
    return plan;
}

lt_status lt_step_run_micro_batch(lt_train_step *step, const lt_batch *batch, int64_t micro,
                                  int64_t attempt, capture_plan plan)
{
    work w = {.step = step,
              .batch = batch,
              .micro = micro,
              .attempt = attempt,
              .is_last = micro + 1 == step->config.grad_accum};
    w.phases = w.is_last ? plan.with_backward : PHASES_NONE;
    if (!step->config.graph || step->config.share || !has_capturable_gradients(step))
        return compute_micro_batch(&w);
    return lt_graph_run(step->config.device, &step->graph, graph_key(&w), compute_micro_batch, &w);
}

lt_status lt_step_run_optimizer(lt_train_step *step, capture_plan plan)
{
    const lt_train_step_config *c = &step->config;
    const lt_graph_key key = {.kind = PHASES_SECOND};
    if (plan.with_backward == PHASES_ALL)
        return LT_OK;
    if (plan.with_backward == PHASES_NONE)
        return update_weights_and_ema(step);
    int64_t begin = lt_profile_begin();
    LT_TRY(lt_optim_update_host(c->optim));
    lt_profile_end(begin, LT_PROFILE_OPTIM, lt_optim_name(c->optim), 0);
    return lt_graph_run(c->device, &step->graph, key, run_second_optimizer_phase, step);
}
