/* Records of steps and epochs, a line of JSON each. */
#ifndef LT_TRAIN_METRICS_H
#define LT_TRAIN_METRICS_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Next to metrics.jsonl, as that belongs to the process that trains: records {"event":"evaluation",...}, which readers
 * merge by their steps. */
#define LT_RUN_EVALUATIONS "metrics-eval.jsonl"

/* Drops the records after step from a metrics file that a resumed run continues, and a line that
 * a kill cut off; redo: the record of an epoch at that step too; the file stays whole whatever happens. No file is fine. */
LT_MUST_CHECK lt_status lt_metrics_rewind(const char *path, int64_t step, bool redo);

/* Whether a metrics file has an evaluation's record of a step: of its own, or within that of an epoch; run: of which run
 * ("": any). No file has none. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_metrics_has_evaluation(const char *path, const char *run, int64_t step,
                                                  bool *found);

#endif
