/* The models that `bench train` and `bench eval` know by name, each with its synthetic batch and its loss. */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

#include "lather/ext/task.h"
#include "lather/module.h"
#include "lather/options.h"

#include <stddef.h>

/* What the flags say of the model and of a batch. */
typedef struct bench_model_config {
    const char *arch;
    int64_t batch, classes;
    int64_t size;   /* side of the images, in pixels */
    int64_t length; /* tokens of a sequence */
    int stem;       /* of residual networks: 0 ImageNet's, 1 small */
} bench_model_config;

/* The options of a model and a batch, of settings with a member `model`. */
/* clang-format off */
#define BENCH_MODEL_OPTIONS(settings)                                                              \
    {.group = "Benchmark", .name = "arch", .type = LT_OPTION_STRING,                               \
     .offset = offsetof(settings, model.arch), .value = "resnet50",                                \
     .help = "resnet18, 34, 50, 101, 152; vit_ti_16, s_16, b_16, ...; gpt2, gpt2-medium, ..."},    \
    {.group = "Benchmark", .name = "batch-size", .alias = 'b', .type = LT_OPTION_INT,              \
     .offset = offsetof(settings, model.batch), .value = "32", .min = 1, .max = 65536,             \
     .help = "samples of a batch"},                                                                \
    {.group = "Benchmark", .name = "image-size", .type = LT_OPTION_INT,                            \
     .offset = offsetof(settings, model.size), .value = "224", .min = 1, .max = 4096,              \
     .help = "side of the images in pixels"},                                                      \
    {.group = "Benchmark", .name = "stem", .type = LT_OPTION_CHOICE,                               \
     .offset = offsetof(settings, model.stem), .choices = "imagenet|small",                        \
     .help = "small: of residual networks, a 3x3 convolution without pooling first"},              \
    {.group = "Benchmark", .name = "seq-len", .type = LT_OPTION_INT,                               \
     .offset = offsetof(settings, model.length), .value = "256", .min = 1, .max = 1000000,         \
     .help = "tokens of a sequence, of gpt2"},                                                     \
    {.group = "Benchmark", .name = "num-classes", .type = LT_OPTION_INT,                           \
     .offset = offsetof(settings, model.classes), .value = "0", .min = 0, .max = 1000000,          \
     .help = "classes, or ids of gpt2; 0: 1000, 50257"}
/* clang-format on */

/* A kind of models; samples are what it counts. */
typedef struct bench_model {
    const char *prefix;  /* its names begin so */
    const char *samples; /* "images" */
    int64_t usual_classes;
    lt_status (*make)(lt_module **out, lt_device *device, const bench_model_config *c);
    /* Fills inputs and labels with tensors that the caller owns. */
    lt_status (*batch)(lt_batch *out, lt_device *device, const bench_model_config *c);
    /* The loss of a batch, as the trainer has it, but for accuracies. */
    void (*loss)(lt_module *model, lt_tape *tape, const lt_batch *batch, lt_task_output *out);
} bench_model;

/* The kind that an arch is of: "vit_s_16", "gpt2", else a residual network. */
const bench_model *bench_model_of(const char *arch);

#endif
