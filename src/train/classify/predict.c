/* train_resnet50 predict --weights FILE IMAGE...: prints the most probable classes of each image. */

#include "base/alloc.h"
#include "train/classify/classifier.h"
#include "train/classify/images.h"
#include "train/classify/predictions.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct predict_arguments {
    const char *weights, *device, *class_names, *files_from;
    image_options images; /* the subset that predict has */
    int64_t threads, top;
    bool json, csv;
} predict_arguments;

#define AT(field) .offset = offsetof(predict_arguments, field)

/* clang-format off */
static const lt_option table[] = {
{"Options", .name = "weights", .type = LT_OPTION_STRING, AT(weights), .meta = "FILE", .help = "safetensors file written by training"},
{"Options", .name = "class-names", .type = LT_OPTION_STRING, AT(class_names), .meta = "FILE", .help = "file of class names, one per line, in the order of the classes; default: the weights' names"},
{"Options", .name = "files-from", .type = LT_OPTION_STRING, AT(files_from), .meta = "FILE", .help = "file of further images, a path per line; -: standard input"},
{"Options", .name = "top", .alias = 'k', .type = LT_OPTION_INT, AT(top), .value = "5", .min = 1, .max = 1000000, .help = "classes to print per image, the most probable first"},
{"Options", .name = "json", .type = LT_OPTION_BOOL, AT(json), .help = "print a JSON object per line (JSON Lines): path, and predictions with index, class, probability; or error"},
{"Options", .name = "csv", .type = LT_OPTION_BOOL, AT(csv), .help = "print lines of path,rank,index,class,probability, quoted as in RFC 4180"},
{"Options", .name = "image-size", .type = LT_OPTION_INT, AT(images.image_size), .value = "0", .min = 0, .max = LT_TRANSFORM_MOST_SIZE, .help = "side of the input in pixels; 0: the weights', otherwise 224, or with a small stem 28 for one channel and 32 for three"},
{"Options", .name = "interpolation", .type = LT_OPTION_CHOICE, AT(images.interpolation), .choices = "auto|bilinear|bicubic", .help = "resizing filter, antialiased; auto: the weights', otherwise bilinear"},
{"Options", .name = "mean", .type = LT_OPTION_STRING, AT(images.mean), .meta = "R,G,B", .help = "per-channel mean subtracted from pixels in [0,1]; default: the weights', otherwise ImageNet's, for one channel Fashion-MNIST's"},
{"Options", .name = "std", .type = LT_OPTION_STRING, AT(images.std), .meta = "R,G,B", .help = "per-channel standard deviation that pixels are divided by; default: as for --mean"},
{"Options", .name = "exif", .type = LT_OPTION_CHOICE, AT(images.exif), .choices = "off|on", .help = "rotate JPEG images by their EXIF orientation"},
{"Options", .name = "crop-pct", .type = LT_OPTION_DOUBLE, AT(images.crop_pct), .value = "0", .min = 0, .max = 1, .help = "fraction of the short side that the center crop keeps; 0: the weights', otherwise 224 of 256 (0.875), or all up to 64 pixels"},
{"Options", .name = "max-image-pixels", .type = LT_OPTION_INT, AT(images.max_image_pixels), .value = "100000000", .min = 1, .max = 1e15, .help = "maximum width times height of an image; larger ones count as corrupt"},
{"Options", .name = "max-image-seconds", .type = LT_OPTION_DOUBLE, AT(images.max_image_seconds), .value = "10", .min = 0.001, .max = 1e15, .help = "maximum core seconds to decode an image, except WebP and AVIF; slower ones count as corrupt"},
{"Options", .name = "device", .type = LT_OPTION_STRING, AT(device), .value = "cpu", .help = "cpu, ref, cuda[:N]"},
{"Options", .name = "threads", .type = LT_OPTION_INT, AT(threads), .value = "0", .min = 0, .max = 4096, .help = "compute threads; 0: as many as allowed"},
};
/* clang-format on */

static const lt_program program = {
    .summary = "classify images",
    .usage = "--weights FILE [OPTION]... IMAGE|FOLDER|-...",
    .description =
        "Prints the most probable classes of images. A folder means the images in it and below, "
        "ordered by path; - is an image on standard input. An image that cannot be read is reported on "
        "standard error, and the others are processed. In names and paths, bytes other than printable UTF-8 "
        "are shown as \\xHH, a backslash as two.\n\n"
        "Exit status: 0 done, 1 an error or a corrupt image, 2 a wrong command line.",
    .option = table,
    .count = sizeof table / sizeof *table,
    .rest = true,
};

/* Replaces the weights' class names by the lines of a file, one for each class. */
static lt_status read_names(classifier *s, const char *path)
{
    FILE *file;
    char *text = NULL;
    size_t capacity = 0;
    LT_TRY(lt_file_open(&file, path));
    ssize_t bytes = getdelim(&text, &capacity, 0, file);
    fclose(file);
    while (bytes > 0 && text[bytes - 1] == '\n')
        text[--bytes] = 0;
    int count = bytes > 0;
    for (const char *at = text; count && (at = strchr(at, '\n')); at++)
        count++;
    lt_status st = count == lt_trainer_spec(s->t)->classes
                       ? lt_metadata_set_class_names(&s->known, text)
                       : lt_fail(LT_E_FORMAT, "%s: %d names, the weights have %d classes", path,
                                 count, lt_trainer_spec(s->t)->classes);
    free(text);
    return st;
}

static lt_status predict_image(classifier *s, predictions *out, const char *name, lt_tensor *images)
{
    lt_tape_reset(lt_trainer_tape(s->t), lt_trainer_pass(s->t, false));
    lt_tensor *y = lt_cast(lt_trainer_tape(s->t), lt_classifier_forward(s, images), LT_F64);
    LT_TRY(lt_tape_status(lt_trainer_tape(s->t)));
    double *logits;
    LT_TRY(LT_ALLOC(&logits, lt_tensor_count(y)));
    lt_status st = lt_tensor_read(y, logits, lt_tensor_bytes(y));
    if (!st)
        st = lt_predictions_print(out, name, logits);
    lt_free(logits);
    return st;
}

/* Returns an error message without the escaped path in its first part. */
static const char *strip_path(const char *why, const char *path)
{
    enum { SHOWN_PATH = 4096 };
    char shown[SHOWN_PATH];
    size_t bytes = strlen(lt_text_line(shown, sizeof shown, path));
    return !strncmp(why, shown, bytes) && !strncmp(why + bytes, ": ", 2) ? why + bytes + 2 : why;
}

static bool is_stdin_image(const image_list *list, const char *path)
{
    return *list->input && !strcmp(path, list->input);
}

static lt_status predict_all(classifier *s, const image_list *list, predictions *out,
                             int64_t *broken)
{
    lt_loader_config c = {.transform = lt_classifier_eval_transform(s),
                          .batch = 1,
                          .max_bad = -1,
                          .keep_broken = true};
    lt_batch batch;
    lt_status st;
    LT_TRY(lt_loader_new(&s->t->input.loader, s->t->input.val, lt_trainer_device(s->t), &c));
    while (!(st = lt_loader_next(s->t->input.loader, &batch))) {
        const char *path = lt_dataset_sample_name(s->t->input.val, batch.row->sample);
        const char *why = batch.row->why, *name = is_stdin_image(list, path) ? "-" : path;
        *broken += why != NULL;
        LT_TRY(why ? lt_predictions_print_failure(out, name, strip_path(why, path))
                   : predict_image(s, out, name, batch.inputs));
    }
    return st == LT_END ? LT_OK : st;
}

static lt_status open_and_predict(classifier *s, const predict_arguments *a, const image_list *list,
                                  int64_t *broken)
{
    predictions out = {.program = s->t->line.choice.family->program,
                       .form = a->json  ? OUTPUT_JSON
                               : a->csv ? OUTPUT_CSV
                                        : OUTPUT_TEXT,
                       .top = a->top < INT_MAX ? (int)a->top : INT_MAX,
                       .names = &s->known};
    s->args.images = a->images;
    LT_TRY(lt_classifier_open_weights(s, a->weights, a->device, (int)a->threads));
    if (a->class_names)
        LT_TRY(read_names(s, a->class_names));
    LT_TRY(lt_dataset_files(&s->t->input.val, (const char *const *)list->path, (int64_t)list->count,
                            lt_trainer_spec(s->t)->channels));
    lt_trainer_end_checks(s->t);
    lt_status st = lt_predictions_open(&out, lt_trainer_spec(s->t)->classes);
    if (!st)
        st = predict_all(s, list, &out, broken);
    lt_predictions_close(&out);
    return st;
}

static lt_status predict(classifier *s, const predict_arguments *a, int64_t *broken)
{
    image_list list = {0};
    if (!a->weights)
        return lt_fail(LT_E_ARG, "--weights: missing; a safetensors file");
    if (a->json && a->csv)
        return lt_fail(LT_E_ARG, "--json and --csv contradict each other");
    lt_status st = lt_image_list_read(&list, lt_trainer_options(s->t), a->files_from);
    if (!st)
        st = open_and_predict(s, a, &list, broken);
    lt_image_list_clear(&list);
    return st;
}

static lt_status run(lt_trainer *t, const void *values, int *code)
{
    int64_t broken = 0;
    LT_TRY(predict(lt_classifier_of(t), values, &broken));
    *code = broken ? EXIT_ERROR : EXIT_DONE;
    return LT_OK;
}

const lt_trainer_command lt_predict_command = {
    .name = "predict", .program = &program, .bytes = sizeof(predict_arguments), .run = run};
