/* Models of benchmarks by name, each with a synthetic batch and a loss. */
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H

#include "bench.h"

#include "lather/ext/task.h"
#include "lather/module.h"

/* A kind of model, and the name of its samples. */
typedef struct bench_model {
    const char *prefix;  /* prefix of arch names */
    const char *samples; /* "images" */
    int64_t usual_classes;
    lt_status (*make)(lt_module **out, lt_device *device, const bench_model_config *c);
    /* Fills inputs and labels with tensors that the caller owns. */
    lt_status (*batch)(lt_batch *out, lt_device *device, const bench_model_config *c);
    /* Computes the loss of a batch as the trainer does, without accuracies. */
    void (*loss)(lt_module *model, lt_tape *tape, const lt_batch *batch, lt_task_output *out);
} bench_model;

/* Returns the kind of an arch such as "vit_s_16" or "gpt2"; others are residual networks. */
const bench_model *bench_model_of(const char *arch);

#endif
