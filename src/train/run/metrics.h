/* Records of steps and epochs, a line of JSON each. */
#ifndef LT_TRAIN_METRICS_H
#define LT_TRAIN_METRICS_H

#include "lather/detail/run.h"

#include <stdbool.h>
#include <stdint.h>

/* File of evaluations next to metrics.jsonl, which belongs to the process that trains. Its records are
 * {"event":"evaluation",...}; readers merge them by step. */
#define LT_RUN_EVALUATIONS "metrics-eval.jsonl"
/* Hashes of each tensor (--reproducible). */
#define LT_RUN_HASHES "hashes.jsonl"

/* Returns the value of the metric of this name, or NaN if absent. */
double lt_metric_value(const lt_metric *metric, size_t count, const char *name);

/* Sums over steps, whose records have the key "images_per_second" or another unit's. */
typedef struct lt_metrics_speed {
    char key[64];
    double samples, seconds;
} lt_metrics_speed;

/* Drops the records after step from a metrics file that a resumed run continues, and a line truncated by a kill.
 * redo: drops the record of an epoch at that step, too. The file is replaced atomically; a missing file is no
 * error. Adds the steps of the other records to *sum, which may be NULL. */
LT_MUST_CHECK lt_status lt_metrics_rewind(const char *path, int64_t step, bool redo,
                                          lt_metrics_speed *sum);

/* Looks for a record of this step's evaluation, as its own line or within an epoch's record; run: id of the run,
 * or "" for any. A missing file has none. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_metrics_has_evaluation(const char *path, const char *run, int64_t step,
                                                  bool *found);

#endif
