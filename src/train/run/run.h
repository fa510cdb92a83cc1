/* Inside of lather/run.h. */
#ifndef LT_TRAIN_RUN_H
#define LT_TRAIN_RUN_H

#include "base/encoding/json.h"
#include "progress.h"
#include "tensorboard.h"

#include "lather/run_folder.h"

/* Beside metrics.jsonl, as that belongs to the process that trains: records {"event":"evaluation",...}, which readers
 * merge by their steps. */
#define LT_RUN_EVALUATIONS "metrics-eval.jsonl"

/* Writes FOLDER/env.json: machine, build, command line, ranks, git commit; the run's id,
 * unless that is NULL. */
LT_MUST_CHECK lt_status lt_run_write_env(const char *folder, const lt_run_config *config,
                                         const char *id);

/* The member "run" of a JSON file in a folder, if it is an id; else "". Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_run_id_in(const char *folder, const char *file, char id[LT_RUN_ID]);

/* Drops the records behind step from a metrics file that a resumed run goes on with, and a line that
 * a kill cut off; redo: the record of an epoch at that step too; the file stays whole whatever happens. No file is fine. */
LT_MUST_CHECK lt_status lt_metrics_rewind(const char *path, int64_t step, bool redo);

/* Whether a metrics file has an evaluation's record of a step: of its own, or within that of an epoch; run: of which run
 * ("": any). No file has none. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_metrics_has_evaluation(const char *path, const char *run, int64_t step,
                                                  bool *found);

#endif
