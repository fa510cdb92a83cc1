/* Training and evaluation as the command line requests them: fills the configurations of the library's loop. */

#include "trainer.h"

#include "lather/ext/fail.h"
#include "lather/muon.h"

#include <stdio.h>
#include <string.h>

static bool asked_to_stop(void *context)
{
    (void)context;
    return lt_signals_seen() > 0;
}

lt_task lt_trainer_task(lt_trainer *t)
{
    const lt_trainer_program *p = t->program;
    return (lt_task){p->task, p->task_context ? p->task_context(t->context, t) : t->context};
}

lt_loader_config lt_trainer_loader(const lt_trainer *t, bool train)
{
    lt_loader_config c = {.threads = t->shared.workers};
    if (t->program->loader)
        t->program->loader(t->context, t, train, &c);
    return c;
}

lt_loader_config lt_trainer_training_loader(const lt_trainer *t)
{
    const arguments *a = &t->args;
    const int64_t overfit = a->loader.overfit_batches, batches = t->input.batches_per_epoch;
    lt_loader_config c = lt_trainer_loader(t, true);
    c.batch = (int)a->batch_size;
    c.rank = t->ranks.data_rank;
    c.size = t->ranks.data_count;
    c.seed = (uint64_t)a->training.seed;
    c.shuffle = a->loader.shuffle && !overfit;
    c.drop_last = true;
    c.limit = overfit ? batches * a->batch_size * t->ranks.data_count : 0;
    c.max_batches = batches;
    return c;
}

static bool has_statistics(const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        if (params->item[i]->role == LT_ROLE_STAT)
            return true;
    return false;
}

static bool update_bn(const lt_trainer *t, lt_update_bn *out)
{
    enum { USUAL = 50 };
    const int64_t asked = t->args.evaluation.update_bn, batches = asked < 0 ? USUAL : asked;
    if (!t->args.averaging.kind || !batches || t->state.ema || !has_statistics(&t->params))
        return false;
    *out = (lt_update_bn){.train = t->input.train, .dp = t->shared.dp, .step = -1};
    out->loader = lt_trainer_training_loader(t);
    out->loader.cache_bytes = 0; /* too few to be worth a cache */
    if (batches < out->loader.max_batches)
        out->loader.max_batches = batches;
    return true;
}

/* --- Evaluation --- */

static lt_evaluator evaluator_of(lt_trainer *t)
{
    const arguments *a = &t->args;
    lt_loader_config loader = lt_trainer_loader(t, false);
    loader.batch = (int)(a->eval_batch_size ? a->eval_batch_size : a->batch_size);
    loader.max_batches = a->loader.limit_eval_batches;
    loader.limit = a->loader.overfit_batches * a->batch_size * t->ranks.data_count;
    return (lt_evaluator){.device = t->device,
                          .tape = t->tape,
                          .task = lt_trainer_task(t),
                          .pass = lt_trainer_pass(t, false),
                          .loader = loader,
                          .ranks = &t->ranks,
                          .optim = t->optim,
                          .share = t->shared.share,
                          .run = t->run,
                          .stop = asked_to_stop};
}

lt_status lt_trainer_evaluate(lt_trainer *t, lt_evaluation *out)
{
    const lt_evaluator evaluator = evaluator_of(t);
    LT_TRY(lt_evaluate(&evaluator, t->input.val, out));
    t->ranks.stop = out->stopped;
    return LT_OK;
}

/* --- Training --- */

lt_status lt_trainer_open_step(lt_trainer *t)
{
    const lt_train_step_config c = {
        .device = t->device,
        .tape = t->tape,
        .params = &t->params,
        .optim = t->optim,
        .task = lt_trainer_task(t),
        .ema = t->shared.local ? NULL : t->state.ema, /* otherwise it follows outer steps */
        .comm = t->ranks.comm,
        .dp = t->shared.dp,
        .mesh = t->ranks.mesh,
        .group = t->shared.local ? lt_local_steps_comm(t->shared.local) : NULL,
        .share = t->shared.share,
        .pass = lt_trainer_pass(t, true),
        .grad_accum = t->args.training.grad_accum,
        .stragglers = t->shared.stragglers,
        .gradient_noise = t->args.training.gradient_noise,
        .graph = t->args.machine.graph && !t->ranks.mesh && !t->args.ranks.shard_params,
        .next = lt_train_input_next,
        .next_context = &t->input,
        .stop = asked_to_stop};
    return lt_train_step_new(&t->step, &c);
}

/* Returns the parts of checkpoints. entry: memory for the metadata of the weights; must outlive the parts. */
static lt_checkpoint_parts parts_of(const lt_trainer *t, lt_metadata entry[LT_TRAINER_METADATA])
{
    const lt_trainer_program *p = t->program;
    lt_checkpoint_parts parts = {.params = &t->params,
                                 .optim = t->optim,
                                 .comm = t->ranks.comm,
                                 .local = t->shared.local,
                                 .dp = t->shared.dp,
                                 .metadata = entry,
                                 .metadata_count =
                                     p->metadata ? p->metadata(t->context, t, entry) : 0};
    lt_train_state_parts(&t->state, &parts);
    return parts;
}

static lt_status check_metadata(const lt_trainer *t)
{
    char path[sizeof t->weights];
    snprintf(path, sizeof path, "%s/model.safetensors", t->state.folder);
    return t->program->check_metadata ? t->program->check_metadata(t->context, t, path) : LT_OK;
}

lt_status lt_trainer_load_checkpoint(lt_trainer *t)
{
    const int64_t passes = t->args.training.grad_accum;
    lt_metadata entry[LT_TRAINER_METADATA];
    const lt_checkpoint_parts parts = parts_of(t, entry);
    if (!t->state.folder[0])
        return LT_OK;
    LT_TRY(check_metadata(t)); /* before the data check: other classes mean other data, too */
    LT_TRY(
        lt_train_state_check_data(&t->state, t->args.output.data_changed == DATA_CHANGED_CONTINUE));
    LT_TRY(lt_train_state_check(&t->state, &t->ranks, passes, t->input.batches_per_epoch));
    return lt_train_state_load(&t->state, &parts, &t->ranks, passes, t->input.batches_per_epoch);
}

static int step_values(void *context, lt_metric out[LOOP_VALUES])
{
    const lt_trainer *t = context;
    const lt_trainer_program *p = t->program;
    const int own = p->step_values ? p->step_values(t->context, t, out) : 0;
    lt_shampoo_values(t->optim, t->ranks.comm != NULL, out + own);
    out[own + SHAMPOO_VALUES] = (lt_metric){"muon_seconds", lt_muon_seconds(t->optim)};
    return own + SHAMPOO_VALUES + 1;
}

static void begin_epoch(void *context)
{
    lt_trainer *t = context;
    lt_trainer_begin_compression(t);
    if (t->program->begin_epoch)
        t->program->begin_epoch(t->context, t);
}

static lt_status end_epoch(void *context, const lt_metric *metric, size_t count)
{
    lt_trainer *t = context;
    return t->hook->end_epoch(t->hook->context, t, metric, count);
}

lt_status lt_trainer_train(lt_trainer *t)
{
    const arguments *a = &t->args;
    const training_options *training = &a->training;
    const output_options *o = &a->output;
    lt_metadata entry[LT_TRAINER_METADATA];
    lt_update_bn statistics;
    const bool updates_bn = update_bn(t, &statistics);
    const lt_train_loop loop = {
        .step = t->step,
        .input = &t->input,
        .state = &t->state,
        .ranks = &t->ranks,
        .run = t->run,
        .dp = t->shared.dp,
        .local = t->shared.local,
        .stragglers = t->shared.stragglers,
        .schedule = &t->schedule,
        .evaluator = evaluator_of(t),
        .evaluated = a->loader.overfit_batches ? t->input.train : t->input.val,
        .update_bn = updates_bn ? &statistics : NULL,
        .parts = parts_of(t, entry),
        .output = o->output,
        .total_steps = t->total_steps,
        .grad_accum = training->grad_accum,
        .eval_every = a->evaluation.eval_every,
        .checkpoint_every = o->checkpoint_every,
        .keep = (int)o->keep,
        .clip_norm = training->clip_grad,
        .target = t->program->target ? t->program->target(t->context) : 0,
        .skip_nan = training->on_nan == ON_NAN_SKIP,
        .is_scaled = training->amp == AMP_F16,
        .ahead = (lt_run_ahead)a->machine.run_ahead,
        .step_values = step_values,
        .begin_epoch = begin_epoch,
        .end_epoch = t->hook ? end_epoch : NULL,
        .context = t,
    };
    return lt_train_loop_run(&loop);
}
