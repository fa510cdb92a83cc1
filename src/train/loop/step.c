/* A training step: queued by lt_train_step_begin(), its results read by lt_train_step_finish(). On a device with a
 * queue the host may begin the next step in between, so results are read into two buffers. capture.c has the
 * device work. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/heartbeat.h"
#include "step_parts.h"
#include "stragglers.h"
#include "tensor/tensor.h"

#include "lather/detail/shard_params.h"
#include "lather/ext/optim.h"
#include "lather/profile.h"

#include <stdlib.h>
#include <string.h>

/* --- Results read back: the loss of each micro-batch, then the counts --- */

static lt_readback *step_readback(const lt_train_step *step, int64_t number)
{
    return step->numbers[number % 2];
}

static size_t counts_bytes(const lt_train_step *step)
{
    return step->counts ? lt_tensor_bytes(step->counts) : 0;
}

static lt_status send_results_to_host(const lt_train_step *step, int64_t number)
{
    lt_readback *numbers = step_readback(step, number);
    if (step->counts)
        LT_TRY(lt_readback_add(numbers, step->counts));
    if (step->norms)
        LT_TRY(lt_readback_add(numbers, step->norms));
    return lt_readback_send(numbers);
}

/* Divides the loss, a sum over micro-batches, by their number or by their share of labels that count. Measured norms
 * are those of a mean, too, even of a single micro-batch. */
static void divide_by_micro_batches(const lt_train_step *step, lt_train_result *r, double number)
{
    const int terms = step->config.task.ops->terms;
    const double weight = step->number[0] ? r->sums.count[terms - 1] / step->labels : number;
    r->sums.loss = weight > 0 ? r->sums.loss / weight : 0;
    if (step->norms && step->number[0] && weight > 0)
        r->noise.small_square *= number / weight * (number / weight);
}

static lt_status read_results(const lt_train_step *step, lt_train_result *r)
{
    const void *data;
    int64_t count[LT_TASK_COUNTS] = {0};
    LT_TRY(lt_readback_wait(step_readback(step, r->step), &data));
    const char *counts = (const char *)data + (size_t)step->computed * lt_tensor_bytes(step->loss);
    const lt_task_ops *task = step->config.task.ops;
    memcpy(count, counts, counts_bytes(step));
    for (int i = 0; i < task->counts; i++)
        r->sums.count[i] = (double)count[i];
    r->sums.loss = lt_step_sum_losses(step, data, step->computed);
    if (step->norms)
        r->noise.small_square = lt_step_squared_norm(step, counts + counts_bytes(step));
    if (!step->shards)
        divide_by_micro_batches(step, r, (double)step->computed);
    return LT_OK;
}

/* --- Sums over ranks --- */

static bool asked_to_stop(const lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    return c->stop && c->stop(c->stop_context);
}

/* Returns the seconds that forward and backward passes have waited for gathers of sharded parameters. */
static double gather_wait_seconds(const lt_train_step *step)
{
    lt_shard_params_stats stats;
    lt_optim_shard_params_stats(step->config.optim, &stats);
    return stats.exposed;
}

/* Returns true if this rank's gradients contribute to the update. */
static bool uses_own_gradients(const lt_train_step *step)
{
    const lt_stragglers *s = step->config.stragglers;
    return !s || lt_stragglers_uses_gradients(s);
}

/* Begins summing the results over ranks; this rank's gradients are complete or in flight. */
static lt_status begin_summing_results(lt_train_step *step, lt_train_result *r)
{
    double sum[STEP_SUMS + 1];
    if (!step->config.dp)
        return LT_OK;
    r->exposed_seconds =
        lt_data_parallel_wait_seconds(step->config.dp) + gather_wait_seconds(step) - step->exposed;
    if (uses_own_gradients(step))
        LT_TRY(read_results(step, r));
    else
        r->sums = (lt_task_sums){0};
    sum[STEP_LOSS] = step->shards
                         ? r->sums.loss
                         : r->sums.loss * r->sums.samples * lt_step_mean_weight(step, &r->sums);
    sum[STEP_SAMPLES] = r->sums.samples;
    memcpy(sum + STEP_COUNTS, r->sums.count, sizeof r->sums.count);
    for (int i = 0; i < STEP_SUMS && !step->is_counted; i++)
        sum[i] = 0;
    sum[STEP_STOP] = asked_to_stop(step);
    sum[STEP_NOISE] = r->noise.small_square * (step->shards ? !step->rank : r->sums.samples);
    LT_TRY(lt_tensor_write(step->sums, sum, lt_tensor_bytes(step->sums)));
    if (step->config.stragglers)
        LT_TRY(lt_stragglers_begin_exchange(step->config.stragglers));
    return lt_comm_allreduce_begin(step->config.comm, step->sums, LT_REDUCE_SUM, &step->summing);
}

/* Returns the bytes sent over all mesh axes except the one between replicas. */
static uint64_t bytes_sent_in_replica(const lt_train_step *step)
{
    const lt_mesh *mesh = step->config.mesh;
    return mesh ? lt_mesh_bytes(mesh) - lt_comm_bytes(lt_mesh_comm(mesh, LT_MESH_DATA)) : 0;
}

static uint64_t sent_bytes(const lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    return (c->comm ? lt_comm_bytes(c->comm) : 0) + (c->group ? lt_comm_bytes(c->group) : 0)
           + (c->dp ? lt_data_parallel_subgroup_bytes(c->dp) : 0)
           + (c->mesh ? lt_mesh_bytes(c->mesh) : 0);
}

static uint64_t between_bytes(const lt_train_step *step)
{
    lt_reducer_bytes sent = {0};
    if (step->config.dp)
        lt_data_parallel_bytes_sent(step->config.dp, &sent);
    return sent.between;
}

/* Counts sent bytes. A replayed step makes no calls on the host and sends as much as the last eager one. */
static void count_bytes(lt_train_step *step, lt_train_result *r)
{
    if (lt_graph_statistics(step->graph).replays == step->replays) {
        step->eager_bytes = sent_bytes(step) - step->bytes;
        step->eager_between = between_bytes(step) - step->between;
    }
    r->comm_bytes = (double)step->eager_bytes;
    r->between_bytes = (double)step->eager_between;
}

static lt_status finish_summing_results(lt_train_step *step, lt_train_result *r)
{
    double sum[STEP_SUMS + 1] = {0};
    if (!step->config.dp)
        return LT_OK;
    LT_TRY(lt_request_wait(&step->summing));
    LT_TRY(lt_tensor_read(step->sums, sum, lt_tensor_bytes(step->sums)));
    r->sums.samples = sum[STEP_SAMPLES];
    memcpy(r->sums.count, sum + STEP_COUNTS, sizeof r->sums.count);
    r->sums.loss = sum[STEP_LOSS];
    r->noise.small_square = sum[STEP_NOISE];
    if (!step->shards) {
        const double weight = lt_step_mean_weight(step, &r->sums);
        r->sums.loss = weight > 0 ? r->sums.loss / (r->sums.samples * weight) : 0;
        r->noise.small_square /= r->sums.samples;
    }
    r->stop = sum[STEP_STOP] > 0;
    count_bytes(step, r);
    return LT_OK;
}

/* --- A step --- */

static lt_status prepare_step(lt_train_step *step, const lt_step *numbers, lt_train_result *r)
{
    const lt_train_step_config *c = &step->config;
    *r =
        (lt_train_result){.step = numbers->attempt, .lr = numbers->lr, .begin = lt_clock_seconds()};
    step->bytes = sent_bytes(step);
    step->between = between_bytes(step);
    step->exposed = gather_wait_seconds(step);
    step->parallel = bytes_sent_in_replica(step);
    step->replays = lt_graph_statistics(step->graph).replays;
    LT_TRY(lt_step_read_loss_scale(step));
    LT_TRY(lt_statistics_save(step->statistics));
    lt_optim_scale_gradients(c->optim, step->number[TERMS_SCALE], step->number[TERMS_ONE]);
    lt_readback_begin(step_readback(step, r->step));
    return lt_optim_prepare(c->optim, numbers);
}

static lt_status run_micro_batch(lt_train_step *step, int64_t micro, capture_plan plan,
                                 lt_train_result *r)
{
    lt_batch batch;
    double begin = lt_clock_seconds();
    lt_status st = step->config.next(step->config.next_context, &batch);
    r->data_seconds += lt_clock_seconds() - begin;
    lt_heartbeat_progress();
    if (!st && !micro && step->config.share)
        st = lt_share_begin(step->config.share, &r->turn);
    step->labels = st ? 0 : batch.labels ? (double)lt_tensor_count(batch.labels) : batch.count;
    step->row_labels = st ? 0 : step->labels / batch.count;
    if (!st)
        st = lt_step_run_micro_batch(step, &batch, micro, r->step, plan);
    if (st)
        return st;
    r->sums.samples += batch.count;
    return lt_readback_add(step_readback(step, r->step), step->loss);
}

/* Returns true if a micro-batch was cancelled because the update does not wait for this rank's gradients. */
static bool was_cancelled_as_late(const lt_train_step *step, lt_status st)
{
    return st == LT_E_CANCELLED && step->config.dp && lt_data_parallel_is_late(step->config.dp);
}

/* Runs all micro-batches of the step, or those before the deadline. */
static lt_status run_micro_batches(lt_train_step *step, capture_plan plan, lt_train_result *r)
{
    const lt_train_step_config *c = &step->config;
    lt_status st = LT_OK;
    step->left = c->grad_accum;
    for (step->computed = 0; step->left; step->computed++) {
        if (c->stragglers && !lt_stragglers_may_begin(c->stragglers, step->computed))
            break;
        step->left--;
        st = run_micro_batch(step, step->computed, plan, r);
        if (was_cancelled_as_late(step, st))
            break;
        if (st)
            return st;
    }
    if (step->computed == c->grad_accum)
        return LT_OK;
    if (c->dp)
        lt_data_parallel_set_computed(c->dp, step->computed);
    return lt_step_end_backward(step);
}

/* Skips the rest of the step's data: a step consumes the data of all its micro-batches, wherever it stopped. */
static lt_status skip_remaining_data(lt_train_step *step, lt_train_result *r)
{
    lt_batch unused;
    const double begin = lt_clock_seconds();
    for (; step->left; step->left--)
        LT_TRY(step->config.next(step->config.next_context, &unused));
    r->data_seconds += lt_clock_seconds() - begin;
    return LT_OK;
}

static lt_status queue_step(lt_train_step *step, const lt_step *numbers, lt_train_result *r)
{
    enum { LARGE = 24 };
    const lt_train_step_config *c = &step->config;
    lt_heartbeat_progress_at_least(
        numbers->attempt << LARGE); /* ranks differ in their number of evaluation batches */
    LT_TRY(prepare_step(step, numbers, r));
    if (c->stragglers)
        LT_TRY(lt_stragglers_begin(c->stragglers, r->step));
    const capture_plan plan = lt_step_plan_capture(step);
    LT_TRY(run_micro_batches(step, plan, r));
    r->parallel_bytes = (double)(bytes_sent_in_replica(step) - step->parallel);
    if (uses_own_gradients(step))
        LT_TRY(send_results_to_host(step, r->step));
    if (!plan.sums_last)
        LT_TRY(begin_summing_results(step, r));
    LT_TRY(lt_step_run_optimizer(step, plan));
    LT_TRY(lt_statistics_undo_if_skipped(step->statistics, c->optim->scalars, c->optim->skipped));
    if (plan.sums_last)
        LT_TRY(begin_summing_results(step, r));
    lt_optim_advance(c->optim);
    LT_TRY(lt_optim_send_result(c->optim));
    r->may_run_ahead = plan.with_backward != PHASES_NONE;
    if (!c->dp)
        r->stop = asked_to_stop(step);
    return skip_remaining_data(step, r);
}

lt_status lt_train_step_begin(lt_train_step *step, const lt_step *numbers, lt_train_result *r)
{
    const bool profiled = numbers->attempt == step->profiled;
    const int64_t span = lt_profile_begin();
    if (profiled)
        LT_TRY(lt_device_set_profiler(step->config.device, true));
    LT_TRY(queue_step(step, numbers, r));
    if (profiled)
        LT_TRY(lt_device_set_profiler(step->config.device, false));
    lt_profile_end(span, LT_PROFILE_PROGRAM, "step", 0);
    return LT_OK;
}

/* Sets the step's seconds. With two steps in flight, one begins when the other's results have arrived. */
static void measure_step_seconds(lt_train_step *step, lt_train_result *r)
{
    const double now = lt_clock_seconds();
    r->seconds = now - (r->begin > step->finished ? r->begin : step->finished);
    step->finished = now;
}

lt_status lt_train_step_finish(lt_train_step *step, lt_train_result *r)
{
    if (!step->config.dp)
        LT_TRY(read_results(step, r));
    LT_TRY(lt_optim_result(step->config.optim, &r->optim));
    if (step->config.dp)
        LT_TRY(lt_data_parallel_commit(step->config.dp, r->optim.applied));
    LT_TRY(finish_summing_results(step, r));
    if (step->shards)
        divide_by_micro_batches(step, r, step->divisor);
    r->weight = lt_step_mean_weight(step, &r->sums);
    lt_step_fill_noise_sample(step, r);
    measure_step_seconds(step, r);
    return step->config.stragglers ? lt_stragglers_end_exchange(step->config.stragglers, r->seconds)
                                   : LT_OK;
}

lt_graph_stats lt_train_step_graphs(const lt_train_step *step)
{
    return lt_graph_statistics(step->graph);
}

/* --- Life cycle --- */

static lt_status allocate_buffers(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    const int counts = c->task.ops->counts;
    LT_TRY(lt_tensor_new(&step->loss, c->device, lt_device_master_dtype(c->device), LT_SCALAR));
    if (counts)
        LT_TRY(lt_tensor_new(&step->counts, c->device, LT_I64, LT_SHAPE(counts)));
    if (c->dp)
        LT_TRY(
            lt_tensor_new(&step->sums, c->device, LT_F64, LT_SHAPE(STEP_SUMS + c->gradient_noise)));
    LT_TRY(lt_step_open_shards(step));
    LT_TRY(lt_step_open_noise(step));
    LT_TRY(lt_step_open_loss_weights(step));
    LT_TRY(lt_statistics_new(&step->statistics, c->params));
    const size_t bytes = (size_t)c->grad_accum * lt_tensor_bytes(step->loss) + counts_bytes(step)
                         + (step->norms ? lt_tensor_bytes(step->norms) : 0);
    for (int i = 0; i < 2; i++)
        LT_TRY(lt_readback_new(&step->numbers[i], c->device, bytes));
    return LT_OK;
}

static lt_status check_metrics(const lt_task_ops *task)
{
    for (int i = 0; i < task->metrics; i++) {
        const lt_task_metric *m = &task->metric[i];
        if (!m->name || !m->label || !m->value)
            return lt_fail(LT_E_ARG, "train: task %s: metric %d needs a name, a label and a value",
                           task->name, i);
    }
    return LT_OK;
}

lt_status lt_task_check(const lt_task_ops *task)
{
    if (!task->name || !task->unit)
        return lt_fail(LT_E_ARG, "train: a task needs a name and a unit of samples");
    if (!task->forward)
        return lt_fail(LT_E_ARG, "train: task %s has no forward", task->name);
    if (task->counts < 0 || task->counts > LT_TASK_COUNTS)
        return lt_fail(LT_E_ARG, "train: task %s has %d counts, at most %d are possible",
                       task->name, task->counts, LT_TASK_COUNTS);
    if (task->terms < 0 || task->terms > task->counts)
        return lt_fail(LT_E_ARG, "train: task %s: terms is %d, but there are %d counts", task->name,
                       task->terms, task->counts);
    if (!task->rate_unit != !task->rate_per_sample)
        return lt_fail(LT_E_ARG,
                       "train: task %s: rate_unit and rate_per_sample must be set together",
                       task->name);
    if (task->metrics < 0 || task->metrics > LT_TASK_METRICS)
        return lt_fail(LT_E_ARG, "train: task %s has %d metrics, at most %d are possible",
                       task->name, task->metrics, LT_TASK_METRICS);
    if (task->metrics && (task->best < 0 || task->best >= task->metrics))
        return lt_fail(LT_E_ARG, "train: task %s: best is %d, but there are %d metrics", task->name,
                       task->best, task->metrics);
    return check_metrics(task);
}

/* Returns true if only the optimizer reads gradients, which may then be in 16 bits; sums over ranks and norms need
 * f32. */
static bool can_round_gradients(const lt_train_step_config *c)
{
    return !c->dp && !c->mesh && !c->gradient_noise && !lt_device_is_reproducible(c->device);
}

static lt_status read_profile_step_env(int64_t *out)
{
    const char *text = getenv("LATHER_PROFILE_STEP");
    char *end = NULL;
    *out = text && *text ? strtoll(text, &end, 10) : 0;
    if (end && (*end || *out < 1))
        return lt_fail(LT_E_ARG, "LATHER_PROFILE_STEP=%s: expected the number of a step, 1 or more",
                       text);
    return LT_OK;
}

lt_status lt_train_step_new(lt_train_step **out, const lt_train_step_config *config)
{
    int64_t profiled;
    LT_TRY(lt_task_check(config->task.ops));
    LT_TRY(read_profile_step_env(&profiled));
    lt_train_step *step = NULL;
    LT_TRY(LT_ALLOC(&step, 1));
    step->config = *config;
    step->profiled = profiled;
    if (!config->grad_accum)
        step->config.grad_accum = 1;
    const lt_mesh *mesh = config->mesh;
    const lt_comm *data = mesh ? lt_mesh_comm(mesh, LT_MESH_DATA) : config->comm;
    step->rank = data ? lt_comm_rank(data) : 0;
    step->ranks = data ? lt_comm_size(data) : 1;
    step->is_counted = !mesh || !lt_comm_rank(lt_mesh_comm(mesh, LT_MESH_MODEL));
    lt_status st = allocate_buffers(step);
    if (st) {
        lt_train_step_free(&step);
        return st;
    }
    lt_optim_allow_rounded_grads(config->optim, can_round_gradients(config));
    *out = step;
    return LT_OK;
}

void lt_train_step_free(lt_train_step **step)
{
    lt_train_step *s = *step;
    if (!s)
        return;
    if (s->summing)
        (void)!lt_request_wait(&s->summing);
    lt_graph_free(&s->graph);
    lt_tensor_free(&s->loss);
    lt_tensor_free(&s->counts);
    lt_tensor_free(&s->sums);
    lt_statistics_free(&s->statistics);
    lt_step_close_loss_weights(s);
    lt_step_close_noise(s);
    lt_step_close_shards(s);
    for (int i = 0; i < 2; i++)
        lt_readback_free(&s->numbers[i]);
    lt_free(s);
    *step = NULL;
}
