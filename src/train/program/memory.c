/* Memory of a run: estimates it before the first step, rejects a run that does not fit, and chooses --recompute
 * auto. */

#include "base/machine.h"
#include "tensor/tensor.h"
#include "train/loop/mesh.h"
#include "trainer.h"

#include "lather/detail/shampoo_report.h"
#include "lather/detail/shard_params.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>

static const double gib = 0x1p30;

/* Returns the bytes of activations that backward reads, which are live at the end of the forward pass. With cheap
 * recomputation, outputs of batch norm are recomputed: about half of the recomputable bytes remain where blocks
 * keep theirs, as they do with batchnorm_add, otherwise about a tenth. */
static double kept_activation_bytes(const lt_trainer *t, const lt_model_cost *cost, bool again)
{
    const arguments *a = &t->line.args;
    const double item = a->training.amp == AMP_BF16 || a->training.amp == AMP_F16 ? 2 : 4;
    const double left = t->model.device->backend->batchnorm_add ? 0.5 : 0.1;
    double outputs = (double)cost->recomputable * (again ? left : 1);
    double gradients = 3 * (double)cost->largest;
    const int parts = t->ranks.mesh ? t->ranks.parallel.model->size : 1;
    return (double)a->batch_size / parts * item * ((double)cost->kept + outputs + gradients);
}

/* Returns the activation bytes for the chosen --recompute. */
static double activation_bytes(const lt_trainer *t, const lt_model_cost *cost)
{
    return kept_activation_bytes(t, cost, t->line.args.training.recompute != RECOMPUTE_OFF);
}

static lt_trainer_sample sample_of(const lt_trainer *t)
{
    const command_line *line = &t->line;
    const int size = line->choice.spec.size;
    lt_trainer_sample sample = {.size = size, .largest = size};
    if (line->program->sample)
        line->program->sample(line->context, t, &sample);
    return sample;
}

/* Returns the bytes of prefetched batches. */
static double loader_bytes(const lt_trainer *t)
{
    enum { SLOTS = 4 };
    return SLOTS * (double)t->line.args.batch_size * sample_of(t).bytes;
}

/* Returns the bytes of parameters, gradients and optimizer state on this rank. */
static double model_and_state_bytes(const lt_params *params, const lt_optim *optim)
{
    lt_shard_params_stats divided;
    lt_optim_shard_params_stats(optim, &divided);
    double bytes = 2 * (double)divided.value_bytes;
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        if (divided.units && lt_param_is_trained(p))
            continue;
        bytes += (double)lt_tensor_bytes(p->value);
        bytes += p->grad ? (double)lt_tensor_bytes(p->grad) : 0;
    }
    return bytes + (double)lt_optim_state_bytes(optim);
}

/* Counts the model's cost; without a function of the family, its parameters only. */
static lt_status count_cost(const family_choice *c, const lt_params *params, int size,
                            lt_model_cost *out)
{
    lt_model_spec spec = c->spec;
    spec.size = size;
    if (c->family->cost)
        return c->family->cost(c->config, &spec, out);
    *out = (lt_model_cost){0};
    for (size_t i = 0; i < params->count; i++)
        if (lt_param_is_trained(params->item[i]))
            out->params += lt_tensor_count(params->item[i]->value);
    return LT_OK;
}

lt_status lt_trainer_count_cost(const lt_trainer *t, lt_model_cost *out, double *sample_bytes)
{
    LT_TRY(count_cost(&t->line.choice, &t->model.params, sample_of(t).largest, out));
    *sample_bytes = (activation_bytes(t, out) + loader_bytes(t)) / (double)t->line.args.batch_size;
    return LT_OK;
}

double lt_trainer_available_memory(void)
{
    const double bytes = lt_machine_available_bytes();
    return bytes < 0 ? 0 : bytes;
}

/* Returns the bytes of optimizer state not allocated yet: a checkpoint's state is already loaded, a new run's is
 * made in step 1. */
static double unallocated_state_bytes(const lt_train_state *state, const lt_optim *optim)
{
    return state->folder[0] ? 0 : (double)lt_optim_state_bytes(optim);
}

/* Sets *out if the device has this many free bytes: host memory by the machine's count, other memory by a trial
 * allocation. */
static lt_status check_bytes_free(const lt_device *d, int local_ranks, double bytes, bool *out)
{
    const double rest = lt_machine_available_bytes() / local_ranks;
    void *block;
    if (d->backend->host_memory) {
        *out = rest >= bytes;
        return LT_OK;
    }
    const lt_status st = d->backend->alloc(d->ctx, (size_t)bytes, &block);
    *out = !st;
    if (!st)
        d->backend->free(d->ctx, block, (size_t)bytes);
    return st == LT_E_NOMEM ? LT_OK : st;
}

/* Logs the choice of --recompute auto. need: bytes of a step that keeps all activations; 0 if unknown. */
static void log_recompute_choice(bool off, double need, bool earlier)
{
    const char *chosen = off ? "off" : "cheap";
    if (earlier)
        lt_log(LT_LOG_INFO, "train", "--recompute auto: %s, as in the resumed run", chosen);
    else if (need > 0)
        lt_log(
            LT_LOG_INFO, "train",
            "--recompute auto: %s: a step that keeps all activations may need %.1f MiB, which %s",
            chosen, need / 0x1p20, off ? "are free" : "are not free on every rank's device");
    else
        lt_log(LT_LOG_INFO, "train", "--recompute auto: %s: the memory of a step is unknown",
               chosen);
}

lt_status lt_trainer_choose_recompute(lt_trainer *t, int before)
{
    const double margin = 2; /* for workspaces, and gaps between allocations */
    enum { SCARCE, EARLIER };
    double found[2] = {/* ranks on which memory is scarce; rank 0's choice of an earlier start */
                       0};
    lt_model_cost cost;
    bool fits = false;
    int *chosen = &t->line.args.training.recompute;
    if (*chosen != RECOMPUTE_AUTO)
        return LT_OK;
    LT_TRY(count_cost(&t->line.choice, &t->model.params, sample_of(t).largest, &cost));
    const double need = margin
                        * (kept_activation_bytes(t, &cost, false) + loader_bytes(t)
                           + unallocated_state_bytes(&t->state, t->optim));
    if (cost.kept > 0)
        LT_TRY(check_bytes_free(t->model.device, t->ranks.local, need, &fits));
    found[SCARCE] = !fits;
    found[EARLIER] = t->ranks.rank || before == RECOMPUTE_AUTO ? 0 : 1 + before;
    LT_TRY(lt_ranks_sum(&t->ranks, found, 2));
    *chosen = found[SCARCE] > 0 ? RECOMPUTE_CHEAP : RECOMPUTE_OFF;
    if (found[EARLIER] > 0)
        *chosen = (int)found[EARLIER] - 1;
    if (!t->ranks.rank)
        log_recompute_choice(*chosen == RECOMPUTE_OFF, cost.kept > 0 ? need : 0,
                             found[EARLIER] > 0);
    return LT_OK;
}

lt_status lt_trainer_check_memory(const lt_trainer *t)
{
    lt_model_cost cost;
    LT_TRY(count_cost(&t->line.choice, &t->model.params, sample_of(t).largest, &cost));
    double need = activation_bytes(t, &cost) + loader_bytes(t);
    double rest = lt_machine_available_bytes();
    need += unallocated_state_bytes(&t->state, t->optim);
    rest /= t->ranks.local;
    if (rest < 0 || need <= rest)
        return LT_OK;
    return lt_fail(LT_E_NOMEM,
                   "memory: a step needs about %.1f GiB more, but %.1f GiB are free; a smaller "
                   "--batch-size with --grad-accum needs less",
                   need / gib, rest / gib);
}

/* Warns if the run ends before Shampoo's first inverse roots: until then its updates are those of the grafted
 * method, without any other sign. */
static void warn_of_late_roots(lt_run *run, const lt_optim *optim, int64_t total_steps)
{
    const lt_shampoo_config *c = lt_shampoo_settings(optim);
    if (c && c->start_preconditioning_step > total_steps)
        lt_run_note(
            run,
            "shampoo: its first inverse roots come at step %lld, but this run has %lld steps: none of its "
            "updates is preconditioned (--precondition-frequency, "
            "--start-preconditioning-step)",
            (long long)c->start_preconditioning_step, (long long)total_steps);
}

/* Returns true if whole models would fit into memory: parameters, gradients and state of all ranks of a replica,
 * and the activations of a rank's share of the samples. */
static bool fits_whole(const lt_trainer *t, const lt_model_cost *cost)
{
    const int parts = t->ranks.parallel.model->size;
    const double held = model_and_state_bytes(&t->model.params, t->optim);
    const double rest = lt_machine_available_bytes() / t->ranks.local;
    return rest < 0 || (parts - 1) * held + activation_bytes(t, cost) + loader_bytes(t) <= rest;
}

/* Notes if data parallelism over the same ranks, with the same samples per update, would communicate less and fit. */
static lt_status suggest_data_parallel(const lt_trainer *t, const lt_model_cost *cost)
{
    const lt_ranks *r = &t->ranks;
    const arguments *a = &t->line.args;
    const int64_t accum = a->training.grad_accum, samples = a->batch_size * r->data_count;
    lt_mesh_traffic moved;
    if (!r->mesh || !cost->rows || samples % r->count || !fits_whole(t, cost))
        return LT_OK;
    const lt_mesh_config config = lt_mesh_config_of(r->mesh);
    LT_TRY(lt_mesh_compute_traffic(&config, (double)(a->batch_size * cost->rows),
                                   (double)cost->features, (double)accum, &moved));
    if (moved.data_parallel < moved.mesh)
        lt_run_note(
            t->output.run,
            "--tensor-parallel %s: a rank receives %.3g elements per layer and update; with "
            "--tensor-parallel 1 --batch-size %lld, which fits into memory, %.3g: this would be "
            "faster",
            a->ranks.tensor_parallel, moved.mesh, (long long)(samples / r->count),
            moved.data_parallel);
    return LT_OK;
}

/* Notes a parameter larger than an even share: it has one owner, which must keep all of it. */
static void warn_of_uneven_params(lt_run *run, const lt_params *params, int ranks)
{
    const double tolerated = 1.15;
    const lt_param *largest = NULL;
    int64_t most = 0, sum = 0;
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        const int64_t count = lt_param_is_trained(p) ? lt_tensor_count(p->value) : 0;
        sum += count;
        largest = count > most ? p : largest;
        most = count > most ? count : most;
    }
    if (largest && (double)most * ranks > tolerated * (double)sum)
        lt_run_note(
            run,
            "--shard-params: %s is %.0f %% of the model, and its owner must keep all of it, "
            "more than 1/%d",
            largest->name, 100 * (double)most / (double)sum, ranks);
}

/* Reports on several nodes who shares a copy of the optimizer's state. */
static lt_status record_state_ranks(lt_run *run, const lt_ranks *r, const ranks_options *o,
                                    int64_t step)
{
    const lt_metric value = {"state_ranks", r->state_ranks};
    if (!r->state_ranks || r->nodes.count < 2)
        return LT_OK;
    lt_run_note(run,
                "optimizer state: %d x %d ranks that share a copy (--num-trainers-per-group %s)",
                r->count / r->state_ranks, r->state_ranks, o->num_trainers_per_group);
    return lt_run_event_values(run, "sharded_state", step, &value, 1);
}

lt_status lt_trainer_summary(lt_trainer *t, int64_t total_steps)
{
    const double train_factor = 3; /* backward costs two forward passes */
    const lt_trainer_sample sample = sample_of(t);
    const command_line *line = &t->line;
    const lt_ranks *r = &t->ranks;
    lt_run *run = t->output.run;
    lt_model_cost cost;
    LT_TRY(count_cost(&line->choice, &t->model.params, sample.size, &cost));
    if (r->mesh)
        lt_run_note(run, "%d ranks hold %d %s of the model, each sharded over %d (%s)", r->count,
                    r->data_count, r->data_count == 1 ? "replica" : "replicas",
                    r->parallel.model->size, line->args.ranks.tensor_parallel);
    if (r->count > 1)
        lt_run_note(run, "%d ranks, %d compute threads on rank 0, %lld %s per update", r->count,
                    lt_device_threads(t->model.device), (long long)t->state.now.global_batch,
                    t->input.unit);
    LT_TRY(record_state_ranks(run, r, &line->args.ranks, t->state.now.step));
    const double held = model_and_state_bytes(&t->model.params, t->optim);
    if (line->choice.family->cost)
        lt_run_note(run, "%s: %.2f M parameters, %.3f GFLOP per %s to train",
                    lt_family_arch(&line->choice), 1e-6 * (double)cost.params,
                    2e-9 * train_factor * (double)cost.multiply_adds,
                    *sample.text ? sample.text : "sample");
    else
        lt_run_note(run, "%s: %.2f M parameters", lt_family_arch(&line->choice),
                    1e-6 * (double)cost.params);
    if (line->program->note_choices)
        line->program->note_choices(line->context, t);
    char more[64] = "";
    if (line->choice.family->cost)
        snprintf(more, sizeof more, ", about %.2f GiB more in a step",
                 (activation_bytes(t, &cost) + loader_bytes(t)) / gib);
    lt_run_note(run, "memory: %.2f GiB parameters, gradients and %s state%s", held / gib,
                lt_optim_name(t->optim), more);
    warn_of_late_roots(run, t->optim, total_steps);
    if (line->args.ranks.shard_params)
        warn_of_uneven_params(run, &t->model.params, r->count);
    LT_TRY(suggest_data_parallel(t, &cost));
    return lt_rules_report(t->optim, run, r->rank, line->args.output.verbose);
}
