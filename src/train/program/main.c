/* lt_trainer_main(): the program that trains, and its commands. */

#include "trainer.h"

#include "lather/ext/dataset.h"
#include "lather/ext/fail.h"
#include "lather/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int exit_status(const lt_trainer *t, lt_status st)
{
    if (!st)
        return t->ranks.stop ? EXIT_INTERRUPTED : EXIT_DONE;
    return st == LT_E_ARG && !t->at_work ? EXIT_USAGE : EXIT_ERROR;
}

enum { NAME_TEXT = 256 };

static void describe(lt_trainer *t)
{
    if (t->program->describe)
        t->program->describe(t->context, t);
}

/* Notes evaluations on part of the data or on the training data, flags without effect, and runs that save nothing. */
static void note_limits(lt_trainer *t)
{
    const arguments *a = &t->args;
    const bool evaluates = a->evaluation.eval_every >= 0;
    const int64_t all = lt_dataset_count(t->input.val),
                  batch = a->eval_batch_size ? a->eval_batch_size : a->batch_size,
                  some = a->loader.limit_eval_batches * batch * t->ranks.data_count;
    if (evaluates && some && some < all && !a->loader.overfit_batches)
        lt_run_note(t->run,
                    "--limit-eval-batches %lld: evaluations on %lld of %lld %s, evenly spread",
                    (long long)a->loader.limit_eval_batches, (long long)some, (long long)all,
                    t->input.unit);
    if (evaluates && t->input.val->unsplit && !t->ranks.rank)
        lt_run_warn(t->run,
                    "%s has no split: evaluations use the training %s and do not measure how "
                    "well others are classified; put held-out data into DATA/val",
                    a->data, t->input.unit);
    lt_trainer_note_alone(t);
    if (!a->output.output)
        lt_run_note(t->run, "no --output: this run will not be saved");
}

static lt_status train(lt_trainer *t)
{
    LT_TRY(lt_trainer_open_training(t));
    LT_TRY(lt_trainer_summary(t));
    note_limits(t);
    if (t->args.weights)
        describe(t);
    lt_signals_install();
    t->at_work = true;
    LT_TRY(lt_trainer_train(t));
    if (t->args.evaluation.eval_every >= 0 && t->input.val->unsplit && !t->ranks.rank)
        lt_run_warn(t->run, "the evaluations above used the training %s: %s has no split",
                    t->input.unit, t->args.data);
    return LT_OK;
}

static lt_status evaluate_only(lt_trainer *t)
{
    const lt_trainer_program *p = t->program;
    lt_evaluation e = {0};
    bool is_done = false;
    describe(t);
    if (p->begin_evaluation)
        LT_TRY(p->begin_evaluation(t->context, t, &is_done));
    if (is_done)
        return LT_OK;
    if (t->args.evaluation.watch) {
        LT_TRY(lt_trainer_open_share(t));
        t->at_work = true;
        return lt_trainer_watch(t);
    }
    lt_run_config c = {
        .progress = (lt_progress)t->args.output.progress, .append = true, .rank = t->ranks.rank};
    LT_TRY(lt_run_open(&t->run, t->args.output.output, &c));
    LT_TRY(lt_trainer_open_share(t));
    t->at_work = true;
    LT_TRY(lt_trainer_evaluate(t, &e));
    lt_run_close(&t->run);
    if (!t->ranks.rank)
        p->report(t->context, &e);
    return p->end_evaluation ? p->end_evaluation(t->context, t, &e) : LT_OK;
}

/* Starts a trace of each rank: "trace.json", "trace.rank1.json", ... */
static lt_status start_profile(lt_trainer *t)
{
    char path[1024];
    const char *name = t->args.output.profile;
    if (!name)
        return LT_OK;
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    int stem = dot ? (int)(dot - name) : (int)strlen(name);
    if (!t->ranks.rank)
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%.*s.rank%d%s", stem, name, t->ranks.rank, name + stem);
    LT_TRY(lt_folder_keep_file(&t->state, path));
    return lt_profile_start(path, 0);
}

/* Finds the weights to start from: the checkpoint's, otherwise --weights. *over: no work is left. */
static lt_status open_folder(lt_trainer *t, bool *over)
{
    *over = false;
    if (t->args.evaluation.watch)
        return lt_trainer_open_watch(t, over);
    if (!t->args.evaluation.eval)
        LT_TRY(lt_folder_open(&t->args.output, &t->ranks, &t->state, &t->lock));
    if (t->state.folder[0])
        snprintf(t->weights, sizeof t->weights, "%s/model.safetensors", t->state.folder);
    else if (t->args.weights)
        snprintf(t->weights, sizeof t->weights, "%s", t->args.weights);
    return LT_OK;
}

static lt_status open_and_work(lt_trainer *t)
{
    bool over;
    LT_TRY(lt_trainer_open_device(t));
    LT_TRY(open_folder(t, &over));
    if (over)
        return LT_OK;
    LT_TRY(lt_trainer_open_data(t));
    LT_TRY(lt_trainer_open_model(t));
    LT_TRY(start_profile(t));
    return t->args.evaluation.eval ? evaluate_only(t) : train(t);
}

static lt_status run(lt_trainer *t)
{
    lt_status st = open_and_work(t);
    lt_loader_free(&t->input.loader); /* its threads write spans, too */
    lt_run_close(&t->run);
    lt_status profiled = lt_profile_finish(t->ranks.rank ? NULL : stderr);
    return st ? st : profiled;
}

static int fail(const lt_trainer *t, int code)
{
    fprintf(stderr, "%s: %s\n", t->choice.family->program, lt_error_message());
    return code;
}

/* Prints the error, unless another rank does, and releases ranks that wait for this one. */
static int fail_on_rank(lt_trainer *t, lt_status st)
{
    if (t->ranks.count > 1 && !t->ranks.same_failure)
        fprintf(stderr, "%s: rank %d: %s\n", t->choice.family->program, t->ranks.rank,
                lt_error_message());
    else if (!t->ranks.rank)
        (void)fail(t, EXIT_ERROR);
    lt_ranks_leave(&t->ranks, st);
    return exit_status(t, st);
}

/* Reports whether the work is saved, also without a progress bar. */
static void tell_stop(const lt_trainer *t)
{
    if (t->args.evaluation.watch)
        fprintf(stderr, "stopped; the same command continues\n");
    else if (t->args.output.output)
        fprintf(stderr, "saved step %lld; --resume auto continues\n", (long long)t->state.now.step);
    else
        fprintf(stderr, "stopped at step %lld; without --output nothing is saved\n",
                (long long)t->state.now.step);
}

lt_status lt_trainer_start(lt_trainer *t, const lt_model_family *family,
                           const lt_trainer_program *program)
{
    t->program = program;
    t->ranks = LT_RANKS_ALONE;
    t->choice.family = family;
    t->choice.program = program;
    t->context = calloc(1, program->context_bytes + 1);
    return t->context ? lt_family_open(&t->choice, family)
                      : lt_fail(LT_E_NOMEM, "no memory for the options");
}

lt_status lt_trainer_open_options(lt_trainer *t, const arguments_more *more)
{
    const arguments_of of = {t->choice.family, t->program, t->choice.config, t->context};
    return lt_arguments_open(&t->options, &t->args, &of, more);
}

lt_status lt_trainer_parse(lt_trainer *t, int argc, char *const *argv)
{
    LT_TRY(lt_recipe_parse(t->options, t->choice.family->recipes, argc, argv));
    LT_TRY(lt_optim_flags_resolve(&t->args.optim, t->options));
    return lt_averaging_resolve(&t->args.averaging, t->options);
}

lt_status lt_trainer_check(const lt_trainer *t)
{
    LT_TRY(lt_arguments_check(&t->args, t->program, t->options));
    return t->program->check ? t->program->check(t->context, t) : LT_OK;
}

int lt_trainer_train_by(int argc, char *const *argv, const lt_model_family *family,
                        const lt_trainer_program *program, const lt_trainer_hook *hook)
{
    static lt_trainer t; /* 17 kB, once per process: a stack may have 64 kB */
    t.hook = hook;
    int code = EXIT_USAGE;
    lt_status st = lt_trainer_start(&t, family, program);
    if (!st)
        st = lt_trainer_open_options(&t, NULL);
    if (!st)
        st = lt_trainer_parse(&t, argc, argv);
    if (st) {
        (void)fail(&t, code);
    } else if (lt_options_asked(t.options) != LT_OPTIONS_RUN) {
        st = lt_options_answer(t.options, stdout);
        code = st ? fail(&t, EXIT_ERROR) : EXIT_DONE;
    } else if (lt_trainer_check(&t)) {
        (void)fail(&t, code);
    } else {
        st = run(&t);
        if (!st && t.ranks.stop && !t.ranks.rank)
            tell_stop(&t);
        code = st ? fail_on_rank(&t, st) : exit_status(&t, st);
    }
    lt_trainer_close(&t);
    return code;
}

/* --- The other commands --- */

static lt_status run_command(lt_trainer *t, const lt_trainer_command *c, void *values, int argc,
                             char *const *argv, int *code)
{
    if (lt_options_parse(t->options, argc, argv))
        return LT_E_ARG; /* includes unreadable config files */
    if (lt_options_asked(t->options) != LT_OPTIONS_RUN)
        return lt_options_answer(t->options, stdout);
    return c->run(t, values, code);
}

/* Makes a command's options. One that reads weights also has the family's, which a file may leave open. */
static lt_status open_options(lt_trainer *t, const lt_program *program, void *values)
{
    const lt_model_family *f = t->choice.family;
    const lt_option_table table[] = {{program->option, program->count, values},
                                     {f->option, f->options, t->choice.config}};
    bool reads = false;
    for (size_t i = 0; i < program->count; i++)
        reads = reads || !strcmp(program->option[i].name, "weights");
    LT_TRY(lt_options_compose(&t->options, program, table, reads ? 2 : 1));
    t->choice.options = reads ? t->options : NULL;
    return LT_OK;
}

static int command_other(int argc, char *const *argv, const lt_model_family *family,
                         const lt_trainer_program *of, const lt_trainer_command *c)
{
    lt_trainer t = {0};
    char name[NAME_TEXT];
    int code = EXIT_DONE;
    void *values = calloc(1, c->bytes + 1);
    lt_program program = *c->program;
    program.lists_all = true;
    program.name = name;
    snprintf(name, sizeof name, "%s %s", family->program, c->name);
    lt_status st = values ? lt_trainer_start(&t, family, of)
                          : lt_fail(LT_E_NOMEM, "no memory for the options");
    if (!st)
        st = open_options(&t, &program, values);
    if (!st)
        st = run_command(&t, c, values, argc, argv, &code);
    if (st)
        fprintf(stderr, "%s: %s\n", name, lt_error_message());
    if (st || !code)
        code = exit_status(&t, st);
    lt_trainer_close(&t);
    free(values);
    return code;
}

/* Finds a command by its name, otherwise by an option of training; NULL: training. */
static const lt_trainer_command *find_command(int argc, char *const *argv,
                                              const lt_trainer_program *program)
{
    for (size_t i = 0; i < program->commands && argc > 1; i++)
        if (!strcmp(argv[1], program->command[i]->name))
            return program->command[i];
    for (size_t i = 0; i < program->commands; i++)
        if (program->command[i]->is_asked && program->command[i]->is_asked(argc, argv))
            return program->command[i];
    return NULL;
}

int lt_trainer_main(int argc, char **argv, const lt_model_family *family,
                    const lt_trainer_program *program)
{
    static char eval[] = "--eval";
    lt_threads_sleep_soon(argv);
    if (argc > 1 && !strcmp(argv[1], "evaluate"))
        argv[1] = eval;
    if (argc > 1 && !strcmp(argv[1], "reproduce"))
        return lt_command_reproduce(argv, family->program); /* with the default signal handlers */
    lt_signals_as_errors();
    const lt_trainer_command *c = find_command(argc, argv, program);
    const int code = !c        ? lt_trainer_train_by(argc, argv, family, program, NULL)
                     : c->main ? c->main(argc, argv, family, program)
                               : command_other(argc - 1, argv + 1, family, program, c);
    return lt_signals_flush(family->program, code);
}
