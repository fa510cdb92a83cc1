/* Data of a run, and what reads it: loaders, evaluations, the statistics of batch norm. */

#include "train/loop/mesh.h"
#include "trainer.h"

#include "lather/ext/fail.h"

/* --- Sets and batches --- */

lt_status lt_trainer_open_data(lt_trainer *t)
{
    const lt_trainer_program *p = t->line.program;
    LT_TRY(p->open_data(t->line.context, t, &t->input.train, &t->input.val));
    t->input.unit = p->task->unit;
    LT_TRY(lt_train_input_check_ranks(&t->input, &t->ranks));
    return p->agree ? p->agree(t->line.context, t) : LT_OK;
}

lt_status lt_trainer_count_batches(int64_t *out, const command_line *line, int64_t count,
                                   int copies)
{
    const arguments *a = &line->args;
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
                       (long long)count, line->program->task->unit);
    return LT_OK;
}

/* --- Loaders --- */

lt_task lt_trainer_task(lt_trainer *t)
{
    const lt_trainer_program *p = t->line.program;
    return (lt_task){p->task,
                     p->task_context ? p->task_context(t->line.context, t) : t->line.context};
}

lt_loader_config lt_trainer_loader_config(const lt_trainer *t, bool train)
{
    lt_loader_config c = {.threads = t->input.workers};
    if (t->line.program->loader)
        t->line.program->loader(t->line.context, t, train, &c);
    return c;
}

lt_loader_config lt_trainer_train_loader_config(const lt_trainer *t)
{
    const arguments *a = &t->line.args;
    const int64_t overfit = a->loader.overfit_batches, batches = t->input.batches_per_epoch;
    lt_loader_config c = lt_trainer_loader_config(t, true);
    c.batch = (int)a->batch_size;
    c.rank = t->ranks.data_rank;
    c.size = t->ranks.data_count;
    c.seed = (uint64_t)a->training.seed;
    c.grad_accum = a->training.grad_accum;
    c.shuffle = a->loader.shuffle && !overfit;
    c.drop_last = true;
    c.limit = overfit ? batches * a->batch_size * t->ranks.data_count : 0;
    c.max_batches = batches;
    return c;
}

bool lt_trainer_update_bn_config(const lt_trainer *t, lt_data_parallel *dp, lt_update_bn *out)
{
    enum { USUAL = 50 };
    const int64_t asked = t->line.args.evaluation.update_bn, batches = asked < 0 ? USUAL : asked;
    if (!t->line.args.averaging.kind || !batches || t->state.ema
        || !lt_trainer_has_bn_statistics(&t->model.params))
        return false;
    *out = (lt_update_bn){.train = t->input.train, .dp = dp, .step = -1};
    out->loader = lt_trainer_train_loader_config(t);
    out->loader.cache_bytes = 0;                      /* too few to be worth a cache */
    if (lt_device_is_reproducible(t->model.device)) { /* all ranks run all batches */
        out->loader.max_batches *= out->loader.size;
        out->loader.rank = 0;
        out->loader.size = 1;
        out->loader.grad_accum = 1;
    }
    if (batches < out->loader.max_batches)
        out->loader.max_batches = batches;
    return true;
}

/* --- Evaluation --- */

lt_evaluator lt_trainer_evaluator(lt_trainer *t, lt_share *share)
{
    const arguments *a = &t->line.args;
    int64_t batches = a->loader.overfit_batches;
    lt_loader_config loader = lt_trainer_loader_config(t, false);
    loader.batch = (int)(a->eval_batch_size ? a->eval_batch_size : a->batch_size);
    loader.max_batches = a->loader.limit_eval_batches;
    if (batches && t->input.batches_per_epoch) /* the samples that an epoch trains on */
        batches = t->input.batches_per_epoch;
    loader.limit = batches * a->batch_size * t->ranks.data_count;
    return (lt_evaluator){.device = t->model.device,
                          .tape = t->model.tape,
                          .task = lt_trainer_task(t),
                          .pass = lt_trainer_pass(t, false),
                          .loader = loader,
                          .ranks = &t->ranks,
                          .optim = t->optim,
                          .share = share,
                          .run = t->output.run,
                          .stop = lt_signals_seen};
}
