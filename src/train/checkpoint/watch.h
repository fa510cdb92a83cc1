/* Finds checkpoints of a run that another process trains, each once, as they appear, for evaluation during
 * training. */
#ifndef LT_TRAIN_WATCH_H
#define LT_TRAIN_WATCH_H

#include "lather/checkpoint.h"
#include "lather/detail/run_folder.h"

/* A run folder and the exclusive right to evaluate it. */
typedef struct lt_watch lt_watch;

enum { LT_WATCH_PATH = 1200 };

/* A checkpoint that remains readable until the next lt_watch_next(), whatever the run removes. */
typedef struct lt_watched {
    char path[LT_WATCH_PATH]; /* folder of the checkpoint; "" if there is no new one */
    int64_t step, epoch;      /* step at which it was saved; its epoch, finished or current */
} lt_watched;

/* Checks that a folder holds a run. Errors: LT_E_IO (no such folder), LT_E_ARG. */
LT_MUST_CHECK lt_status lt_watch_check(const char *folder);
/* Opens a run folder for evaluation. Errors: those of lt_watch_check(), LT_E_IO (another process evaluates it),
 * LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_watch_open(lt_watch **out, const char *folder);
void lt_watch_close(lt_watch **watch);

/* Returns the earliest intact checkpoint without a recorded evaluation. Skips a removed or damaged one, with a
 * warning. LT_END: the run has ended and all its checkpoints are evaluated. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_watch_next(lt_watch *watch, lt_watched *out);

/* Returns the run's id, or "" if it has none. */
const char *lt_watch_run(const lt_watch *watch);

/* Loads the checkpoint's EMA weights into params; LT_END if it has none. Errors: as lt_weights_load(). */
LT_MUST_CHECK lt_status lt_watch_load_averages(const char *checkpoint, const lt_params *params);

#endif
