/* Opening what a run needs, in the order in which one part needs another. */

#include "train/classify/classifier.h"

#include "lather/ext/fail.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fashion-MNIST and CIFAR keep their size; photographs get ImageNet's. */
static lt_status choose_input(classifier *s)
{
    int side = 0;
    LT_TRY(lt_dataset_side(s->input.val, &side));
    return lt_classifier_choose_input(s, side > 0 && side <= SMALL_SIDE ? side : IMAGENET_SIDE);
}

/* A GPU for each rank of the machine. */
static lt_status open_own_gpu(classifier *s, int local, int locals, const lt_device_config *config)
{
    enum { WHY = 512 };
    char name[16], why[WHY];
    snprintf(name, sizeof name, "cuda:%d", local);
    lt_status st = lt_device_open(&s->device, name, config);
    if (!st)
        return LT_OK;
    snprintf(why, sizeof why, "%s", lt_error_message());
    return lt_fail(st, "rank %d of %d on this machine: %s; each rank takes a GPU of its own", local,
                   locals, why);
}

lt_status lt_classifier_open_device(classifier *s)
{
    const machine_options *m = &s->args.machine;
    lt_device_config config = {.threads = (int)m->threads,
                               .deterministic = s->args.training.deterministic,
                               .tf32 = m->tf32 == TF32_ON || s->args.training.amp == AMP_TF32,
                               .fused = (lt_fused)m->fused};
    int local, locals;
    lt_comm_launched_local(&local, &locals);
    if (!strcmp(m->device, "cuda") && locals > 1 && s->args.ranks.dist != DIST_OFF)
        LT_TRY(open_own_gpu(s, local, locals, &config));
    else
        LT_TRY(lt_device_open(&s->device, m->device, &config));
    return lt_classifier_open_ranks(s);
}

static lt_status agree_data(classifier *s)
{
    LT_TRY(lt_train_input_agree(&s->input, &s->ranks));
    LT_TRY(lt_ranks_same_number(&s->ranks, "the side of an image", s->transform.size));
    return lt_ranks_same_number(&s->ranks, "the channels of an image",
                                lt_dataset_channels(s->input.val));
}

lt_status lt_classifier_open_data(classifier *s)
{
    LT_TRY(lt_classifier_open_sources(s));
    LT_TRY(choose_input(s));
    LT_TRY(lt_classifier_open_metadata(s));
    for (int c = 0; c < 3; c++) /* what is erased becomes 0 after normalisation */
        s->transform.erase_fill[c] = (uint8_t)(s->pixels.mean[c] + 0.5F);
    s->input.unit = lt_classification_task.unit;
    s->input.has_ram_cache = s->args.loader.cache_ram;
    s->input.has_disk_cache = s->args.loader.cache_dir;
    return agree_data(s);
}

/* An epoch is a whole number of updates; what is left over is not seen in it. */
static lt_status count_batches(classifier *s)
{
    const loader_options *o = &s->args.loader;
    const training_options *t = &s->args.training;
    int64_t count = lt_dataset_count(s->input.train),
            batches = count / s->ranks.count / t->batch_size;
    if (o->overfit_batches && batches > o->overfit_batches)
        batches = o->overfit_batches;
    if (o->limit_train_batches && batches > o->limit_train_batches)
        batches = o->limit_train_batches;
    s->input.batches_per_epoch = batches / t->grad_accum * t->grad_accum;
    if (!s->input.batches_per_epoch)
        return lt_fail(LT_E_ARG,
                       "--batch-size %lld x --grad-accum %lld on %d ranks: %s has only %lld "
                       "images to train on",
                       (long long)t->batch_size, (long long)t->grad_accum, s->ranks.count,
                       s->args.images.data, (long long)count);
    return LT_OK;
}

static lt_status open_loader(classifier *s)
{
    const loader_options *o = &s->args.loader;
    const image_options *image = &s->args.images;
    const training_options *t = &s->args.training;
    lt_loader_config c = {
        .transform = s->transform,
        .sizes = s->sizes,
        .repeats = (int)image->repeated_aug,
        .mix = {.mixup_alpha = image->mixup_alpha, .cutmix_alpha = image->cutmix_alpha},
        .batch = (int)t->batch_size,
        .rank = s->ranks.rank,
        .size = s->ranks.count,
        .threads = s->workers,
        .seed = (uint64_t)t->seed,
        .shuffle = o->shuffle && !o->overfit_batches,
        .drop_last = true,
        .max_bad = o->max_bad_images,
        .limit =
            o->overfit_batches ? s->input.batches_per_epoch * t->batch_size * s->ranks.count : 0,
        .max_batches = s->input.batches_per_epoch,
        .cache_bytes = lt_classifier_cache_bytes(s),
        .read_ahead = o->read_ahead,
    };
    return lt_loader_new(&s->input.loader, s->input.train, s->device, &c);
}

/* What state.json says of the network. */
static void name_network(classifier *s)
{
    lt_checkpoint_state *state = &s->state.now;
    state->facts = 3;
    state->fact[0] = (lt_checkpoint_fact){.key = "arch"};
    snprintf(state->fact[0].text, LT_CHECKPOINT_NAME, "%s", lt_family_arch(&s->choice));
    state->fact[1] =
        (lt_checkpoint_fact){.key = "classes", .is_number = true, .number = s->choice.spec.classes};
    state->fact[2] = (lt_checkpoint_fact){.key = "network", .later = true};
    lt_family_print(&s->choice, state->fact[2].text, LT_CHECKPOINT_NAME);
}

/* Into s->changed: what is otherwise than in the run to go on from. */
static lt_status compare_options(classifier *s)
{
    arguments values = {0};
    family_choice choice = {0};
    lt_options *before = NULL;
    if (!s->state.folder[0])
        return LT_OK;
    LT_TRY(lt_family_open(&choice, s->choice.family));
    lt_status st = lt_arguments_open(&before, &values, choice.family, choice.config);
    if (!st)
        lt_folder_compare_options(&s->choice, s->options, before, &s->state, s->changed,
                                  sizeof s->changed);
    lt_arguments_close(&before, &values);
    lt_family_close(&choice);
    return st;
}

/* Rank 0 looks at what an earlier start left. */
static lt_status set_aside(classifier *s, char *to, size_t size)
{
    LT_TRY(compare_options(s));
    return lt_folder_set_aside(&s->args.output, &s->state, to, size);
}

static lt_status open_run(classifier *s)
{
    const output_options *o = &s->args.output;
    int64_t per_epoch = s->input.batches_per_epoch / s->args.training.grad_accum;
    char aside[sizeof s->state.folder] = "";
    lt_train_labels(&lt_classification_task, &s->labels);
    lt_run_config c = {
        .options = s->options,
        .progress = (lt_progress)o->progress,
        .unit = lt_classification_task.unit,
        .unit_short = lt_classification_task.unit_short,
        .label = s->labels.label,
        .labels = s->labels.count,
        .log_every = o->log_every,
        .total_steps = s->total_steps,
        .steps_per_epoch = per_epoch,
        .total_epochs = (s->total_steps + per_epoch - 1) / per_epoch,
        .resume_step = s->state.now.step,
        .redo_epoch = s->state.now.epoch_recorded == 0,
        .no_tensorboard = !o->tensorboard,
        .rank = s->ranks.rank,
        .id = s->state.now.run,
    };
    if (!s->ranks.rank)
        LT_TRY(set_aside(s, aside, sizeof aside));
    LT_TRY(lt_run_open(&s->run, o->output, &c));
    if (*aside)
        lt_run_note(s->run, "the run that was in %s is in %s now", o->output, aside);
    return s->state.folder[0]
               ? lt_train_resumed(s->run, &s->state, &s->ranks, o->output, s->changed)
               : LT_OK;
}

lt_status lt_classifier_open_training(classifier *s)
{
    const arguments *a = &s->args;
    const training_options *t = &a->training;
    LT_TRY(count_batches(s));
    LT_TRY(lt_params_freeze(&s->params, &a->groups.freeze, a->groups.freeze_bn));
    LT_TRY(lt_classifier_open_parallel(s));
    LT_TRY(lt_optim_flags_make(&s->optim, &s->args.optim, &s->params));
    LT_TRY(lt_param_groups_apply(&s->params, s->optim, a->optim.lr, &a->groups.param_group));
    LT_TRY(lt_classifier_divide_optimizer(s));
    LT_TRY(lt_schedule_open(&s->schedule, &s->total_steps, &a->schedule, t, a->optim.lr,
                            s->input.batches_per_epoch / t->grad_accum));
    if (t->ema_decay > 0)
        LT_TRY(lt_train_state_open_ema(&s->state, &s->params, t->ema_decay));
    lt_train_state_begin(&s->state, &lt_classification_task, s->optim, &s->ranks, t->batch_size,
                         t->grad_accum);
    s->state.now.seed = (uint64_t)t->seed;
    s->state.now.threads = lt_device_threads(s->device);
    name_network(s);
    /* The run folder last: a run that cannot go on leaves what is there as it is. */
    LT_TRY(lt_classifier_load_checkpoint(s));
    LT_TRY(lt_train_state_scale_loss(&s->state, s->optim, t->amp == AMP_F16));
    LT_TRY(lt_classifier_check_memory(s));
    LT_TRY(open_loader(s));
    LT_TRY(lt_classifier_open_step(s));
    if (!s->state.now.run[0])
        LT_TRY(lt_run_new_id(s->state.now.run));
    return open_run(s);
}

void lt_classifier_close(classifier *s)
{
    lt_run_close(&s->run);
    lt_loader_free(&s->input.loader); /* before the device that its batches are on */
    lt_train_step_free(&s->step);
    lt_classifier_close_details(s);
    lt_train_state_close(&s->state);
    lt_optim_free(&s->optim);
    lt_data_parallel_free(&s->dp);
    lt_ranks_close(&s->ranks);
    lt_tape_free(&s->tape);
    lt_params_clear(&s->params);
    lt_module_free(&s->model);
    lt_device_close(&s->device);
    lt_train_input_close(&s->input);
    lt_metadata_clear(&s->known);
    lt_metadata_clear(&s->own);
    lt_family_close(&s->choice);
    lt_arguments_close(&s->options, &s->args);
    lt_run_lock_close(&s->lock);
}

lt_pass lt_classifier_pass(const classifier *s, bool train)
{
    lt_pass pass = train ? LT_PASS_TRAIN : LT_PASS_EVAL;
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16, LT_F32};
    pass.dtype = dtypes[s->args.training.amp];
    pass.recompute = s->args.training.recompute ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF;
    pass.seed = (uint64_t)s->args.training.seed;
    return pass;
}

lt_task lt_classifier_task(classifier *s)
{
    s->classify = (classification){.model = s->model,
                                   .pixels = s->pixels,
                                   .label_smoothing = s->args.label_smoothing,
                                   .details = s->details};
    return (lt_task){&lt_classification_task, &s->classify};
}

lt_tensor *lt_classifier_forward(classifier *s, lt_tensor *images)
{
    lt_tensor *x = lt_normalize(s->tape, images, &s->pixels);
    return lt_module_forward(s->model, s->tape, x);
}
