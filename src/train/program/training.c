/* A training or an evaluation from its start to its end: opens its parts in the order of their dependencies, works,
 * and closes them. No other file knows all of them. */

#include "parallel.h"

#include "lather/detail/shard_params.h"
#include "lather/ext/dataset.h"
#include "lather/ext/fail.h"
#include "lather/muon.h"
#include "lather/profile.h"

#include <stdio.h>

/* Parts are zeroed until they are opened; close_training() frees them. */
typedef struct training {
    lt_trainer t;
    trainer_shared shared;
    trainer_watching watching;
    lt_schedule schedule;
    lt_train_step *step;
    int64_t total_steps;
    lt_hooks hooks;
    lt_train_stats stats;
    early_stop early_stop, plateau;
} training;

/* --- Checkpoints --- */

/* Returns the parts of checkpoints. entry: memory for the metadata of the weights; must outlive the parts. */
static lt_checkpoint_contents list_checkpoint_contents(const training *w,
                                                       lt_metadata entry[LT_TRAINER_METADATA])
{
    const lt_trainer *t = &w->t;
    const lt_trainer_program *p = t->line.program;
    lt_checkpoint_contents parts = {.params = &t->model.params,
                                    .optim = t->optim,
                                    .comm = t->ranks.comm,
                                    .local = w->shared.local,
                                    .dp = w->shared.dp,
                                    .metadata = entry,
                                    .metadata_count =
                                        p->metadata ? p->metadata(t->line.context, t, entry) : 0};
    lt_train_state_add_averages(&t->state, &parts);
    return parts;
}

/* Loads state, model, optimizer and averages from the checkpoint of --resume, if there is one. */
static lt_status load_checkpoint(training *w)
{
    lt_trainer *t = &w->t;
    lt_train_state *s = &t->state;
    const lt_trainer_program *p = t->line.program;
    const arguments *a = &t->line.args;
    const int64_t passes = a->training.grad_accum, batches = t->input.batches_per_epoch;
    lt_metadata entry[LT_TRAINER_METADATA];
    const lt_checkpoint_contents parts = list_checkpoint_contents(w, entry);
    if (!s->folder[0])
        return LT_OK;
    if (p->check_metadata) /* before the data check: other classes mean other data, too */
        LT_TRY(p->check_metadata(t->line.context, t, t->model.weights));
    LT_TRY(lt_train_state_check_data(s, a->output.data_changed == DATA_CHANGED_CONTINUE));
    LT_TRY(lt_train_state_check(s, &t->ranks, passes, batches));
    return lt_train_state_load(s, &parts, &t->ranks, passes, batches);
}

/* --- Opening --- */

static lt_status open_optimizer(lt_trainer *t, trainer_shared *s)
{
    arguments *a = &t->line.args;
    const lt_params *params = &t->model.params;
    LT_TRY(lt_trainer_make_sharded_optim(s, &t->optim, a, &t->ranks, &t->model));
    LT_TRY(lt_trainer_scale_by_base(t));
    if (a->averaging.kind) {
        LT_TRY(lt_optim_start_averaging(t->optim, params, &a->averaging));
        LT_TRY(lt_train_state_open_iterates(&t->state, params, t->optim));
    }
    if (a->training.ema_decay > 0)
        LT_TRY(lt_train_state_open_ema(&t->state, params, a->training.ema_decay));
    return t->state.ema ? lt_optim_shard_ema(t->optim, t->state.ema) : LT_OK;
}

/* Starts the state of a new run, with the network's facts for state.json. */
static void begin_state(lt_trainer *t)
{
    const arguments *a = &t->line.args;
    const family_choice *c = &t->line.choice;
    lt_train_state *s = &t->state;
    lt_train_state_begin(s, t->line.program->task, t->optim, &t->ranks, a->batch_size,
                         a->training.grad_accum);
    if (a->training.gradient_noise)
        lt_train_enable_noise_scale(s);
    lt_train_state_set_fingerprint(s, t->input.train);
    s->now.seed = (uint64_t)a->training.seed;
    s->save_top = (int)a->output.save_top;
    s->now.threads = lt_device_threads(t->model.device);
    s->now.reproducible = lt_device_is_reproducible(t->model.device);
    s->now.facts = 3;
    s->now.fact[0] = (lt_checkpoint_fact){.key = "arch"};
    snprintf(s->now.fact[0].text, LT_CHECKPOINT_NAME, "%s", lt_family_arch(c));
    s->now.fact[1] =
        (lt_checkpoint_fact){.key = "classes", .is_number = true, .number = c->spec.classes};
    s->now.fact[2] = (lt_checkpoint_fact){.key = "network", .later = true};
    lt_family_format_facts(c, s->now.fact[2].text, LT_CHECKPOINT_NAME);
    if (a->groups.mup)
        s->now.fact[s->now.facts++] = (lt_checkpoint_fact){
            .key = "mup", .later = true, .is_number = true, .number = a->groups.mup};
    if (*t->input.val_split) {
        lt_checkpoint_fact *f = &s->now.fact[s->now.facts++];
        *f = (lt_checkpoint_fact){.key = "val_split", .later = true};
        snprintf(f->text, sizeof f->text, "%s", t->input.val_split);
    }
}

/* Lists the hooks of the run: the caller's, --early-stop, --sched plateau, registered ones. */
static lt_status open_hooks(training *w, const lt_train_hooks *own)
{
    const command_line *line = &w->t.line;
    LT_TRY(lt_hooks_add(&w->hooks, own));
    LT_TRY(lt_early_stop_open(&w->early_stop, &line->args.evaluation, line->program->task));
    if (w->early_stop.hooks.before_run)
        LT_TRY(lt_hooks_add(&w->hooks, &w->early_stop.hooks));
    LT_TRY(lt_plateau_open(&w->plateau, &line->args.schedule, &line->args.evaluation,
                           line->program->task, &w->schedule));
    if (w->plateau.hooks.before_run)
        LT_TRY(lt_hooks_add(&w->hooks, &w->plateau.hooks));
    return lt_hooks_add_registered(&w->hooks);
}

static lt_status open_optim_stats(training *w)
{
    const lt_trainer *t = &w->t;
    const output_options *o = &t->line.args.output;
    const lt_optim_stats_config c = {.optim = t->optim,
                                     .params = &t->model.params,
                                     .every = o->optim_stats,
                                     .pattern = (const char *const *)o->optim_stats_params.item,
                                     .patterns = o->optim_stats_params.count,
                                     .rank = t->ranks.rank};
    const lt_status st = lt_optim_stats_new(&w->stats.optim, &c);
    w->t.ranks.same_failure = st == LT_E_ARG;
    return st;
}

static lt_status open_step(training *w)
{
    lt_trainer *t = &w->t;
    const arguments *a = &t->line.args;
    const trainer_shared *s = &w->shared;
    const lt_train_step_config c = {
        .device = t->model.device,
        .tape = t->model.tape,
        .params = &t->model.params,
        .optim = t->optim,
        .task = lt_trainer_task(t),
        .ema = s->local ? NULL : t->state.ema, /* otherwise it follows outer steps */
        .comm = t->ranks.comm,
        .dp = s->dp,
        .mesh = t->ranks.mesh,
        .group = s->local ? lt_local_steps_comm(s->local) : NULL,
        .share = s->share,
        .pass = lt_trainer_pass(t, true),
        .grad_accum = a->training.grad_accum,
        .stragglers = s->stragglers,
        .gradient_noise = a->training.gradient_noise,
        .graph = a->machine.graph && !t->ranks.mesh && !a->ranks.shard_params,
        .next = lt_train_input_next,
        .next_context = &t->input,
        .stop = lt_signals_seen};
    return lt_train_step_new(&w->step, &c);
}

static lt_status open_training(training *w)
{
    lt_trainer *t = &w->t;
    const arguments *a = &t->line.args;
    lt_train_input *in = &t->input;
    lt_train_state *s = &t->state;
    LT_TRY(lt_trainer_count_batches(&in->batches_per_epoch, &t->line, lt_dataset_count(in->train),
                                    t->ranks.data_count));
    LT_TRY(lt_params_freeze(&t->model.params, &a->groups.freeze, a->groups.freeze_bn));
    LT_TRY(lt_trainer_open_parallel(&w->shared, &t->line, &t->ranks, &t->model));
    LT_TRY(open_optimizer(t, &w->shared));
    begin_state(t);
    /* Opens the run folder last: a run that cannot resume leaves it unchanged. */
    LT_TRY(load_checkpoint(w));
    LT_TRY(lt_schedule_open(&w->schedule, &w->total_steps, &a->schedule, &a->training, a->optim.lr,
                            in->batches_per_epoch / a->training.grad_accum, s->offset));
    lt_optim_release_params(t->optim); /* all ranks have loaded all weights */
    LT_TRY(lt_train_state_init_loss_scale(s, t->optim, a->training.amp == AMP_F16));
    LT_TRY(lt_trainer_settle_recompute(t));
    LT_TRY(lt_trainer_check_memory(t));
    const lt_loader_config loader = lt_trainer_train_loader_config(t);
    LT_TRY(lt_loader_new(&in->loader, in->train, t->model.device, &loader));
    LT_TRY(lt_trainer_open_device_share(&w->shared, t));
    LT_TRY(open_step(w));
    LT_TRY(open_optim_stats(w));
    if (!s->now.run[0])
        LT_TRY(lt_run_new_id(s->now.run));
    LT_TRY(lt_trainer_open_run(t, w->total_steps));
    return lt_train_stats_open_file(&w->stats, t->output.run, s->now.run);
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
    lt_train_stats_close(&w->stats);
    lt_train_step_free(&w->step);
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
    const output_options *o = &a->output;
    const lt_trainer_program *p = t->line.program;
    lt_metadata entry[LT_TRAINER_METADATA];
    lt_update_bn statistics;
    const bool updates_bn = lt_trainer_update_bn_config(t, w->shared.dp, &statistics);
    const lt_train_loop loop = {
        .step = w->step,
        .input = &t->input,
        .state = &t->state,
        .hooks = &w->hooks,
        .ranks = &t->ranks,
        .run = t->output.run,
        .dp = w->shared.dp,
        .local = w->shared.local,
        .stragglers = w->shared.stragglers,
        .stats = &w->stats,
        .schedule = &w->schedule,
        .evaluator = lt_trainer_evaluator(t, w->shared.share),
        .evaluated = a->loader.overfit_batches ? t->input.train : t->input.val,
        .update_bn = updates_bn ? &statistics : NULL,
        .parts = list_checkpoint_contents(w, entry),
        .output = o->output,
        .total_steps = w->total_steps,
        .grad_accum = a->training.grad_accum,
        .eval_every = a->evaluation.eval_every,
        .checkpoint_every = o->checkpoint_every,
        .hash_every = o->hash_every,
        .keep = (int)o->keep,
        .clip_norm = a->training.clip_grad,
        .target = p->target ? p->target(t->line.context) : 0,
        .skip_nan = a->training.on_nan == ON_NAN_SKIP,
        .is_scaled = a->training.amp == AMP_F16,
        .ahead = (lt_run_ahead)a->machine.run_ahead,
        .step_values = fill_step_metrics,
        .begin_epoch = begin_epoch,
        .context = w,
    };
    return lt_train_loop_run(&loop);
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
    LT_TRY(lt_trainer_summary(t, w->total_steps));
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
    if (st) {
        (void)print_error(t, code);
    } else if (lt_options_requested(t->line.options) != LT_OPTIONS_RUN) {
        st = lt_options_print_request(t->line.options, stdout);
        code = st ? print_error(t, EXIT_ERROR) : EXIT_DONE;
    } else if (lt_trainer_check(t) || open_hooks(&w, hooks)) {
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
