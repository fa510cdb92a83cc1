/* train_resnet50 predict --weights FILE IMAGE...: the five likeliest classes of each picture. */

#include "session.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 5, NAME_BYTES = 128 };

typedef struct predict_arguments {
    const char *weights, *device, *class_names, *mean, *std;
    int64_t image_size, threads, max_image_pixels;
    double crop_pct, max_image_seconds;
    int interpolation, exif;
} predict_arguments;

#define AT(field) .offset = offsetof(predict_arguments, field)

/* clang-format off */
static const lt_option table[] = {
{"Options", .name = "weights", .type = LT_OPTION_STRING, AT(weights), .meta = "FILE", .help = "safetensors file, as training writes it"},
{"Options", .name = "class-names", .type = LT_OPTION_STRING, AT(class_names), .meta = "FILE", .help = "a name per line, in the order of classes; missing: the names that the weights hold"},
{"Options", .name = "image-size", .type = LT_OPTION_INT, AT(image_size), .value = "0", .min = 0, .max = 4096, .help = "side of the input in pixels; 0: what the weights say, else 224, or with a small stem 28 for one channel and 32 for three"},
{"Options", .name = "interpolation", .type = LT_OPTION_CHOICE, AT(interpolation), .choices = "auto|bilinear|bicubic", .help = "filter of resizing, antialiased; auto: what the weights say, else bilinear"},
{"Options", .name = "mean", .type = LT_OPTION_STRING, AT(mean), .meta = "R,G,B", .help = "what is taken from pixels, white being 1; missing: what the weights say, else ImageNet's, of one channel Fashion-MNIST's"},
{"Options", .name = "std", .type = LT_OPTION_STRING, AT(std), .meta = "R,G,B", .help = "what pixels are divided by then; missing: as --mean"},
{"Options", .name = "exif", .type = LT_OPTION_CHOICE, AT(exif), .choices = "off|on", .help = "turn JPEG as their EXIF orientation says"},
{"Options", .name = "crop-pct", .type = LT_OPTION_DOUBLE, AT(crop_pct), .value = "0", .min = 0, .max = 1, .help = "share of the short side that the centre crop keeps; 0: what the weights say, else 224 of 256 (0.875), or all up to 64 pixels"},
{"Options", .name = "max-image-pixels", .type = LT_OPTION_INT, AT(max_image_pixels), .value = "100000000", .min = 1, .max = 1e15, .help = "width times height of a picture to decode; larger ones are broken"},
{"Options", .name = "max-image-seconds", .type = LT_OPTION_DOUBLE, AT(max_image_seconds), .value = "10", .min = 0.001, .max = 1e15, .help = "of one core to decode a JPEG; one that takes longer is broken"},
{"Options", .name = "device", .type = LT_OPTION_STRING, AT(device), .value = "cpu", .help = "cpu, ref, cuda[:N]"},
{"Options", .name = "threads", .type = LT_OPTION_INT, AT(threads), .value = "0", .min = 0, .max = 4096, .help = "compute threads; 0: as many as allowed"},
};
/* clang-format on */

static const lt_program program = {
    .name = "train_resnet50 predict",
    .summary = "classify pictures",
    .usage = "--weights FILE IMAGE...",
    .option = table,
    .count = sizeof table / sizeof *table,
    .rest = true,
};

/* The pictures of the command line. */
static lt_status open_files(session *s)
{
    size_t count = lt_options_rest_count(s->options);
    const char **path = calloc(count, sizeof *path);
    if (!path)
        return lt_fail(LT_E_NOMEM, "predict: no memory for %zu names", count);
    for (size_t i = 0; i < count; i++)
        path[i] = lt_options_rest(s->options, i);
    lt_status st = lt_dataset_files(&s->val_data, path, (int64_t)count, s->shape.channels);
    free(path);
    return st;
}

/* Sides of ImageNet's, CIFAR's and MNIST's pictures. */
static int default_side(const lt_resnet_config *shape)
{
    if (!shape->small_stem)
        return IMAGENET_SIDE;
    return shape->channels == 1 ? 28 : 32;
}

static lt_status open_model(session *s, const predict_arguments *a)
{
    lt_device_config config = {.threads = (int)a->threads};
    LT_TRY(lt_device_open(&s->device, a->device, &config));
    LT_TRY(lt_resnet_load(&s->model, s->device, a->weights, &s->shape));
    s->args.image_size = a->image_size;
    s->args.interpolation = a->interpolation;
    s->args.exif = a->exif;
    s->args.max_image_pixels = a->max_image_pixels;
    s->args.max_image_seconds = a->max_image_seconds;
    s->args.crop_pct = a->crop_pct;
    s->args.mean = a->mean;
    s->args.std = a->std;
    LT_TRY(notes_read(&s->known, a->weights));
    LT_TRY(session_choose_pixels(s, s->shape.channels));
    LT_TRY(session_choose_input(s, default_side(&s->shape)));
    session_describe_input(s);
    return lt_tape_new(&s->tape, s->device);
}

/* Line number label of the file of names, else the weights' name; "class 7" without one. */
static const char *class_name(const session *s, const char *file, int label, char text[NAME_BYTES])
{
    FILE *f = NULL;
    snprintf(text, NAME_BYTES, "class %d", label);
    if (file && lt_file_open(&f, file))
        return text;
    if (!file)
        (void)notes_class_name(&s->known, label, text, NAME_BYTES);
    for (int line = 0; f && line <= label && fgets(text, NAME_BYTES, f); line++)
        text[strcspn(text, "\n")] = 0;
    if (f)
        fclose(f);
    return text;
}

/* Prints the likeliest classes, by softmax, and leaves p without them. */
static void print_top(const session *s, const char *name, const char *names, double *p)
{
    int classes = s->shape.classes;
    char text[NAME_BYTES];
    double largest = p[0], sum = 0;
    for (int k = 1; k < classes; k++)
        largest = fmax(largest, p[k]);
    for (int k = 0; k < classes; k++)
        sum += exp(p[k] - largest);
    printf("%s\n", name);
    for (int i = 0; i < TOP && i < classes; i++) {
        int best = 0;
        for (int k = 1; k < classes; k++)
            if (p[k] > p[best])
                best = k;
        printf("  %6.2f %%  %s\n", 100 * exp(p[best] - largest) / sum,
               class_name(s, names, best, text));
        p[best] = (double)-INFINITY;
    }
}

static lt_status predict_batch(session *s, const char *names, const lt_batch *batch)
{
    int classes = s->shape.classes;
    lt_tape_reset(s->tape, session_pass(s, false));
    lt_tensor *y = lt_cast(s->tape, session_forward(s, batch->images), LT_F64);
    LT_TRY(lt_tape_status(s->tape));
    double *p = malloc(lt_tensor_bytes(y));
    if (!p)
        return lt_fail(LT_E_NOMEM, "predict: no memory for %d classes", classes);
    lt_status st = lt_tensor_read(y, p, lt_tensor_bytes(y));
    if (!st)
        print_top(s, lt_dataset_sample_name(s->val_data, batch->index), names, p);
    free(p);
    return st;
}

static lt_status predict_all(session *s, const char *names)
{
    lt_loader_config c = {.transform = session_eval_transform(s), .batch = 1};
    lt_batch batch;
    lt_status st;
    LT_TRY(lt_loader_new(&s->loader, s->val_data, s->device, &c));
    while (!(st = lt_loader_next(s->loader, &batch)))
        LT_TRY(predict_batch(s, names, &batch));
    return st == LT_END ? LT_OK : st;
}

static lt_status check_names(const char *file)
{
    FILE *f;
    if (!file)
        return LT_OK;
    LT_TRY(lt_file_open(&f, file));
    fclose(f);
    return LT_OK;
}

static lt_status predict(session *s, const predict_arguments *a)
{
    if (!a->weights)
        return lt_fail(LT_E_ARG, "--weights: missing; a safetensors file");
    if (!lt_options_rest_count(s->options))
        return lt_fail(LT_E_ARG, "no picture given");
    LT_TRY(check_names(a->class_names));
    LT_TRY(open_model(s, a));
    LT_TRY(open_files(s));
    s->at_work = true;
    return predict_all(s, a->class_names);
}

int command_predict(int argc, char *const *argv)
{
    session s = {0};
    predict_arguments a;
    lt_status st = lt_options_new(&s.options, &program, &a);
    if (!st)
        st = lt_options_parse(s.options, argc, argv);
    if (!st && lt_options_asked(s.options) != LT_OPTIONS_RUN)
        st = lt_options_answer(s.options, stdout);
    else if (!st)
        st = predict(&s, &a);
    if (st)
        fprintf(stderr, "train_resnet50 predict: %s\n", lt_error_message());
    int code = exit_status(&s, st);
    session_close(&s);
    return code;
}
