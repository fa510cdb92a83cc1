/* The models that benchmarks know by name, each with its synthetic batch and its loss. */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

#include "bench.h"

#include "lather/ext/task.h"
#include "lather/module.h"

/* A kind of model, and the name of its samples. */
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
