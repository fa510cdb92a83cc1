/* env.json of a run folder. */
#ifndef LT_TRAIN_RUN_ENV_H
#define LT_TRAIN_RUN_ENV_H

#include "lather/detail/run.h"

/* Writes FOLDER/env.json: machine, build, command line, ranks, git commit, and the run's id unless that is NULL. */
LT_MUST_CHECK lt_status lt_run_write_env(const char *folder, const lt_run_config *config,
                                         const char *id);

#endif
