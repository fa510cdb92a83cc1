/* Checkpoints of a run that another process trains: each once, as they appear, for evaluation during training. */
#ifndef LT_TRAIN_WATCH_H
#define LT_TRAIN_WATCH_H

#include "lather/checkpoint.h"
#include "lather/detail/run_folder.h"

/* The run of a folder and the right to evaluate it, which one process has at a time. */
typedef struct lt_watch lt_watch;

enum { LT_WATCH_PATH = 1200 };

/* A checkpoint that stays readable, whatever the run removes, until the next one. */
typedef struct lt_watched {
    char path[LT_WATCH_PATH]; /* a folder; "": there is none now */
    int64_t step, epoch;      /* at which it was saved; its epoch, finished or current */
} lt_watched;

/* Whether a folder holds a run. Errors: LT_E_IO (no such folder), LT_E_ARG. */
LT_MUST_CHECK lt_status lt_watch_check(const char *folder);
/* Errors: those, LT_E_IO (another process evaluates it), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_watch_open(lt_watch **out, const char *folder);
void lt_watch_close(lt_watch **watch);

/* The earliest checkpoint of which neither the run nor this watch nor one before it recorded an evaluation; its
 * checksums hold. A removed or damaged one is skipped, with one line. LT_END: the run has ended, and there is none.
 * Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_watch_next(lt_watch *watch, lt_watched *out);

/* The run's id; "": it has none. */
const char *lt_watch_run(const lt_watch *watch);

/* Into params: the averages that a checkpoint keeps; LT_END: it keeps none.
 * Errors: as lt_weights_load(). */
LT_MUST_CHECK lt_status lt_watch_load_averages(const char *checkpoint, const lt_params *params);

#endif
