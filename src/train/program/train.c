/* lt_train(): the training loop and the parts that it needs, for programs without options. */

#include "lather/train.h"

#include "program.h"
#include "train/loop/loop.h"
#include "train/loop/step_parts.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

enum { MESSAGE = 512 };

/* The parts of a run; zeroed until they are opened. */
typedef struct parts {
    lt_train_config config; /* the caller's, with defaults applied */
    lt_ranks ranks;
    lt_train_input input;
    lt_train_state state;
    lt_train_loop loop;
    lt_task_labels labels;
    lt_run_lock *lock;
} parts;

static lt_status check_config(const lt_train_config *c)
{
    LT_TRY(lt_task_check(c->task.ops));
    if (c->loader.batch < 1 || c->grad_accum < 0 || c->max_steps < 0)
        return lt_fail(LT_E_ARG, "train: loader.batch %d, grad_accum %lld, max_steps %lld",
                       c->loader.batch, (long long)c->grad_accum, (long long)c->max_steps);
    if (c->output && strlen(c->output) > OUTPUT_BYTES)
        return lt_fail(LT_E_ARG, "train: output: a path of %zu bytes; at most %d are possible",
                       strlen(c->output), OUTPUT_BYTES);
    return LT_OK;
}

/* Locks the folder and finds the checkpoint to resume from. */
static lt_status lock_and_find_checkpoint(parts *p)
{
    const lt_train_config *c = &p->config;
    const lt_run_lock_config lock = {.is_new = !c->resume, .comm = c->comm};
    lt_train_state *s = &p->state;
    if (!c->output)
        return LT_OK;
    LT_TRY(lt_run_lock_open(&p->lock, c->output, &lock));
    if (c->resume)
        LT_TRY(lt_folder_find_newest(s, c->output));
    LT_TRY(lt_ranks_same_text(&p->ranks, "the checkpoint to resume", s->folder));
    return s->folder[0] ? lt_checkpoint_verify(s->folder, &s->found) : LT_OK;
}

/* Opens the averaging of gradients, over all ranks or those of a group. */
static lt_status open_parallel(parts *p)
{
    const lt_train_config *c = &p->config;
    const lt_ranks *r = &p->ranks;
    lt_data_parallel_config dp = {.norms = c->gradient_noise};
    if (!c->stragglers)
        return lt_data_parallel_new(&p->loop.dp,
                                    p->loop.local ? lt_local_steps_comm(p->loop.local) : r->comm,
                                    c->params, p->loop.tape, &dp);
    if (p->loop.local)
        return lt_fail(LT_E_ARG, "train: stragglers and local_steps contradict each other");
    LT_TRY(lt_stragglers_check(c->stragglers, r->count, c->grad_accum));
    lt_stragglers_set_dp_config(c->stragglers, r->count, c->grad_accum, &dp);
    LT_TRY(lt_data_parallel_new(&p->loop.dp, r->comm, c->params, p->loop.tape, &dp));
    return lt_stragglers_new(&p->loop.stragglers, c->stragglers, p->loop.dp, r->comm,
                             c->grad_accum);
}

static lt_status open_ranks(parts *p)
{
    lt_ranks *r = &p->ranks;
    const lt_train_config *c = &p->config;
    if (!r->comm && (c->local_steps || c->stragglers))
        return lt_fail(LT_E_ARG, "train: %s needs at least 2 ranks",
                       c->local_steps ? "local_steps" : "stragglers");
    if (!r->comm)
        return LT_OK;
    LT_TRY(lt_ranks_same_plugins(r));
    LT_TRY(lt_tensor_new(&r->sums, c->device, LT_F64, LT_SHAPE(RANK_SUMS)));
    if (c->local_steps && lt_optim_is_averaged(c->optim))
        return lt_fail(
            LT_E_ARG,
            "train: local_steps and an averaging optimizer (lt_optim_start_averaging()) contradict each other");
    if (c->local_steps) {
        LT_TRY(lt_ranks_find_nodes(r, c->ranks_per_node));
        LT_TRY(lt_local_steps_new(&p->loop.local, r->comm, &r->nodes, c->params, c->local_steps));
    }
    return open_parallel(p);
}

/* Opens the training loader. An epoch is a whole number of steps; remaining samples are skipped. */
static lt_status open_input(parts *p)
{
    const lt_train_config *c = &p->config;
    lt_train_input *in = &p->input;
    lt_loader_config loader = c->loader;
    const int64_t limit = loader.limit, all = lt_dataset_count(c->train);
    const int64_t count = limit && limit < all ? limit : all;
    int64_t batches = count / p->ranks.count / loader.batch;
    if (loader.max_batches && batches > loader.max_batches)
        batches = loader.max_batches;
    in->unit = c->task.ops->unit;
    in->train = c->train;
    in->val = c->val ? c->val : c->train;
    in->batches_per_epoch = batches / c->grad_accum * c->grad_accum;
    if (!in->batches_per_epoch)
        return lt_fail(LT_E_ARG,
                       "train: %lld samples are fewer than a step of %d x %lld on %d ranks takes",
                       (long long)count, loader.batch, (long long)c->grad_accum, p->ranks.count);
    loader.rank = p->ranks.rank;
    loader.size = p->ranks.count;
    loader.grad_accum = c->grad_accum;
    loader.drop_last = true;
    loader.max_batches = in->batches_per_epoch;
    LT_TRY(lt_train_input_check_ranks(in, &p->ranks));
    return lt_loader_new(&in->loader, c->train, c->device, &loader);
}

static lt_status open_schedule(parts *p)
{
    const lt_train_config *c = &p->config;
    p->loop.schedule = c->schedule;
    p->loop.schedule.steps_per_epoch = p->input.batches_per_epoch / c->grad_accum;
    p->loop.total_steps = lt_schedule_steps(&p->loop.schedule, c->max_steps, p->state.offset);
    if (p->loop.total_steps < 1)
        return lt_fail(LT_E_ARG, "train: schedule.epochs %g and max_steps 0 give no step",
                       c->schedule.epochs);
    return lt_schedule_check(&p->loop.schedule);
}

static lt_status open_run(parts *p)
{
    const lt_train_config *c = &p->config;
    lt_run_config run = {.progress = c->progress};
    lt_train_fill_run_config(&run, &p->labels, &p->loop);
    LT_TRY(lt_run_open(&p->loop.run, c->output, &run));
    LT_TRY(lt_train_log_resume(&p->loop, ""));
    return lt_train_stats_open_file(&p->loop.stats, p->loop.run, p->state.now.run);
}

static lt_status open_parts(parts *p)
{
    const lt_train_config *c = &p->config;
    lt_train_loop *l = &p->loop;
    LT_TRY(check_config(c));
    LT_TRY(lt_hooks_add(&l->hooks, c->hooks));
    LT_TRY(lt_hooks_add_registered(&l->hooks));
    LT_TRY(lt_tape_new(&l->tape, c->device));
    LT_TRY(lock_and_find_checkpoint(p));
    LT_TRY(open_ranks(p));
    LT_TRY(open_input(p));
    if (c->ema_decay > 0)
        LT_TRY(lt_train_state_open_ema(&p->state, c->params, c->ema_decay));
    LT_TRY(lt_train_state_open_iterates(&p->state, c->params, c->optim));
    lt_train_loop_begin_state(l);
    LT_TRY(lt_train_loop_load_state(l));
    LT_TRY(open_schedule(p));
    LT_TRY(lt_train_loop_open_step(l));
    LT_TRY(lt_train_loop_open_stats(l));
    return open_run(p);
}

static lt_status run_loop(parts *p)
{
    const lt_train_config *c = &p->config;
    lt_loader_config loader = {.transform = c->loader.transform,
                               .batch = c->loader.batch,
                               .threads = c->loader.threads,
                               .max_bad = c->loader.max_bad,
                               .limit = c->loader.limit};
    loader.transform.augment = LT_AUGMENT_NONE;
    p->loop.evaluated = p->input.val;
    p->loop.evaluator = (lt_evaluator){.device = c->device,
                                       .tape = p->loop.tape,
                                       .task = c->task,
                                       .pass = lt_train_pass(c, LT_PASS_EVAL),
                                       .loader = loader,
                                       .ranks = &p->ranks,
                                       .optim = c->optim,
                                       .share = c->share,
                                       .run = p->loop.run,
                                       .stop = c->stop,
                                       .context = c->context};
    return lt_train_loop_run(&p->loop);
}

static void close_parts(parts *p, lt_status failure)
{
    lt_ranks_abort_others(&p->ranks, failure);
    lt_run_close(&p->loop.run);
    lt_loader_free(&p->input.loader);
    lt_train_loop_close(&p->loop);
    lt_train_state_close(&p->state);
    lt_stragglers_free(&p->loop.stragglers);
    lt_data_parallel_free(&p->loop.dp);
    lt_local_steps_free(&p->loop.local);
    lt_tensor_free(&p->ranks.sums);
    lt_nodes_clear(&p->ranks.nodes);
    lt_tape_free(&p->loop.tape);
    lt_run_lock_close(&p->lock);
}

lt_status lt_train(const lt_train_config *config, lt_train_end *end)
{
    parts p = {.config = *config, .ranks = LT_RANKS_ALONE};
    p.config.grad_accum = config->grad_accum ? config->grad_accum : 1;
    p.loop = (lt_train_loop){
        .config = &p.config, .ranks = &p.ranks, .input = &p.input, .state = &p.state};
    if (config->comm) /* before anything can fail, so that the other ranks are aborted */
        lt_ranks_join(&p.ranks, config->comm);
    lt_status st = open_parts(&p);
    if (!st)
        st = run_loop(&p);
    if (end)
        *end = (lt_train_end){.step = p.state.now.step,
                              .epoch = p.state.now.epoch,
                              .best = p.state.now.best,
                              .best_step = p.state.now.best_step,
                              .stopped = p.ranks.stop,
                              .ended_by = p.loop.hooks.ended_by};
    char why[MESSAGE];
    snprintf(why, sizeof why, "%s", lt_error_message());
    close_parts(&p, st);
    return st ? lt_fail(st, "%s", why) : LT_OK; /* closing aborted parts sets other messages */
}
