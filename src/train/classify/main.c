/* A program that trains image classifiers: lt_classifier_main(). */

#include "train/classify/classifier.h"

#include "lather/ext/fail.h"
#include "lather/profile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lt_exit_status(const classifier *s, lt_status st)
{
    if (!st)
        return s->ranks.stop ? EXIT_INTERRUPTED : EXIT_DONE;
    return st == LT_E_ARG && !s->at_work ? EXIT_USAGE : EXIT_ERROR;
}

static lt_status train(classifier *s)
{
    LT_TRY(lt_classifier_open_training(s));
    LT_TRY(lt_classifier_summary(s));
    if (s->args.weights)
        lt_classifier_describe_input(s);
    lt_signals_install();
    s->at_work = true;
    return lt_classifier_train(s);
}

/* Numbers without names may lack the last ones. */
static bool fits_weights(const classifier *s)
{
    int classes = lt_dataset_classes(s->input.val);
    bool named = lt_dataset_class_name(s->input.val, 0) != NULL;
    return classes == s->choice.spec.classes || (!named && classes < s->choice.spec.classes);
}

static lt_status save_details(classifier *s, const lt_evaluation *e)
{
    char path[PATH_MAX];
    if (s->args.eval_json)
        return lt_classifier_save_details(s, e, s->args.eval_json);
    snprintf(path, sizeof path, "%s/eval.json", s->args.output.output);
    return lt_classifier_save_details(s, e, path);
}

static lt_status evaluate_only(classifier *s)
{
    lt_evaluation e = {0};
    lt_classifier_describe_input(s);
    if (s->args.save_logits)
        LT_TRY(lt_classifier_save_logits(s, s->args.save_logits));
    if (!fits_weights(s)) {
        if (s->args.save_logits)
            return LT_OK; /* no accuracy was asked for that could be told */
        return lt_fail(LT_E_SHAPE, "--eval: the weights have %d classes, the data has %d",
                       s->choice.spec.classes, lt_dataset_classes(s->input.val));
    }
    lt_run_config c = {
        .progress = (lt_progress)s->args.output.progress, .append = true, .rank = s->ranks.rank};
    LT_TRY(lt_run_open(&s->run, s->args.output.output, &c));
    if (s->args.eval_json || s->args.output.output)
        LT_TRY(lt_classifier_open_details(s));
    s->at_work = true;
    LT_TRY(lt_classifier_evaluate(s, &e));
    lt_run_close(&s->run);
    if (!s->ranks.rank)
        printf("top-1 %.3f %%, top-5 %.3f %%, loss %.5f over %lld images\n",
               lt_classification_top1(&e.sums), lt_classification_top5(&e.sums), e.sums.loss,
               (long long)e.samples);
    return s->details && !e.stopped ? save_details(s, &e) : LT_OK;
}

/* A trace of each rank: "trace.json", "trace.rank1.json", ... */
static lt_status start_profile(classifier *s)
{
    char path[1024];
    const char *name = s->args.output.profile;
    if (!name)
        return LT_OK;
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    int stem = dot ? (int)(dot - name) : (int)strlen(name);
    if (!s->ranks.rank)
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%.*s.rank%d%s", stem, name, s->ranks.rank, name + stem);
    LT_TRY(lt_folder_keep_file(&s->state, path));
    return lt_profile_start(path, 0);
}

/* The weights to start from: the checkpoint's, else --weights. */
static lt_status open_folder(classifier *s)
{
    if (!s->args.evaluation.eval)
        LT_TRY(lt_folder_open(&s->args.output, &s->ranks, &s->state, &s->lock));
    if (s->state.folder[0])
        snprintf(s->weights, sizeof s->weights, "%s/model.safetensors", s->state.folder);
    else if (s->args.weights)
        snprintf(s->weights, sizeof s->weights, "%s", s->args.weights);
    return LT_OK;
}

static lt_status open_and_work(classifier *s)
{
    LT_TRY(lt_classifier_open_device(s));
    LT_TRY(open_folder(s));
    LT_TRY(lt_classifier_open_data(s));
    LT_TRY(lt_classifier_open_model(s));
    LT_TRY(start_profile(s));
    return s->args.evaluation.eval ? evaluate_only(s) : train(s);
}

static lt_status run(classifier *s)
{
    lt_status st = open_and_work(s);
    lt_loader_free(&s->input.loader); /* its threads draw spans too */
    lt_run_close(&s->run);
    lt_status profiled = lt_profile_finish(s->ranks.rank ? NULL : stderr);
    return st ? st : profiled;
}

static int fail(const classifier *s, int code)
{
    fprintf(stderr, "%s: %s\n", s->choice.family->program, lt_error_message());
    return code;
}

/* Tells why, unless another rank does, and lets no rank wait for this one. */
static int fail_on_rank(classifier *s, lt_status st)
{
    if (s->ranks.count > 1 && !s->ranks.same_failure)
        fprintf(stderr, "%s: rank %d: %s\n", s->choice.family->program, s->ranks.rank,
                lt_error_message());
    else if (!s->ranks.rank)
        (void)fail(s, EXIT_ERROR);
    lt_ranks_leave(&s->ranks, st);
    return lt_exit_status(s, st);
}

/* Behind the bar, and without one too: whether the work is safe is what one wants to know. */
static void tell_stop(const classifier *s)
{
    if (s->args.output.output)
        fprintf(stderr, "saved step %lld; --resume auto goes on\n", (long long)s->state.now.step);
    else
        fprintf(stderr, "stopped at step %lld; without --output nothing is saved\n",
                (long long)s->state.now.step);
}

static lt_status parse(classifier *s, const lt_model_family *family, int argc, char **argv)
{
    LT_TRY(lt_family_open(&s->choice, family));
    LT_TRY(lt_arguments_open(&s->options, &s->args, family, s->choice.config));
    LT_TRY(lt_recipe_parse(s->options, family->recipes, argc, argv));
    return lt_optim_flags_resolve(&s->args.optim, s->options);
}

static int command_train(int argc, char **argv, const lt_model_family *family)
{
    classifier s = {.choice.family = family};
    int code = EXIT_USAGE;
    lt_status st = parse(&s, family, argc, argv);
    if (st) {
        (void)fail(&s, code);
    } else if (lt_options_asked(s.options) != LT_OPTIONS_RUN) {
        st = lt_options_answer(s.options, stdout);
        code = st ? fail(&s, EXIT_ERROR) : EXIT_DONE;
    } else if (lt_arguments_check(&s.args, s.options)) {
        (void)fail(&s, code);
    } else {
        st = run(&s);
        if (!st && s.ranks.stop && !s.ranks.rank)
            tell_stop(&s);
        code = st ? fail_on_rank(&s, st) : lt_exit_status(&s, st);
    }
    lt_classifier_close(&s);
    return code;
}

/* --- The other commands --- */

static lt_status run_command(classifier *s, const classifier_command *c, void *values, int argc,
                             char *const *argv, int *code)
{
    if (lt_options_parse(s->options, argc, argv))
        return LT_E_ARG; /* a config file that cannot be read, too */
    if (lt_options_asked(s->options) != LT_OPTIONS_RUN)
        return lt_options_answer(s->options, stdout);
    return c->run(s, values, code);
}

static int command_other(int argc, char *const *argv, const lt_model_family *family,
                         const classifier_command *c)
{
    classifier s = {0};
    char name[NAME_TEXT];
    int code = EXIT_DONE;
    void *values = calloc(1, c->bytes);
    lt_program program = *c->program;
    program.name = name;
    snprintf(name, sizeof name, "%s %s", family->program, c->name);
    lt_status st = values ? lt_family_open(&s.choice, family)
                          : lt_fail(LT_E_NOMEM, "no memory for the options");
    if (!st)
        st = lt_options_new(&s.options, &program, values);
    if (!st)
        st = run_command(&s, c, values, argc, argv, &code);
    if (st)
        fprintf(stderr, "%s: %s\n", name, lt_error_message());
    if (st || !code)
        code = lt_exit_status(&s, st);
    lt_classifier_close(&s);
    free(values);
    return code;
}

int lt_classifier_main(int argc, char **argv, const lt_model_family *family)
{
    static const classifier_command *const commands[] = {&lt_predict_command, &lt_export_command};
    const char *first = argc > 1 ? argv[1] : "";
    if (!strcmp(first, "reproduce"))
        return lt_command_reproduce(argv, family->program); /* with signals as they were */
    lt_signals_as_errors();
    int code = -1;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(first, commands[i]->name))
            code = command_other(argc - 1, argv + 1, family, commands[i]);
    if (code < 0)
        code = command_train(argc, argv, family);
    return lt_signals_flush(family->program, code);
}
