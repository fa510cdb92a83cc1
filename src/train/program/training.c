/* A training or an evaluation from its start to its end: opens its parts in the order of their dependencies, works,
 * and closes them. No other file knows all of them. */

#include "parallel.h"

#include "lather/detail/shard_params.h"
#include "lather/ext/dataset.h"
#include "lather/ext/fail.h"
#include "lather/muon.h"
#include "lather/profile.h"

#include <math.h>
#include <stdio.h>

/* Parts are zeroed until they are opened; close_training() frees them. */
typedef struct training {
    lt_trainer t;
    trainer_shared shared;
    trainer_watching watching;
    lt_train_config config;
    lt_metadata metadata[LT_TRAINER_METADATA];
    lt_train_loop loop;
    early_stop early_stop, plateau;
} training;

/* --- Opening --- */

static lt_status open_optimizer(lt_trainer *t, trainer_shared *s)
{
    arguments *a = &t->line.args;
    const lt_params *params = &t->model.params;
    LT_TRY(lt_trainer_make_optim(s, &t->optim, a, &t->ranks, &t->model));
    LT_TRY(lt_trainer_scale_by_base(t));
    if (a->cautious.mask || a->cautious.decay || a->cautious.hyperball)
        LT_TRY(lt_optim_start_cautious(t->optim, &a->cautious));
    LT_TRY(lt_trainer_shard_optim(s, t->optim, a, &t->ranks, t->model.tape));
    if (a->averaging.kind) {
        LT_TRY(lt_optim_start_averaging(t->optim, params, &a->averaging));
        LT_TRY(lt_train_state_open_iterates(&t->state, params, t->optim));
    }
    if (a->training.ema_decay > 0)
        LT_TRY(lt_train_state_open_ema(&t->state, params, a->training.ema_decay));
    return t->state.ema ? lt_optim_shard_ema(t->optim, t->state.ema) : LT_OK;
}

/* Returns the settings of the command line, for the opened parts. */
static lt_train_config config_of(lt_trainer *t)
{
    const arguments *a = &t->line.args;
    const output_options *o = &a->output;
    const lt_trainer_program *p = t->line.program;
    const lt_pass pass = lt_trainer_pass(t, true);
    return (lt_train_config){.device = t->model.device,
                             .params = &t->model.params,
                             .optim = t->optim,
                             .task = lt_trainer_task(t),
                             .train = t->input.train,
                             .loader = {.batch = (int)a->batch_size, .seed = pass.seed},
                             .grad_accum = a->training.grad_accum,
                             .dtype = pass.dtype,
                             .graph = a->machine.graph && !t->ranks.mesh && !a->ranks.shard_params,
                             .gradient_noise = a->training.gradient_noise,
                             .optim_stats = o->optim_stats,
                             .optim_stats_pattern = (const char *const *)o->optim_stats_params.item,
                             .optim_stats_patterns = o->optim_stats_params.count,
                             .clip_norm = a->training.clip_grad,
                             .skip_nan = a->training.on_nan == ON_NAN_SKIP,
                             .eval_every = a->evaluation.eval_every,
                             .checkpoint_every = o->checkpoint_every,
                             .keep = (int)o->keep,
                             .save_top = (int)o->save_top,
                             .target = p->target ? p->target(t->line.context) : 0,
                             .output = o->output,
                             .data_may_change = o->data_changed == DATA_CHANGED_CONTINUE,
                             .stop = lt_signals_seen};
}

/* Starts the state of a new run, with the network's facts for state.json, or loads the checkpoint of --resume. */
static lt_status open_state(training *w)
{
    lt_trainer *t = &w->t;
    const arguments *a = &t->line.args;
    const family_choice *c = &t->line.choice;
    const lt_trainer_program *p = t->line.program;
    lt_checkpoint_state *now = &t->state.now;
    lt_train_loop_begin_state(&w->loop);
    now->facts = 3;
    now->fact[0] = (lt_checkpoint_fact){.key = "arch"};
    snprintf(now->fact[0].text, LT_CHECKPOINT_NAME, "%s", lt_family_arch(c));
    now->fact[1] =
        (lt_checkpoint_fact){.key = "classes", .is_number = true, .number = c->spec.classes};
    now->fact[2] = (lt_checkpoint_fact){.key = "network", .later = true};
    lt_family_format_facts(c, now->fact[2].text, LT_CHECKPOINT_NAME);
    if (a->groups.mup)
        now->fact[now->facts++] = (lt_checkpoint_fact){
            .key = "mup", .later = true, .is_number = true, .number = a->groups.mup};
    if (*t->input.val_split) {
        lt_checkpoint_fact *f = &now->fact[now->facts++];
        *f = (lt_checkpoint_fact){.key = "val_split", .later = true};
        snprintf(f->text, sizeof f->text, "%s", t->input.val_split);
    }
    if (t->state.folder[0] && p->check_metadata) /* before the data: other classes are other data */
        LT_TRY(p->check_metadata(t->line.context, t, t->model.weights));
    return lt_trainer_explain_failed_load(t, lt_train_loop_load_state(&w->loop));
}

/* Lists the hooks of the run: the caller's, --early-stop, --sched plateau, registered ones. */
static lt_status open_hooks(training *w, const lt_train_hooks *own)
{
    const command_line *line = &w->t.line;
    LT_TRY(lt_hooks_add(&w->loop.hooks, own));
    LT_TRY(lt_early_stop_open(&w->early_stop, &line->args.evaluation, line->program->task));
    if (w->early_stop.hooks.before_run)
        LT_TRY(lt_hooks_add(&w->loop.hooks, &w->early_stop.hooks));
    LT_TRY(lt_plateau_open(&w->plateau, &line->args.schedule, &line->args.evaluation,
                           line->program->task, &w->loop.schedule));
    if (w->plateau.hooks.before_run)
        LT_TRY(lt_hooks_add(&w->loop.hooks, &w->plateau.hooks));
    return lt_hooks_add_registered(&w->loop.hooks);
}

/* Something that begins at a step or an epoch. */
typedef struct beginning {
    bool is_read;
    const char *flag;
    double at;
    bool by_epochs;
} beginning;

/* Checks that what begins at a step or an epoch begins within the schedule; --max-steps may end the run before. */
static lt_status check_beginnings(const arguments *a, const lt_schedule *s,
                                  const lt_size_schedule *sizes, int64_t offset)
{
    const lt_averaging_config *c = &a->averaging;
    const double last = s->milestones ? s->milestone[s->milestones - 1] : 0,
                 last_size = sizes->count ? (double)sizes->step[sizes->count - 1].epoch : 0,
                 steps = floor(s->epochs * (double)s->steps_per_epoch + 0.5) + (double)offset;
    const beginning list[] = {
        {c->kind == LT_AVERAGING_TAIL, "tail-start", (double)c->tail_start, false},
        {c->kind == LT_AVERAGING_EMA_NESTEROV, "lookahead-start", (double)c->lookahead_start,
         false},
        {s->kind == LT_SCHEDULE_STEP, "step-epochs", s->step_epochs, true},
        {s->kind == LT_SCHEDULE_MULTISTEP, "milestone", last, true},
        {a->ranks.compress_warmup_epochs > 0, "compress-warmup-epochs",
         (double)a->ranks.compress_warmup_epochs, true},
        {sizes->count > 0, "image-size-schedule", last_size, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const beginning *b = &list[i];
        const double end = b->by_epochs ? s->epochs : steps + 1; /* the first one after the run */
        if (b->is_read && b->at >= end)
            return lt_fail(LT_E_ARG, "--%s %.10g: is never reached, as the run has %.10g %s",
                           b->flag, b->at, b->by_epochs ? s->epochs : steps,
                           b->by_epochs ? "epochs" : "steps");
    }
    return LT_OK;
}

static lt_status open_training(training *w)
{
    lt_trainer *t = &w->t;
    const arguments *a = &t->line.args;
    lt_train_input *in = &t->input;
    lt_train_loop *l = &w->loop;
    LT_TRY(lt_trainer_count_batches(&in->batches_per_epoch, &t->line, lt_dataset_count(in->train),
                                    t->ranks.data_count));
    LT_TRY(lt_params_freeze(&t->model.params, &a->groups.freeze, a->groups.freeze_bn));
    LT_TRY(lt_trainer_open_parallel(&w->shared, &t->line, &t->ranks, &t->model));
    LT_TRY(open_optimizer(t, &w->shared));
    w->config = config_of(t);
    l->config = &w->config;
    l->ranks = &t->ranks;
    l->input = in;
    l->state = &t->state;
    l->tape = t->model.tape;
    l->dp = w->shared.dp;
    l->local = w->shared.local;
    l->stragglers = w->shared.stragglers;
    /* Opens the run folder last: a run that cannot resume leaves it unchanged. */
    LT_TRY(open_state(w));
    LT_TRY(lt_schedule_open(&l->schedule, &l->total_steps, &a->schedule, &a->training, a->optim.lr,
                            in->batches_per_epoch / a->training.grad_accum, t->state.offset));
    const lt_loader_config loader = lt_trainer_train_loader_config(t);
    LT_TRY(check_beginnings(a, &l->schedule, &loader.sizes, t->state.offset));
    lt_optim_release_params(t->optim); /* all ranks have loaded all weights */
    LT_TRY(lt_trainer_settle_recompute(t));
    w->config.recompute = lt_trainer_pass(t, true).recompute;
    LT_TRY(lt_trainer_check_memory(t));
    LT_TRY(lt_loader_new(&in->loader, in->train, t->model.device, &loader));
    LT_TRY(lt_trainer_open_device_share(&w->shared, t));
    w->config.share = w->shared.share;
    LT_TRY(lt_train_loop_open_step(l));
    const lt_status st = lt_train_loop_open_stats(l);
    t->ranks.same_failure = st == LT_E_ARG;
    LT_TRY(st);
    LT_TRY(lt_trainer_open_run(t, l));
    return lt_train_stats_open_file(&l->stats, l->run, t->state.now.run);
}

void lt_trainer_close(lt_trainer *t)
{
    lt_run_close(&t->output.run);
    lt_loader_free(&t->input.loader); /* before the device of its batches */
    if (t->line.context && t->line.program->close)
        t->line.program->close(t->line.context);
    lt_train_state_close(&t->state);
    lt_optim_free(&t->optim);
    lt_ranks_close(&t->ranks);
    lt_trainer_close_model(&t->model);
    lt_train_input_close(&t->input);
    lt_command_line_close(&t->line);
    lt_run_lock_close(&t->output.lock);
}

static void close_training(training *w)
{
    lt_train_loop_close(&w->loop);
    lt_train_state_close(&w->t.state);
    lt_optim_free(&w->t.optim);
    lt_trainer_close_shared(&w->shared);
    lt_watch_close(&w->watching.watch);
    lt_trainer_close(&w->t);
}

/* --- Training --- */

static int fill_step_metrics(void *context, lt_metric out[LOOP_VALUES])
{
    const training *w = context;
    const lt_trainer *t = &w->t;
    const lt_trainer_program *p = t->line.program;
    const int own = p->step_values ? p->step_values(t->line.context, t, out) : 0;
    lt_shampoo_step_metrics(t->optim, t->ranks.comm != NULL, out + own);
    out[own + SHAMPOO_VALUES] = (lt_metric){"muon_seconds", lt_muon_seconds(t->optim)};
    return own + SHAMPOO_VALUES + 1;
}

static void begin_epoch(void *context)
{
    training *w = context;
    lt_trainer *t = &w->t;
    lt_trainer_switch_compression(&w->shared, &t->line.args.ranks, t->state.now.epoch);
    if (t->line.program->begin_epoch)
        t->line.program->begin_epoch(t->line.context, t);
}

/* Trains to the end, a target, a limit or a signal. */
static lt_status run_loop(training *w)
{
    lt_trainer *t = &w->t;
    const arguments *a = &t->line.args;
    const lt_trainer_program *p = t->line.program;
    lt_train_loop *l = &w->loop;
    lt_update_bn statistics;
    l->update_bn = lt_trainer_update_bn_config(t, l->dp, &statistics) ? &statistics : NULL;
    l->evaluator = lt_trainer_evaluator(t, w->shared.share);
    l->evaluated = a->loader.overfit_batches ? t->input.train : t->input.val;
    l->parts.metadata = w->metadata;
    l->parts.metadata_count = p->metadata ? p->metadata(t->line.context, t, w->metadata) : 0;
    l->hash_every = a->output.hash_every;
    l->ahead = (lt_run_ahead)a->machine.run_ahead;
    l->step_values = fill_step_metrics;
    l->begin_epoch = begin_epoch;
    l->stops_after_epoch = lt_signals_seen_for_epoch;
    l->context = w;
    return lt_train_loop_run(l);
}

static void log_model_description(lt_trainer *t)
{
    if (t->line.program->describe)
        t->line.program->describe(t->line.context, t);
}

static lt_status train(training *w)
{
    lt_trainer *t = &w->t;
    const arguments *a = &t->line.args;
    LT_TRY(open_training(w));
    LT_TRY(lt_trainer_summary(t, w->loop.total_steps));
    lt_trainer_note_limits(t);
    if (a->weights)
        log_model_description(t);
    lt_signals_install();
    t->at_work = true;
    LT_TRY(run_loop(w));
    if (!a->output.output && !t->ranks.stop)
        lt_run_note(t->output.run, "no --output: neither checkpoints nor weights were saved");
    if (a->evaluation.eval_every >= 0 && t->input.val->unsplit && !t->ranks.rank)
        lt_run_warn(t->output.run, "the evaluations above used the training %s: %s has no split",
                    t->input.unit, a->data);
    return LT_OK;
}

/* --- Evaluation --- */

static lt_status evaluate(training *w)
{
    lt_trainer *t = &w->t;
    const lt_trainer_program *p = t->line.program;
    const output_options *o = &t->line.args.output;
    const bool watches = t->line.args.evaluation.watch;
    const lt_run_config c = {
        .progress = (lt_progress)o->progress, .append = true, .rank = t->ranks.rank};
    lt_evaluation e = {0};
    bool is_done = false;
    log_model_description(t);
    if (p->begin_evaluation)
        LT_TRY(p->begin_evaluation(t->line.context, t, &is_done));
    if (is_done)
        return LT_OK;
    if (!watches)
        LT_TRY(lt_run_open(&t->output.run, o->output, &c));
    LT_TRY(lt_trainer_open_device_share(&w->shared, t));
    t->at_work = true;
    if (watches)
        return lt_trainer_watch(&w->watching, t, w->shared.share);
    const lt_evaluator evaluator = lt_trainer_evaluator(t, w->shared.share);
    LT_TRY(lt_evaluate(&evaluator, t->input.val, &e));
    lt_run_close(&t->output.run);
    if (!t->ranks.rank)
        p->report(t->line.context, &e);
    return p->end_evaluation ? p->end_evaluation(t->line.context, t, &e) : LT_OK;
}

/* --- From the parsed command line to the exit status --- */

/* Finds the weights to start from: the checkpoint's, otherwise --weights. *over: no work is left. */
static lt_status find_starting_weights(training *w, bool *over)
{
    lt_trainer *t = &w->t;
    const arguments *a = &t->line.args;
    trainer_model *m = &t->model;
    *over = false;
    if (a->evaluation.watch)
        return lt_trainer_open_watch(&w->watching, t, over);
    if (!a->evaluation.eval)
        LT_TRY(lt_folder_lock_and_find(&a->output, &t->ranks, &t->state, &t->output.lock));
    if (t->state.folder[0])
        snprintf(m->weights, sizeof m->weights, "%s/model.safetensors", t->state.folder);
    else if (a->weights)
        snprintf(m->weights, sizeof m->weights, "%s", a->weights);
    return LT_OK;
}

static lt_status open_and_work(training *w)
{
    lt_trainer *t = &w->t;
    bool over;
    LT_TRY(lt_trainer_open_device(t));
    LT_TRY(find_starting_weights(w, &over));
    if (over)
        return LT_OK;
    lt_status st = lt_trainer_open_data(t);
    if (st)
        return lt_plugins_advise(st, t->model.weights);
    LT_TRY(lt_trainer_open_model(t));
    LT_TRY(lt_trainer_start_profile(t));
    return t->line.args.evaluation.eval ? evaluate(w) : train(w);
}

static lt_status work_and_finish_profile(training *w)
{
    lt_status st = open_and_work(w);
    lt_loader_free(&w->t.input.loader); /* its threads write spans, too */
    lt_run_close(&w->t.output.run);
    lt_status profiled = lt_profile_finish(w->t.ranks.rank ? NULL : stderr);
    return st ? st : profiled;
}

static int print_error(const lt_trainer *t, int code)
{
    fprintf(stderr, "%s: %s\n", t->line.choice.family->program, lt_error_message());
    return code;
}

/* Prints the error, unless another rank does, and releases ranks that wait for this one. */
static int print_error_and_abort_ranks(lt_trainer *t, lt_status st)
{
    if (t->ranks.count > 1 && !t->ranks.same_failure)
        fprintf(stderr, "%s: rank %d: %s\n", t->line.choice.family->program, t->ranks.rank,
                lt_error_message());
    else if (!t->ranks.rank)
        (void)print_error(t, EXIT_ERROR);
    lt_ranks_abort_others(&t->ranks, st);
    return lt_trainer_exit_status(t, st);
}

/* Reports whether the work is saved, also without a progress bar. */
static void tell_stop(const lt_trainer *t)
{
    const long long step = t->state.now.step;
    if (t->line.args.evaluation.watch)
        fprintf(stderr, "stopped; the same command continues\n");
    else if (t->line.args.output.output)
        fprintf(stderr, "saved step %lld; --resume auto continues\n", step);
    else
        fprintf(stderr, "stopped at step %lld; without --output nothing is saved\n", step);
}

int lt_trainer_train_by(int argc, char *const *argv, const lt_model_family *family,
                        const lt_trainer_program *program, const lt_train_hooks *hooks)
{
    static training w; /* 17 kB, one at a time: a stack may have 64 kB */
    lt_trainer *t = &w.t;
    w = (training){0};
    int code = EXIT_USAGE;
    lt_status st = lt_trainer_parse(t, family, program, NULL, argc, argv);
    if (!st && lt_options_requested(t->line.options) != LT_OPTIONS_RUN) {
        st = lt_options_print_request(t->line.options, stdout);
        code = st ? print_error(t, EXIT_ERROR) : EXIT_DONE;
    } else if (st || lt_trainer_check(t) || open_hooks(&w, hooks)) {
        (void)print_error(t, code);
    } else {
        st = work_and_finish_profile(&w);
        if (!st && t->ranks.stop && !t->ranks.rank)
            tell_stop(t);
        code = st ? print_error_and_abort_ranks(t, st) : lt_trainer_exit_status(t, st);
    }
    close_training(&w);
    return code;
}
