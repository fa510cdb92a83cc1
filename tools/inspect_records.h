/* Contents of a run folder: numbers of metrics.jsonl, settings of config.yaml. */
#ifndef TOOLS_INSPECT_RECORDS_H
#define TOOLS_INSPECT_RECORDS_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Points in the order of x. Starts as {0}. */
typedef struct run_series {
    double *x, *y;
    size_t count, capacity;
} run_series;

/* Values of metrics.jsonl over the step number. */
typedef struct run_metrics {
    run_series loss, lr, speed, tokens, wait;  /* per step; images and tokens per second */
    run_series train_loss, val_loss;           /* per epoch */
    run_series train_top1, val_top1, val_top5; /* percent */
    run_series val_perplexity;
    double seconds, eval_seconds;      /* sums over all epochs */
    double epochs;                     /* the largest number of an epoch, from 1 */
    double step_samples, step_seconds; /* sums over steps; samples: tokens for a language model */
    /* The last evaluation: samples evaluated and in the data set, if fewer; 1 if on the training images; else NaN. */
    double val_samples, val_total, val_is_train;
    size_t lines, unread; /* unread: not an object of ours */
} run_metrics;

/* Errors: LT_E_IO, LT_E_NOMEM, LT_E_FORMAT (no line of metrics in it). */
LT_MUST_CHECK lt_status run_read(run_metrics *out, const char *path);
void run_clear(run_metrics *metrics);

/* A run's config.yaml: name and value of each setting, in the order of the file. Starts as {0}. */
typedef struct run_settings {
    char **name, **value; /* owned */
    size_t count, capacity;
} run_settings;
/* Reads the settings; none if the file cannot be read. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status run_settings_read(run_settings *out, const char *path);
/* Returns the value of that name, or NULL if absent. */
const char *run_settings_find(const run_settings *settings, const char *name);
void run_settings_clear(run_settings *settings);

#endif
