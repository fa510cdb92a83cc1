/* The options of a training program: parser, --help, config file and man page come from them. */

#include "train/trainer/arguments.h"

#include "train/trainer/state.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"
#include "lather/loader.h"
#include "lather/schedule.h"

#include <stdio.h>
#include <string.h>

#define AT(field)            .offset = offsetof(arguments, field)
#define BOOL(n, field)       .name = (n), .type = LT_OPTION_BOOL, AT(field)
#define INT(n, field, a, b)  .name = (n), .type = LT_OPTION_INT, AT(field), .min = (a), .max = (b)
#define NUM(n, field, a, b)  .name = (n), .type = LT_OPTION_DOUBLE, AT(field), .min = (a), .max = (b)
#define TEXT(n, field)       .name = (n), .type = LT_OPTION_STRING, AT(field)
#define PICK(n, field, list) .name = (n), .type = LT_OPTION_CHOICE, AT(field), .choices = (list)
#define LIST(n, field)       .name = (n), .type = LT_OPTION_LIST, AT(field)

static const double below_one = 0.99999999999, many = 1e15;

/* clang-format off */
static const lt_option data_rows[] = {
{"Data", TEXT("data", data), .meta = "DIR", .help = "image folder, tar files (WebDataset) or a pack, in train/ and val/ if it has them; a .tar file, a folder with MNIST's idx files, fashion-mnist, or synthetic[:COUNT:SIZE:CLASSES]"},
{"Data", TEXT("val-labels", val_labels), .meta = "FILE", .help = "what the pictures of a flat val/ show: FILE LABEL in each line, or LABEL for the files in the order of their names; a class name, a number from 0 on, or the number of ILSVRC2012_validation_ground_truth.txt with map_clsloc.txt beside it"},
{"Data", PICK("augment", augment, "auto|none|imagenet|small"), .help = "random crops and flips; auto: as --weights of this size were trained, else small up to 64 pixels, imagenet above"},
{"Data", NUM("flip", flip, 0, 1), .value = "0.5", .help = "probability of a horizontal flip"},
{"Data", PICK("auto-augment", auto_augment, "none|ta_wide"), .help = "a random operation on each picture: TrivialAugmentWide"},
{"Data", NUM("color-jitter", color_jitter, 0, 10), .value = "0", .help = "largest change of brightness, contrast and saturation, as a factor"},
{"Data", NUM("color-jitter-hue", color_jitter_hue, 0, 0.5), .value = "0", .help = "largest change of hue, in turns"},
{"Data", NUM("random-erase", random_erase, 0, 1), .value = "0", .help = "probability of erasing a random rectangle"},
{"Data", NUM("mixup-alpha", mixup_alpha, 0, 100), .value = "0", .also = "mixup", .help = "mix pictures and targets; parameter of the Beta distribution; 0: no"},
{"Data", NUM("cutmix-alpha", cutmix_alpha, 0, 100), .value = "0", .also = "cutmix", .help = "put a part of another picture into each; with --mixup-alpha: either"},
{"Data", PICK("exif", exif, "off|on"), .help = "turn JPEG as their EXIF orientation says; off: the pixels as stored, as torchvision's ImageFolder reads them"},
{"Data", TEXT("mean", mean), .meta = "R,G,B", .help = "what is taken from pixels, white being 1; missing: what the weights say, else ImageNet's, of one channel Fashion-MNIST's"},
{"Data", TEXT("std", std), .meta = "R,G,B", .help = "what pixels are divided by then; missing: as --mean"},
{"Data", INT("image-size", image_size, 0, 4096), .value = "0", .help = "side of the input in pixels; 0: what --weights were trained at, else that of the pictures up to 64 pixels, else 224"},
{"Data", TEXT("image-size-schedule", image_size_schedule), .meta = "EPOCH:SIZE,...", .help = "progressive resizing: side of the input in training from these epochs on, the first from 0; --image-size, or else the last, is for evaluation"},
{"Data", INT("repeated-aug", repeated_aug, 1, 1000), .value = "1", .help = "times that an epoch visits a picture, each augmented anew; it visits so many fewer"},
{"Data", PICK("interpolation", interpolation, "auto|bilinear|bicubic"), .help = "filter of resizing, antialiased, in training and evaluation; auto: what --weights say, else bilinear"},
{"Data", NUM("crop-pct", crop_pct, 0, 1), .value = "0", .help = "evaluation: share of the short side that the centre crop keeps; 0: what --weights say, else 224 of 256 (0.875), or all up to 64 pixels"},
{"Data", PICK("decode", decode, "exact|fast"), .help = "fast: large crops of JPEG to train on are decoded at 1/2, 1/4 or 1/8 of their size"},
{"Data", INT("workers", workers, 0, 1024), .alias = 'j', .value = "0", .help = "threads that read and decode; 0: one per core"},
{"Data", BOOL("shuffle", shuffle), .value = "true", .help = "visit the pictures in a new random order each epoch"},
{"Data", INT("read-ahead", read_ahead, 0, 1000000), .value = "64", .help = "pictures in front of the decoders that the system is asked to read"},
{"Data", TEXT("cache-ram", cache_ram), .meta = "SIZE", .help = "keep decoded training pictures in memory, up to this many bytes on each rank: 500M, 16G"},
{"Data", TEXT("cache-dir", cache_dir), .meta = "DIR", .help = "keep copies of picture files, tar files and packs in a folder on a disk of this machine; its processes may share it"},
{"Data", INT("max-bad-images", max_bad_images, -1, many), .value = "100", .help = "broken pictures to pass over before giving up; -1: any number"},
{"Data", INT("max-image-pixels", max_image_pixels, 1, many), .value = "100000000", .help = "width times height of a picture to decode; larger ones are broken"},
{"Data", NUM("max-image-seconds", max_image_seconds, 0.001, many), .value = "10", .help = "of one core to decode a picture, but for WebP and AVIF; one that takes longer is broken"},
{"Data", INT("limit-train-batches", limit_train_batches, 0, many), .value = "0", .help = "batches per epoch at most; 0: all"},
{"Data", INT("limit-eval-batches", limit_eval_batches, 0, many), .value = "0", .help = "batches per evaluation at most; 0: all"},
{"Data", INT("overfit-batches", overfit_batches, 0, many), .value = "0", .help = "train on the first batches only, unshuffled, without augmentation; evaluate on them too"},
};

static const lt_option model_rows[] = {
{"Model", INT("num-classes", num_classes, 0, 1000000), .value = "0", .help = "classes; 0: as many as the data (or the weights) have"},
{"Model", TEXT("weights", weights), .meta = "FILE", .help = "safetensors file to start from or to evaluate"},
{"Model", BOOL("reset-head", reset_head), .help = "with --weights: a new last layer"},
{"Model", LIST("freeze", freeze), .meta = "REGEX", .help = "do not train parameters whose name matches a POSIX extended regular expression; running statistics of batch norms go on changing without --freeze-bn"},
{"Model", BOOL("freeze-bn", freeze_bn), .help = "batch norms that --freeze matches keep their running statistics, gain and shift, and normalise with them in training"},
};

static const lt_option training_rows[] = {
{"Training", INT("batch-size", batch_size, 1, 1000000), .alias = 'b', .value = "32", .also = "bs", .help = "pictures per rank and micro-batch"},
{"Training", INT("grad-accum", grad_accum, 1, 1000000), .value = "1", .help = "micro-batches per update"},
{"Training", NUM("epochs", epochs, 0, 1e6), .value = "0", .also = "ep", .help = "passes over the data, and length of the schedule; 0: what --max-steps makes, else 90"},
{"Training", INT("max-steps", max_steps, 0, many), .value = "0", .help = "stop after this many updates; 0: at the end of the epochs"},
{"Training", INT("seed", seed, 0, 9e15), .value = "0", .help = "of initial values, order, augmentation"},
{"Training", NUM("label-smoothing", label_smoothing, 0, 1), .value = "0.1", .help = "share of the target spread over all classes"},
{"Training", NUM("clip-grad", clip_grad, 0, 1e30), .value = "0", .help = "largest global norm of the gradient; 0: no limit"},
{"Training", NUM("ema-decay", ema_decay, 0, below_one), .value = "0", .help = "keep an exponential moving average of the weights and evaluate it; 0: no"},
{"Training", PICK("amp", amp, "off|bf16|f16|tf32"), .help = "dtype of activations; off: f32; tf32: off with --tf32 on; f16 (cuda, ref): with a loss scale that is halved after an overflow and doubled after 2000 steps without"},
{"Training", PICK("recompute", recompute, "off|cheap"), .value = "cheap", .help = "cheap: make batch norm and relu outputs again in backward instead of keeping them"},
{"Training", PICK("on-nan", on_nan, "abort|skip"), .help = "what to do when a gradient is not finite (--amp f16: at a loss scale below 2^-14)"},
{"Training", BOOL("deterministic", deterministic), .help = "the same bits on the same build, CPU type and thread count"},
};

/* Behind those of lt_optim_flags. */
static const lt_option optimizer_rows[] = {
{"Optimizer", LIST("param-group", param_group), .meta = "REGEX:lr=..,weight_decay=..", .help = "other numbers for parameters whose name matches; lr is absolute, what --lr is for the others, and follows the same schedule: with --lr 0.1, ^fc:lr=1 trains the last layer ten times as fast; the last match counts"},
};

static const lt_option schedule_rows[] = {
{"Schedule", PICK("sched", sched, "constant|step|multistep|cosine|poly"), .value = "cosine", .help = "how the learning rate falls, per update"},
{"Schedule", NUM("warmup-epochs", warmup_epochs, 0, 1e6), .value = "0", .help = "linear rise at the start; fractions count updates"},
{"Schedule", NUM("warmup-lr", warmup_lr, 0, 1e6), .value = "0", .help = "where it starts"},
{"Schedule", NUM("min-lr", min_lr, 0, 1e6), .value = "0", .help = "where cosine and poly end"},
{"Schedule", NUM("step-epochs", step_epochs, 1e-6, 1e6), .value = "30", .help = "step: epochs between falls"},
{"Schedule", LIST("milestone", milestone), .meta = "EPOCH", .help = "multistep: when to fall"},
{"Schedule", NUM("gamma", gamma, 1e-12, 1), .value = "0.1", .help = "step, multistep: factor of a fall"},
{"Schedule", NUM("power", power, 1e-6, 100), .value = "2", .help = "poly: exponent"},
};

static const lt_option evaluation_rows[] = {
{"Evaluation", BOOL("eval", eval), .help = "only evaluate --weights"},
{"Evaluation", INT("eval-every", eval_every, 0, many), .value = "1", .help = "epochs between evaluations; 0: only at the end"},
{"Evaluation", INT("eval-batch-size", eval_batch_size, 0, 1000000), .value = "0", .help = "pictures per evaluation batch; 0: the batch size"},
{"Evaluation", NUM("target-top1", target_top1, 0, 100), .value = "0", .help = "stop when an evaluation reaches this percentage; 0: never"},
{"Evaluation", TEXT("save-logits", save_logits), .meta = "FILE", .once = true, .help = "with --eval: write logits and labels as safetensors"},
{"Evaluation", TEXT("eval-json", eval_json), .meta = "FILE", .once = true, .help = "with --eval: write the accuracy of each class, which classes are taken for which, and sample pictures as JSON; with --output also without this: eval.json there, which report shows"},
};

static const lt_option output_rows[] = {
{"Output", TEXT("output", output), .alias = 'o', .meta = "DIR", .help = "run folder: config, metrics, checkpoints, and at the end model.safetensors (averaged with --ema-decay)"},
{"Output", TEXT("resume", resume), .meta = "auto|PATH", .once = true, .help = "go on from a checkpoint, which has the weights, whatever --weights says; auto: the latest in --output, if there is one"},
{"Output", BOOL("overwrite", overwrite), .once = true, .help = "begin anew in a folder that holds a run, whose files are renamed to old-1/, old-2/ and so on there; without it and --resume such a folder is refused"},
{"Output", INT("checkpoint-every", checkpoint_every, 0, many), .value = "0", .help = "updates between checkpoints, besides those at the end of epochs; 0: none"},
{"Output", INT("keep", keep, 0, many), .value = "2", .help = "newest checkpoints of this run to keep, besides the best; 0: all"},
{"Output", PICK("progress", progress, "auto|bar|lines|off"), .help = "auto: a bar on a terminal, else lines"},
{"Output", INT("log-every", log_every, 1, many), .value = "50", .help = "updates between lines"},
{"Output", BOOL("verbose", verbose), .help = "show the table of Shampoo's blocks too, which is always in OUTPUT/blocks.txt"},
{"Output", BOOL("tensorboard", tensorboard), .value = "true", .help = "write TensorBoard events"},
{"Output", TEXT("profile", profile), .meta = "FILE", .once = true, .help = "write a trace for Perfetto, and print where the time went"},
};

static const lt_option ranks_rows[] = {
{"Ranks", PICK("dist-bn", dist_bn, "none|broadcast|reduce"), .value = "reduce", .help = "running statistics of batch norm before an evaluation or checkpoint: each rank's own, rank 0's, or the mean"},
{"Ranks", BOOL("sync-bn", sync_bn), .help = "batch norm over the batches of all ranks"},
{"Ranks", NUM("bucket-mib", bucket_mib, 0.001, 4096), .value = "25", .help = "gradients are sent in groups of about this many MiB"},
{"Ranks", BOOL("overlap", overlap), .value = "true", .help = "send gradients while backward goes on"},
{"Ranks", PICK("grad-comm-dtype", grad_comm_dtype, "f32|bf16|f16"), .help = "dtype of gradients on the way"},
{"Ranks", BOOL("shard-optimizer", shard_optimizer), .help = "each rank keeps and updates a part of the optimizer's state (ZeRO-1); shampoo always does"},
{"Ranks", PICK("comm-dtype", comm_dtype, "f32|bf16|f16"), .help = "dtype of gathered updates, where the state is divided"},
{"Ranks", BOOL("communicate-params", communicate_params), .help = "gather parameters instead of updates"},
{"Ranks", INT("num-trainers-per-group", num_trainers_per_group, 0, 1000000), .value = "0", .help = "ranks that share one copy of the divided state; 0: all"},
{"Ranks", PICK("balance", balance, "cost|memory|bytes"), .help = "what is spread evenly where the state is divided"},
{"Ranks", NUM("comm-timeout", comm_timeout, 0, 1e6), .value = "600", .help = "seconds after which a missing rank ends the run; 0: wait for ever"},
{"Ranks", TEXT("comm-model", comm_model), .meta = "US,GBIT", .help = "hold messages back as a link of this latency in microseconds and rate in Gbit/s would, for measuring"},
};

static const lt_option machine_rows[] = {
{"Machine", TEXT("device", device), .value = "cpu", .help = "cpu, ref (plain loops), cuda[:N]"},
{"Machine", INT("threads", threads, 0, 4096), .alias = 't', .value = "0", .help = "compute threads; 0: as many as affinity and cgroup allow"},
{"Machine", PICK("tf32", tf32, "off|on"), .help = "cuda: on: products of f32 numbers round these to 10 bits of fraction, for speed"},
{"Machine", PICK("fused", fused, "auto|on|off"), .help = "cuda: batch norm's sums in the kernels of 16-bit convolutions: where that is faster, wherever possible, nowhere"},
{"Machine", BOOL("graph", graph), .value = "true", .help = "cuda: record the work of an update once and replay it"},
{"Machine", PICK("run-ahead", run_ahead, "auto|off|on"), .help = "queue an update before the results of the one before it are read; auto: on devices with a queue, cuda"},
};
/* clang-format on */

static const char usage[] = "--data DIR [OPTION]...  |  predict --weights FILE IMAGE...  |  "
                            "export --weights FILE --output MODEL.onnx  |  reproduce PLAN";
static const char description[] =
    " Numbers that differ from optimizer to optimizer are shown as OPTIMIZER=NUMBER. Beside it: "
    "lather-report RUN draws curves, lather-inspect lists weights and runs, lather-pack packs pictures, "
    "lather-bench measures, lather-reproduce is the command reproduce.\n\n"
    "Exit status: 0 done, 1 an error, 2 a wrong command line, 3 interrupted after a checkpoint.\n\n"
    "SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR1 end a run after its step, with a checkpoint; a second "
    "SIGINT or SIGTERM ends it at once.";

static void fill_text(program_text *t, const lt_model_family *f)
{
    t->program = (lt_program){
        .name = f->program,
        .summary =
            f->summary ? f->summary : "train, evaluate and use a model that classifies pictures",
        .usage = usage,
        .description = t->description,
        .selector = "optim",
    };
    snprintf(t->description, sizeof t->description, "%s%s",
             f->about ? f->about : "Trains a model on pictures.", description);
    snprintf(t->recipe_help, sizeof t->recipe_help,
             "settings of a known run%s%s; all other flags and --config override them",
             f->recipe_names ? ": " : "", f->recipe_names ? f->recipe_names : "");
    t->recipe = (lt_option){"Training", TEXT("recipe", recipe), .meta = "NAME|FILE",
                            .help = t->recipe_help};
}

/* --dist, with the communicators that the program registered. */
static void fill_dist(program_text *t)
{
    const char *name;
    size_t used = (size_t)snprintf(t->dists, sizeof t->dists, "auto|off|mpi");
    for (size_t i = 0; (name = lt_comm_registered(i)) && used < sizeof t->dists; i++)
        used += (size_t)snprintf(t->dists + used, sizeof t->dists - used, "|%s", name);
    t->dist =
        (lt_option){"Ranks", PICK("dist", dist, t->dists),
                    .help = "auto: one run of all processes that mpirun or srun started; off: "
                            "each process alone; mpi: ranks in any case, if only one"};
}

lt_status lt_arguments_open(lt_options **out, arguments *a, const lt_model_family *family,
                            void *config)
{
#define TABLE(rows) {rows, sizeof rows / sizeof *(rows), a}
    fill_text(&a->text, family);
    fill_dist(&a->text);
    LT_TRY(lt_optim_flags_open(&a->optim));
    const lt_option_table tables[] = {
        TABLE(data_rows),
        {family->option, family->options, config},
        TABLE(model_rows),
        {&a->text.recipe, 1, a},
        TABLE(training_rows),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_COMMON),
        TABLE(optimizer_rows),
        TABLE(schedule_rows),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_OWN),
        TABLE(evaluation_rows),
        TABLE(output_rows),
        {&a->text.dist, 1, a},
        TABLE(ranks_rows),
        TABLE(machine_rows),
    };
#undef TABLE
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
        {a->eval, a->weights != NULL, "eval", "weights"},
        {a->save_logits != NULL, a->eval, "save-logits", "eval"},
        {a->eval_json != NULL, a->eval, "eval-json", "eval"},
        {a->sched == LT_SCHEDULE_MULTISTEP, a->milestone.count > 0, "sched multistep", "milestone"},
        {a->freeze_bn, a->freeze.count > 0, "freeze-bn", "freeze"},
        {a->reset_head, a->weights != NULL, "reset-head", "weights"},
        {a->resume != NULL, a->output != NULL, "resume", "output"},
        {a->checkpoint_every > 0, a->output != NULL, "checkpoint-every", "output"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].given && !rules[i].there)
            return lt_fail(LT_E_ARG, "--%s: needs --%s", rules[i].flag, rules[i].needs);
    return LT_OK;
}

static lt_status check_texts(const arguments *a)
{
    if (a->output && strlen(a->output) > OUTPUT_BYTES)
        return lt_fail(LT_E_ARG, "--output: a path of %zu bytes, at most %d are taken",
                       strlen(a->output), OUTPUT_BYTES);
    lt_size_schedule sizes;
    if (a->image_size_schedule && lt_size_schedule_parse(&sizes, a->image_size_schedule))
        return lt_fail(LT_E_ARG, "--image-size-schedule: %s", lt_error_message());
    return LT_OK;
}

/* What only a divided state reads. */
static lt_status check_divided(const arguments *a, const lt_options *options)
{
    const struct {
        const char *flag;
        bool given; /* a config file has all flags: another value than the default's */
    } rows[] = {{"comm-dtype", a->comm_dtype != COMM_F32},
                {"communicate-params", a->communicate_params},
                {"num-trainers-per-group", a->num_trainers_per_group != 0},
                {"balance", a->balance != 0}};
    if (a->optim.family->divided || a->shard_optimizer)
        return LT_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--%s: needs --shard-optimizer with --optim %s", rows[i].flag,
                           lt_options_choice(options, "optim"));
    return LT_OK;
}

static lt_status check_modes(const arguments *a, const lt_options *options)
{
    if (!a->data)
        return lt_fail(LT_E_ARG, "--data: missing; a folder of pictures, fashion-mnist or "
                                 "synthetic");
    LT_TRY(check_needs(a));
    LT_TRY(check_texts(a));
    LT_TRY(check_divided(a, options));
    if (a->resume && strcmp(a->resume, "auto") != 0 && lt_options_is_typed(options, "weights"))
        return lt_fail(LT_E_ARG, "--resume PATH and --weights contradict each other: a checkpoint "
                                 "has weights of its own");
    if (a->overwrite && a->resume && !strcmp(a->resume, "auto"))
        return lt_fail(LT_E_ARG, "--overwrite and --resume auto contradict each other");
    if (a->eval && a->cache_ram)
        return lt_fail(LT_E_ARG, "--cache-ram: an evaluation reads each picture once");
    if (a->overfit_batches && lt_options_is_set(options, "limit-train-batches"))
        return lt_fail(LT_E_ARG, "--overfit-batches and --limit-train-batches contradict each "
                                 "other");
    if (a->amp == AMP_F16 && !strncmp(a->device, "cpu", 3))
        return lt_fail(LT_E_UNSUPPORTED, "--amp f16: needs --device cuda; the CPU has bf16");
    return LT_OK;
}

lt_status lt_arguments_check(const arguments *a, const lt_options *options)
{
    LT_TRY(check_modes(a, options));
    if (a->epochs > 0 && a->warmup_epochs > a->epochs)
        return lt_fail(LT_E_ARG, "--warmup-epochs %g: longer than --epochs %g", a->warmup_epochs,
                       a->epochs);
    return LT_OK;
}
