/* The options of a classifier's program: the groups that stand beside their readers, in the order of --help, and
 * what they must agree on. */

#include "train/classify/arguments.h"

#include "train/trainer/option_rows.h"

#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"
#include "lather/loader.h"
#include "lather/schedule.h"

#include <stdio.h>
#include <string.h>

#define OF arguments
/* clang-format off */
static const lt_option own_rows[] = {
{"Model", INT("num-classes", num_classes, 0, 1000000), .value = "0", .help = "classes; 0: as many as the data (or the weights) have"},
{"Model", TEXT("weights", weights), .meta = "FILE", .help = "safetensors file to start from or to evaluate"},
{"Model", BOOL("reset-head", reset_head), .help = "with --weights: a new last layer"},
{"Training", NUM("label-smoothing", label_smoothing, 0, 1), .value = "0.1", .after = "seed", .help = "share of the target spread over all classes"},
{"Evaluation", NUM("target-top1", target_top1, 0, 100), .value = "0", .after = "eval-batch-size", .help = "stop when an evaluation reaches this percentage; 0: never"},
{"Evaluation", TEXT("save-logits", save_logits), .meta = "FILE", .once = true, .after = "target-top1", .help = "with --eval: write logits and labels as safetensors"},
{"Evaluation", TEXT("eval-json", eval_json), .meta = "FILE", .once = true, .after = "save-logits", .help = "with --eval: write the accuracy of each class, which classes are taken for which, and sample images as JSON; with --output also without this: eval.json there, which report shows"},
};
/* clang-format on */

static const char usage[] = "--data DIR [OPTION]...  |  predict --weights FILE IMAGE...  |  "
                            "export --weights FILE --output MODEL.onnx  |  reproduce PLAN";
static const char description[] =
    " Numbers that differ from optimizer to optimizer are shown as OPTIMIZER=NUMBER. Beside it: "
    "lather-report RUN draws curves, lather-inspect lists weights and runs, lather-pack packs images, "
    "lather-bench measures, lather-reproduce is the command reproduce.\n\n"
    "Exit status: 0 done, 1 an error, 2 a wrong command line, 3 interrupted after a checkpoint.\n\n"
    "SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR1 end a run after its step, with a checkpoint; a second "
    "SIGINT or SIGTERM ends it at once.";

static void fill_text(program_text *t, const lt_model_family *f)
{
    t->program = (lt_program){
        .name = f->program,
        .summary =
            f->summary ? f->summary : "train, evaluate and use a model that classifies images",
        .usage = usage,
        .description = t->description,
        .selector = "optim",
    };
    snprintf(t->description, sizeof t->description, "%s%s",
             f->about ? f->about : "Trains a model on images.", description);
    snprintf(t->recipe_help, sizeof t->recipe_help,
             "settings of a known run%s%s; all other flags and --config override them",
             f->recipe_names ? ": " : "", f->recipe_names ? f->recipe_names : "");
    t->recipe = (lt_option){"Training", TEXT("recipe", recipe), .meta = "NAME|FILE",
                            .help = t->recipe_help};
}

lt_status lt_arguments_open(lt_options **out, arguments *a, const lt_model_family *family,
                            void *config)
{
    fill_text(&a->text, family);
    LT_TRY(lt_optim_flags_open(&a->optim));
    const lt_option_table tables[] = {
        lt_image_options(&a->images),
        lt_loader_options(&a->loader),
        {family->option, family->options, config},
        {own_rows, sizeof own_rows / sizeof *own_rows, a},
        {&a->text.recipe, 1, a},
        lt_training_options(&a->training),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_COMMON),
        lt_group_options(&a->groups),
        lt_schedule_options(&a->schedule),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_OWN),
        lt_evaluation_options(&a->evaluation),
        lt_output_options(&a->output),
        lt_ranks_options_dist(&a->ranks),
        lt_ranks_options(&a->ranks),
        lt_machine_options(&a->machine),
    };
    lt_status st =
        lt_options_compose(out, &a->text.program, tables, sizeof tables / sizeof *tables);
    if (st)
        lt_optim_flags_close(&a->optim);
    return st;
}

void lt_arguments_close(lt_options **options, arguments *a)
{
    lt_options_free(options);
    lt_optim_flags_close(&a->optim);
}

/* Options that make no sense alone. */
static lt_status check_needs(const arguments *a)
{
    const struct {
        bool given, there;
        const char *flag, *needs;
    } rules[] = {
        {a->evaluation.eval, a->weights != NULL, "eval", "weights"},
        {a->save_logits != NULL, a->evaluation.eval, "save-logits", "eval"},
        {a->eval_json != NULL, a->evaluation.eval, "eval-json", "eval"},
        {a->schedule.sched == LT_SCHEDULE_MULTISTEP, a->schedule.milestone.count > 0,
         "sched multistep", "milestone"},
        {a->groups.freeze_bn, a->groups.freeze.count > 0, "freeze-bn", "freeze"},
        {a->reset_head, a->weights != NULL, "reset-head", "weights"},
        {a->output.resume != NULL, a->output.output != NULL, "resume", "output"},
        {a->output.checkpoint_every > 0, a->output.output != NULL, "checkpoint-every", "output"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].given && !rules[i].there)
            return lt_fail(LT_E_ARG, "--%s: needs --%s", rules[i].flag, rules[i].needs);
    return LT_OK;
}

static lt_status check_texts(const arguments *a)
{
    if (a->output.output && strlen(a->output.output) > OUTPUT_BYTES)
        return lt_fail(LT_E_ARG, "--output: a path of %zu bytes, at most %d are taken",
                       strlen(a->output.output), OUTPUT_BYTES);
    lt_size_schedule sizes;
    if (a->images.image_size_schedule
        && lt_size_schedule_parse(&sizes, a->images.image_size_schedule))
        return lt_fail(LT_E_ARG, "--image-size-schedule: %s", lt_error_message());
    return LT_OK;
}

/* What only a divided state reads. */
static lt_status check_divided(const arguments *a, const lt_options *options)
{
    const struct {
        const char *flag;
        bool given; /* a config file has all flags: another value than the default's */
    } rows[] = {{"comm-dtype", a->ranks.comm_dtype != COMM_F32},
                {"communicate-params", a->ranks.communicate_params},
                {"num-trainers-per-group", a->ranks.num_trainers_per_group != 0},
                {"balance", a->ranks.balance != 0}};
    if (a->optim.family->divided || a->ranks.shard_optimizer)
        return LT_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--%s: needs --shard-optimizer with --optim %s", rows[i].flag,
                           lt_options_choice(options, "optim"));
    return LT_OK;
}

static lt_status check_modes(const arguments *a, const lt_options *options)
{
    if (!a->images.data)
        return lt_fail(LT_E_ARG, "--data: missing; a folder of images, fashion-mnist or "
                                 "synthetic");
    LT_TRY(check_needs(a));
    LT_TRY(check_texts(a));
    LT_TRY(check_divided(a, options));
    if (a->output.resume && strcmp(a->output.resume, "auto") != 0
        && lt_options_is_typed(options, "weights"))
        return lt_fail(LT_E_ARG, "--resume PATH and --weights contradict each other: a checkpoint "
                                 "has weights of its own");
    if (a->output.overwrite && a->output.resume && !strcmp(a->output.resume, "auto"))
        return lt_fail(LT_E_ARG, "--overwrite and --resume auto contradict each other");
    if (a->evaluation.eval && a->loader.cache_ram)
        return lt_fail(LT_E_ARG, "--cache-ram: an evaluation reads each image once");
    if (a->loader.overfit_batches && lt_options_is_set(options, "limit-train-batches"))
        return lt_fail(LT_E_ARG, "--overfit-batches and --limit-train-batches contradict each "
                                 "other");
    if (a->training.amp == AMP_F16 && !strncmp(a->machine.device, "cpu", 3))
        return lt_fail(LT_E_UNSUPPORTED, "--amp f16: needs --device cuda; the CPU has bf16");
    return LT_OK;
}

lt_status lt_arguments_check(const arguments *a, const lt_options *options)
{
    LT_TRY(check_modes(a, options));
    if (a->training.epochs > 0 && a->schedule.warmup_epochs > a->training.epochs)
        return lt_fail(LT_E_ARG, "--warmup-epochs %g: longer than --epochs %g",
                       a->schedule.warmup_epochs, a->training.epochs);
    return LT_OK;
}
