/* Opens the parts of a run in the order of their dependencies. */

#include "train/loop/mesh.h"
#include "trainer.h"

#include "lather/detail/shard_params.h"
#include "lather/ext/fail.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens a separate GPU for each rank of the machine. */
static lt_status open_own_gpu(lt_trainer *t, int local, int locals, const lt_device_config *config)
{
    enum { WHY = 512 };
    char name[16], why[WHY];
    snprintf(name, sizeof name, "cuda:%d", local);
    lt_status st = lt_device_open(&t->device, name, config);
    if (!st)
        return LT_OK;
    snprintf(why, sizeof why, "%s", lt_error_message());
    return lt_fail(st, "rank %d of %d on this machine: %s; each rank needs a separate GPU", local,
                   locals, why);
}

lt_status lt_trainer_open_device(lt_trainer *t)
{
    const machine_options *m = &t->args.machine;
    lt_device_config config = {.threads = (int)m->threads,
                               .deterministic = t->args.training.deterministic,
                               .tf32 = m->tf32 == TF32_ON || t->args.training.amp == AMP_TF32,
                               .fused = (lt_fused)m->fused};
    int local, locals;
    lt_comm_launched_local(&local, &locals);
    if (!strcmp(m->device, "cuda") && locals > 1 && t->args.ranks.dist != DIST_OFF)
        LT_TRY(open_own_gpu(t, local, locals, &config));
    else
        LT_TRY(lt_device_open(&t->device, m->device, &config));
    return lt_trainer_open_ranks(t);
}

lt_status lt_trainer_open_data(lt_trainer *t)
{
    const lt_trainer_program *p = t->program;
    LT_TRY(p->open_data(t->context, t, &t->input.train, &t->input.val));
    t->input.unit = p->task->unit;
    LT_TRY(lt_train_input_agree(&t->input, &t->ranks));
    return p->agree ? p->agree(t->context, t) : LT_OK;
}

lt_status lt_trainer_count_batches(int64_t *out, const lt_trainer *t, int64_t count, int copies)
{
    const arguments *a = &t->args;
    const loader_options *o = &a->loader;
    const int64_t accum = a->training.grad_accum;
    int64_t batches = count / copies / a->batch_size;
    if (o->overfit_batches && batches > o->overfit_batches)
        batches = o->overfit_batches;
    if (o->limit_train_batches && batches > o->limit_train_batches)
        batches = o->limit_train_batches;
    *out = batches / accum * accum;
    if (!*out && count / copies / a->batch_size >= accum)
        return lt_fail(LT_E_ARG, "--%s-batches %lld: an update takes --grad-accum %lld of them",
                       batches == o->overfit_batches ? "overfit" : "limit-train",
                       (long long)batches, (long long)accum);
    if (!*out)
        return lt_fail(LT_E_ARG,
                       "--batch-size %lld x --grad-accum %lld on %d %s: %s has only %lld "
                       "%s to train on",
                       (long long)a->batch_size, (long long)accum, copies,
                       lt_mesh_flag_is_on(&a->ranks) ? "replicas of the model" : "ranks", a->data,
                       (long long)count, t->program->task->unit);
    return LT_OK;
}

static lt_status open_loader(lt_trainer *t)
{
    const lt_loader_config c = lt_trainer_training_loader(t);
    return lt_loader_new(&t->input.loader, t->input.train, t->device, &c);
}

/* Sets the facts of the network in state.json. */
static void name_network(lt_trainer *t)
{
    lt_checkpoint_state *state = &t->state.now;
    state->facts = 3;
    state->fact[0] = (lt_checkpoint_fact){.key = "arch"};
    snprintf(state->fact[0].text, LT_CHECKPOINT_NAME, "%s", lt_family_arch(&t->choice));
    state->fact[1] =
        (lt_checkpoint_fact){.key = "classes", .is_number = true, .number = t->choice.spec.classes};
    state->fact[2] = (lt_checkpoint_fact){.key = "network", .later = true};
    lt_family_print(&t->choice, state->fact[2].text, LT_CHECKPOINT_NAME);
}

enum { CHANGED = 1024 }; /* bytes of a list of flags */

/* Lists in text the options that differ from the resumed run's; *recompute gets that run's --recompute. */
static lt_status compare_options(const lt_trainer *t, char *text, size_t size, int *recompute)
{
    arguments values = {0};
    family_choice choice = {0};
    lt_options *before = NULL;
    if (!t->state.folder[0])
        return LT_OK;
    void *context = calloc(1, t->program->context_bytes + 1);
    lt_status st = context ? lt_family_open(&choice, t->choice.family)
                           : lt_fail(LT_E_NOMEM, "no memory for the options");
    const arguments_of of = {t->choice.family, t->program, choice.config, context};
    if (!st)
        st = lt_arguments_open(&before, &values, &of, NULL);
    if (!st)
        lt_folder_compare_options(&t->choice, t->options, before, &t->state, text, size);
    if (!st)
        *recompute = values.training.recompute;
    lt_arguments_close(&before, &values);
    lt_family_close(&choice);
    free(context);
    return st;
}

/* Settles --recompute auto. */
static lt_status settle_recompute(lt_trainer *t)
{
    char changed[CHANGED];
    int before = RECOMPUTE_AUTO;
    if (!t->ranks.rank)
        LT_TRY(compare_options(t, changed, sizeof changed, &before));
    return lt_trainer_choose_recompute(t, before);
}

static lt_status open_run(lt_trainer *t)
{
    const output_options *o = &t->args.output;
    int64_t per_epoch = t->input.batches_per_epoch / t->args.training.grad_accum;
    char aside[sizeof t->state.folder] = "", changed[CHANGED] = "";
    int recompute;
    lt_run_config c = {
        .options = t->options,
        .progress = (lt_progress)o->progress,
        .log_every = o->log_every,
        .no_tensorboard = !o->tensorboard,
    };
    lt_train_describe(&c, &t->labels, t->program->task, &t->state, &t->ranks, per_epoch,
                      t->total_steps);
    if (!t->ranks.rank) { /* reads files of the earlier start */
        LT_TRY(compare_options(t, changed, sizeof changed, &recompute));
        LT_TRY(lt_folder_set_aside(o, &t->state, aside, sizeof aside));
    }
    LT_TRY(lt_run_open(&t->run, o->output, &c));
    if (*aside && !o->overwrite)
        lt_run_warn(
            t->run,
            "--resume auto found no checkpoint: starts a new run; moved the previous run from %s to %s",
            o->output, aside);
    else if (*aside)
        lt_run_note(t->run, "moved the previous run from %s to %s", o->output, aside);
    return t->state.folder[0]
               ? lt_train_resumed(t->run, &t->state, t->total_steps, &t->ranks, o->output, changed)
               : LT_OK;
}

static lt_status open_averaging(lt_trainer *t)
{
    if (!t->args.averaging.kind)
        return LT_OK;
    LT_TRY(lt_optim_average(t->optim, &t->params, &t->args.averaging));
    return lt_train_state_open_iterates(&t->state, &t->params, t->optim);
}

lt_status lt_trainer_open_training(lt_trainer *t)
{
    const arguments *a = &t->args;
    const training_options *o = &a->training;
    const lt_params *whole = NULL; /* parameters that the optimizer sees, whole or as shards */
    LT_TRY(lt_trainer_count_batches(&t->input.batches_per_epoch, t,
                                    lt_dataset_count(t->input.train), t->ranks.data_count));
    LT_TRY(lt_params_freeze(&t->params, &a->groups.freeze, a->groups.freeze_bn));
    LT_TRY(lt_trainer_open_parallel(t));
    LT_TRY(lt_trainer_make_optimizer(t, &whole));
    LT_TRY(lt_param_groups_apply(whole, t->optim, a->optim.lr, &a->groups.param_group));
    LT_TRY(lt_trainer_divide_optimizer(t));
    LT_TRY(open_averaging(t));
    if (o->ema_decay > 0)
        LT_TRY(lt_train_state_open_ema(&t->state, &t->params, o->ema_decay));
    if (t->state.ema)
        LT_TRY(lt_optim_shard_ema(t->optim, t->state.ema));
    lt_train_state_begin(&t->state, t->program->task, t->optim, &t->ranks, a->batch_size,
                         o->grad_accum);
    if (o->gradient_noise)
        lt_train_state_measure_noise(&t->state);
    lt_train_state_set_data(&t->state, t->input.train);
    t->state.now.seed = (uint64_t)o->seed;
    t->state.now.threads = lt_device_threads(t->device);
    name_network(t);
    /* Opens the run folder last: a run that cannot resume leaves it unchanged. */
    LT_TRY(lt_trainer_load_checkpoint(t));
    LT_TRY(lt_schedule_open(&t->schedule, &t->total_steps, &a->schedule, o, a->optim.lr,
                            t->input.batches_per_epoch / o->grad_accum, t->state.offset));
    lt_optim_release_params(t->optim); /* all ranks have loaded all weights */
    LT_TRY(lt_train_state_scale_loss(&t->state, t->optim, o->amp == AMP_F16));
    LT_TRY(settle_recompute(t));
    LT_TRY(lt_trainer_check_memory(t));
    LT_TRY(open_loader(t));
    LT_TRY(lt_trainer_open_share(t));
    LT_TRY(lt_trainer_open_step(t));
    if (!t->state.now.run[0])
        LT_TRY(lt_run_new_id(t->state.now.run));
    return open_run(t);
}

void lt_trainer_close(lt_trainer *t)
{
    lt_run_close(&t->run);
    lt_loader_free(&t->input.loader); /* before the device of its batches */
    lt_train_step_free(&t->step);
    if (t->context && t->program->close)
        t->program->close(t->context);
    lt_train_state_close(&t->state);
    lt_optim_free(&t->optim);
    lt_trainer_close_ranks(t);
    lt_tape_free(&t->tape);
    lt_params_clear(&t->params);
    lt_module_free(&t->model);
    lt_device_close(&t->device);
    lt_train_input_close(&t->input);
    lt_family_close(&t->choice);
    lt_arguments_close(&t->options, &t->args);
    lt_run_lock_close(&t->lock);
    lt_watch_close(&t->watch);
    free(t->context);
    t->context = NULL;
}
