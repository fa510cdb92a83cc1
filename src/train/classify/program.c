/* lt_classifier_main(): the program for image classification, a table for the trainer. */

#include "train/classify/classifier.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIVE = 5 }; /* k of top-5; with up to this many classes it is always 100 % */

#define OF classifier_options
/* clang-format off */
static const lt_option own_rows[] = {
{"Model", INT("num-classes", num_classes, 0, 1000000), .value = "0", .common = true, .help = "number of classes; 0: as in the data (or the weights)"},
{"Training", NUM("label-smoothing", label_smoothing, 0, 1), .value = "0.1", .also = "smoothing", .after = "seed", .common = true, .help = "fraction of the target distributed over all classes"},
{"Training", TEXT("class-weights", class_weights), .meta = "balanced|NAME=WEIGHT,...", .after = "label-smoothing", .help = "factors of the training loss by class; balanced: inverse to the number of images of each; not named: 1"},
{"Training", PICK("sampler", sampler, "random|weighted"), .after = "class-weights", .help = "order of training images; weighted: drawn with replacement, all classes equally often, as PyTorch's WeightedRandomSampler with weights inverse to the images of a class"},
{"Evaluation", PICK("tta", tta, "none|hflip|shift"), .after = "eval-batch-size", .help = "test-time augmentation: hflip: mean of the logits of an image and its mirror image; shift: half of the mean is over both shifted by a pixel, up and left or down and right, with reflected edges"},
{"Evaluation", NUM("target-top1", target_top1, 0, 100), .value = "0", .after = "eval-batch-size", .help = "top-1 percentage of an evaluation at which training stops; 0: never"},
{"Evaluation", TEXT("save-logits", save_logits), .meta = "FILE", .once = true, .after = "target-top1", .applies = "--eval --watch", .help = "safetensors file to write logits and labels to"},
{"Evaluation", TEXT("eval-json", eval_json), .meta = "FILE", .once = true, .after = "save-logits", .applies = "--eval --watch", .help = "JSON file of class accuracies, confusions and sample images; with --output also written to eval.json there, which report shows"},
};
/* clang-format on */

static void get_option_tables(void *context, lt_option_table *data, lt_option_table *own)
{
    classifier_options *o = &((classifier *)context)->args;
    *data = lt_image_option_table(&o->images);
    *own = (lt_option_table){own_rows, sizeof own_rows / sizeof *own_rows, o};
}

static lt_status check_class_weights(const classifier_options *o)
{
    const char *mix = o->images.mixup_alpha > 0    ? "mixup"
                      : o->images.cutmix_alpha > 0 ? "cutmix"
                                                   : NULL;
    return !o->class_weights || !mix
               ? LT_OK
               : lt_fail(
                   LT_E_ARG,
                   "--class-weights and --%s-alpha contradict each other: mixed images have no "
                   "single class",
                   mix);
}

static lt_status check_options(const void *context, const lt_trainer *t)
{
    const classifier_options *o = &((const classifier *)context)->args;
    const bool eval = lt_trainer_evaluates(t);
    lt_size_schedule sizes;
    lt_rand_augment rand;
    bool trivial;
    val_split split;
    LT_TRY(lt_val_split_parse(&o->images, &split));
    LT_TRY(lt_parse_auto_augment(&o->images, &trivial, &rand));
    LT_TRY(check_class_weights(o));
    LT_TRY(lt_check_target("target-top1", o->target_top1, &t->line.args.evaluation));
    if (o->images.image_size_schedule
        && lt_size_schedule_parse(&sizes, o->images.image_size_schedule))
        return lt_fail(LT_E_ARG, "--image-size-schedule: %s", lt_error_message());
    if (lt_options_is_set(lt_trainer_options(t), "watch") && (o->save_logits || o->eval_json))
        return lt_fail(LT_E_ARG, "--%s: needs a single evaluation; --watch makes several",
                       o->save_logits ? "save-logits" : "eval-json");
    if (eval && o->images.cache_ram)
        return lt_fail(LT_E_ARG, "--cache-ram: an evaluation reads each image once");
    return LT_OK;
}

/* --- Data and model --- */

/* Chooses the input size: small data sets such as CIFAR keep theirs, photographs get ImageNet's. */
static lt_status choose_input(classifier *s)
{
    int side = 0;
    LT_TRY(lt_dataset_short_side(s->t->input.val, &side));
    return lt_classifier_choose_input(s, side > 0 && side <= SMALL_SIDE ? side : IMAGENET_SIDE);
}

/* Checks that the data's images have as many channels as the weights expect. */
static lt_status check_channels(const classifier *s, int expected)
{
    const int found = lt_dataset_channels(s->t->input.val);
    return found == expected
               ? LT_OK
               : lt_fail(LT_E_SHAPE,
                         "%s: the weights expect %d channels, but the images of %s have %d",
                         lt_trainer_weights(s->t), expected, s->t->line.args.data, found);
}

/* Opens the data in the trainer's input; train and val point there. */
static lt_status open_data(void *context, lt_trainer *t, lt_dataset **train, lt_dataset **val)
{
    classifier *s = lt_classifier_of(t);
    (void)context;
    (void)train;
    (void)val;
    if (s->args.save_logits && lt_trainer_ranks(t) > 1)
        return lt_fail(LT_E_UNSUPPORTED, "--save-logits: needs a single rank, got %d",
                       lt_trainer_ranks(t));
    LT_TRY(lt_classifier_open_sources(s));
    LT_TRY(choose_input(s));
    const int channels = (int)strtol(s->known.text[META_CHANNELS], NULL, 10);
    if (channels > 0) /* before the weights' mean, which has a value for each */
        LT_TRY(check_channels(s, channels));
    LT_TRY(lt_classifier_open_metadata(s));
    for (int c = 0; c < 3; c++) /* erased pixels become 0 after normalization */
        s->transform.erase_fill[c] = (uint8_t)(s->pixels.mean[c] + 0.5F);
    t->input.has_ram_cache = s->args.images.cache_ram;
    return LT_OK;
}

static lt_status check_ranks_agree(void *context, lt_trainer *t)
{
    const classifier *s = context;
    LT_TRY(lt_trainer_same_number(t, "the side of an image", s->transform.size));
    return lt_trainer_same_number(t, "the channels of an image", lt_dataset_channels(t->input.val));
}

static lt_status choose_classes(const classifier *s, int *classes)
{
    const lt_train_input *in = &s->t->input;
    int data = lt_dataset_classes(in->train ? in->train : in->val);
    *classes = s->args.num_classes ? (int)s->args.num_classes : data;
    return data <= *classes
               ? LT_OK
               : lt_fail(LT_E_ARG, "--num-classes %d: the data has %d", *classes, data);
}

/* Adapts the input to a network found in weights, and checks its channels. */
static lt_status adapt_input_to_weights(classifier *s, const lt_model_spec *found, bool with_size)
{
    if (s->origin[META_IMAGE_SIZE] == FROM_USUAL && found->size && with_size)
        LT_TRY(lt_classifier_choose_input(s, found->size));
    return check_channels(s, found->channels);
}

static void store_metadata_number(classifier *s, metadata_key key, int value)
{
    snprintf(s->own.text[key], META_BYTES, "%d", value);
}

static lt_status choose_model_spec(void *context, lt_trainer *t, const lt_model_spec *found,
                                   bool of_weights, lt_model_spec *out)
{
    classifier *s = context;
    out->channels = lt_dataset_channels(t->input.val);
    out->classes = found ? found->classes : 1;
    if (found)
        LT_TRY(adapt_input_to_weights(s, found, of_weights));
    if (!lt_trainer_evaluates(t))
        LT_TRY(choose_classes(s, &out->classes));
    else if (found && s->args.num_classes && s->args.num_classes != found->classes)
        return lt_fail(LT_E_ARG, "--num-classes %lld: %s has %d", (long long)s->args.num_classes,
                       lt_trainer_weights(t), found->classes);
    out->size = s->transform.size;
    store_metadata_number(s, META_CHANNELS, out->channels);
    store_metadata_number(s, META_CLASSES, out->classes);
    LT_TRY(lt_classifier_open_tta(s));
    return lt_classifier_open_class_weights(s, out->classes);
}

static size_t metadata_of(void *context, const lt_trainer *t, lt_metadata out[LT_TRAINER_METADATA])
{
    _Static_assert(META_ENTRIES <= (int)LT_TRAINER_METADATA, "LT_TRAINER_METADATA is too small");
    (void)t;
    return lt_classifier_metadata(context, out);
}

static lt_status check_metadata(const void *context, const lt_trainer *t, const char *path)
{
    (void)t;
    return lt_classifier_check_metadata(context, path);
}

/* --- A run --- */

enum { READ_AHEAD = 64 }; /* images: enough for a disk that answers in 10 ms */

static void configure_loader(const void *context, const lt_trainer *t, bool train,
                             lt_loader_config *out)
{
    const classifier *s = context;
    const image_options *o = &s->args.images;
    const bool overfit = t->line.args.loader.overfit_batches;
    out->max_bad = o->max_bad_images;
    out->read_ahead = READ_AHEAD;
    if (!train) {
        out->transform = lt_classifier_eval_transform(s);
        return;
    }
    out->transform = s->transform;
    out->sizes = s->sizes;
    out->repeats = overfit ? 1 : (int)o->repeated_aug;
    out->weighted = s->args.sampler;
    if (!overfit)
        out->mix = (lt_mix){.mixup_alpha = o->mixup_alpha, .cutmix_alpha = o->cutmix_alpha};
    out->cache_bytes = lt_classifier_cache_bytes(s);
}

static void fill_sample_size_and_text(const void *context, const lt_trainer *t,
                                      lt_trainer_sample *out)
{
    const classifier *s = context;
    const double side = lt_classifier_largest_side(s);
    out->size = s->transform.size;
    out->largest = lt_classifier_largest_side(s);
    out->bytes = lt_trainer_spec(t)->channels * side * side;
    snprintf(out->text, sizeof out->text, "image of %d x %d", out->size, out->size);
}

static void *task_context(void *context, lt_trainer *t)
{
    classifier *s = context;
    s->classify = (classification){.model = lt_trainer_model(t),
                                   .pixels = s->pixels,
                                   .label_smoothing = s->args.label_smoothing,
                                   .class_weight = s->class_weight,
                                   .mirror = s->mirror,
                                   .shift = {s->shift[0], s->shift[1]},
                                   .collect = s->details ? lt_classifier_add_details : NULL,
                                   .collector = s->details};
    return &s->classify;
}

/* Lists the family's options that were left open, with their chosen values: " --stem small". */
static void format_resolved_options(const lt_trainer *t, char *text, size_t size)
{
    const lt_model_family *family = t->line.choice.family;
    char value[LT_FACT_BYTES];
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < family->options && used < size; i++) {
        const char *name = family->option[i].name,
                   *fact = lt_model_fact_text(lt_trainer_facts(t), name);
        if (*fact
            && !strcmp(lt_options_text(lt_trainer_options(t), name, value, sizeof value), "auto"))
            used += (size_t)snprintf(text + used, size - used, " --%s %s", name, fact);
    }
}

/* Notes the choices of --stem auto and --augment auto, as small images get another network and training. */
static void log_auto_choices(const void *context, lt_trainer *t)
{
    const classifier *s = context;
    char resolved[NAME_TEXT] = "";
    static const char *const augment[] = {[LT_AUGMENT_NONE] = "none",
                                          [LT_AUGMENT_IMAGENET] = "imagenet",
                                          [LT_AUGMENT_SMALL] = "small"};
    if (lt_trainer_spec(t)->classes <= FIVE) /* top-5 is always 100 % */
        for (size_t i = 0; i < t->output.labels.count; i++)
            if (!strcmp(t->output.labels.label[i].name, "val_top5"))
                t->output.labels.label[i].label = NULL;
    const bool crops =
        s->args.images.augment == AUGMENT_AUTO && !t->line.args.loader.overfit_batches;
    if (!t->line.args.weights)
        format_resolved_options(t, resolved, sizeof resolved);
    lt_classifier_note_split(s);
    if (*resolved || crops)
        lt_run_note(t->output.run, "chosen by the size of the input:%s%s%s%s", resolved,
                    *resolved && crops ? "," : "", crops ? " --augment " : "",
                    crops ? augment[s->transform.augment] : "");
}

static void log_input(const void *context, lt_trainer *t)
{
    (void)t;
    lt_classifier_log_input(context);
}

static double top1_target(const void *context)
{
    return ((const classifier *)context)->args.target_top1;
}

static int add_image_size_metric(const void *context, const lt_trainer *t, lt_metric *out)
{
    const classifier *s = context;
    const int64_t epoch = t->state.now.epoch;
    *out = (lt_metric){"image_size",
                       s->sizes.count ? lt_classifier_train_side(s, epoch) : (double)NAN};
    return 1;
}

static void log_image_size_change(const void *context, lt_trainer *t)
{
    const classifier *s = context;
    const int64_t epoch = t->state.now.epoch;
    const int side = lt_classifier_train_side(s, epoch);
    if (s->sizes.count
        && (!epoch || t->state.now.batch || side != lt_classifier_train_side(s, epoch - 1)))
        lt_run_note(t->output.run, "epoch %lld: images of %d x %d", (long long)epoch + 1, side,
                    side);
}

/* --- An evaluation --- */

/* Returns true if the data fit the weights' outputs. Without class names, the last classes may be missing from the
 * data. */
static bool fits_weights(const lt_trainer *t)
{
    const classifier *s = lt_trainer_context(t);
    const int classes = lt_dataset_classes(t->input.val), outputs = lt_trainer_spec(t)->classes;
    /* With --num-classes above the data's, the first outputs have the data's names. */
    const bool by_number =
        !lt_dataset_class_name(t->input.val, 0) || lt_metadata_class_count(&s->known) == classes;
    return !s->other_classes && (classes == outputs || (by_number && classes < outputs));
}

static lt_status begin_evaluation(void *context, lt_trainer *t, bool *is_done)
{
    classifier *s = context;
    const classifier_options *o = &s->args;
    if (o->save_logits)
        LT_TRY(lt_classifier_save_logits(s, o->save_logits));
    if (!fits_weights(t)) {
        *is_done = o->save_logits; /* no accuracy was requested */
        return *is_done
                   ? LT_OK
                   : lt_fail(LT_E_SHAPE, "--eval: the weights have %d classes, but the data has %d",
                             lt_trainer_spec(t)->classes, lt_dataset_classes(t->input.val));
    }
    return o->eval_json || t->line.args.output.output ? lt_classifier_open_details(s) : LT_OK;
}

static lt_status save_evaluation_details(void *context, lt_trainer *t, const lt_evaluation *e)
{
    classifier *s = context;
    const char *output = t->line.args.output.output;
    char path[PATH_MAX];
    if (!s->details || e->stopped)
        return LT_OK;
    if (output)
        snprintf(path, sizeof path, "%s/eval.json", output);
    return lt_classifier_save_details(s, e, s->args.eval_json, output ? path : NULL);
}

static void print_evaluation(const void *context, const lt_evaluation *e)
{
    const classifier *s = context;
    printf("top-1 %.3f %%, ", lt_classification_top1(&e->sums));
    if (lt_trainer_spec(s->t)->classes > FIVE)
        printf("top-5 %.3f %%, ", lt_classification_top5(&e->sums));
    printf("loss %.5f over %lld ", e->sums.loss, (long long)e->samples);
    if (e->samples < e->total)
        printf("of %lld ", (long long)e->total);
    printf("images\n");
}

static void close_classifier(void *context)
{
    classifier *s = context;
    lt_classifier_close_details(s);
    lt_tensor_free(&s->class_weight);
    lt_tensor_free(&s->mirror);
    lt_tensor_free(&s->shift[0]);
    lt_tensor_free(&s->shift[1]);
    lt_metadata_clear(&s->known);
    lt_metadata_clear(&s->own);
}

static const char *const local[] = {"cache-ram", "labels", "val-labels", NULL};
static const lt_trainer_command *const commands[] = {&lt_predict_command, &lt_export_command,
                                                     &lt_serve_data_command, &lt_plan_command};

const lt_trainer_program lt_classifier_program = {
    .summary = "train, evaluate and use a model that classifies images",
    .about = "Trains a model on images.",
    .packer = "lather-pack packs images",
    .usage = "--data DIR [OPTION]...  |  predict --weights FILE IMAGE...  |  reproduce PLAN",
    .data_meta = "DIR",
    .data_help =
        "image folder, tar files (WebDataset) or a pack, with train/ and val/ if there are any; a .tar file, a "
        "folder of MNIST idx files, fashion-mnist, or synthetic[:COUNT:SIZE:CLASSES]",
    .data_missing = "give a folder of images, fashion-mnist or synthetic",
    .local = local,
    .channels_key = "channels",
    .size_key = "image_size",
    .classes_key = "classes",
    .task = &lt_classification_task,
    .context_bytes = sizeof(classifier),
    .command = commands,
    .commands = sizeof commands / sizeof(lt_trainer_command *),
    .options = get_option_tables,
    .check = check_options,
    .open_data = open_data,
    .agree = check_ranks_agree,
    .spec = choose_model_spec,
    .metadata = metadata_of,
    .check_metadata = check_metadata,
    .loader = configure_loader,
    .sample = fill_sample_size_and_text,
    .task_context = task_context,
    .note_choices = log_auto_choices,
    .describe = log_input,
    .target = top1_target,
    .step_values = add_image_size_metric,
    .begin_epoch = log_image_size_change,
    .begin_evaluation = begin_evaluation,
    .end_evaluation = save_evaluation_details,
    .report = print_evaluation,
    .close = close_classifier,
};

int lt_classifier_main(int argc, char **argv, const lt_model_family *family)
{
    lt_trainer_program program = lt_classifier_program;
    if (family->onnx)
        program.usage = "--data DIR [OPTION]...  |  predict --weights FILE IMAGE...  |  "
                        "export --weights FILE --output MODEL.onnx  |  reproduce PLAN";
    return lt_trainer_main(argc, argv, family, &program);
}
