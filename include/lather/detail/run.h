/** The run folder: what a training run leaves behind, and what it shows while it works. */
#ifndef LATHER_DETAIL_RUN_H
#define LATHER_DETAIL_RUN_H

/* Not a stable interface: may change in any release. */

#include "lather/options.h"

#include <math.h>

/** config.yaml, env.json, metrics.jsonl, TensorBoard events, bad_images.txt. */
typedef struct lt_run lt_run;

typedef enum lt_progress {
    LT_PROGRESS_AUTO, /**< a bar if stderr is a terminal, else lines */
    LT_PROGRESS_BAR,
    LT_PROGRESS_LINES,
    LT_PROGRESS_OFF
} lt_progress;

/** How the bar and the lines show a metric: {"top1", "top-1", "%"}, {"val_loss", "| val loss", NULL}.
 *  With a unit it has two digits behind the point, else four. A label of NULL: not shown. */
typedef struct lt_metric_label {
    const char *name, *label, *unit;
} lt_metric_label;

typedef struct lt_run_config {
    const lt_options *options; /**< for config.yaml and env.json; may be NULL. Borrowed */
    lt_progress progress;
    /** What is counted, plural, and its short form in the bar: "images", "img"; NULL: "samples".
     *  Records then have "images_per_second". Borrowed, as labels are. */
    const char *unit, *unit_short;
    const lt_metric_label *label; /**< of the metrics shown; others are shown by their names */
    size_t labels;
    int64_t log_every;       /**< steps between plain lines; 0: 50 */
    int64_t flush_every;     /**< steps between flushes of metrics.jsonl; 0: 1 */
    int64_t total_steps;     /**< of the whole run, for the estimate; 0: unknown */
    int64_t steps_per_epoch; /**< 0: unknown */
    int64_t total_epochs;    /**< 0: unknown */
    int64_t step_offset;     /**< steps besides those of epochs of this length */
    int64_t resume_step;     /**< steps already done: later records of an earlier try are dropped */
    bool redo_epoch;         /**< so is an epoch's at resume_step: the checkpoint is of before it */
    bool no_tensorboard;
    /** Of the file of records in the folder, which another process may have; NULL: "metrics.jsonl". */
    const char *records;
    bool append;    /**< leave what the folder holds, add to it: an evaluation of a finished run */
    int rank;       /**< ranks above 0 write and show nothing */
    int ranks;      /**< of the run, for env.json; 0: not said there */
    const char *id; /**< of lt_run_new_id(), for env.json and every record; NULL: none. Borrowed */
} lt_run_config;

/** Makes the folder (and its parents) and the files in it. folder NULL: no files, only progress.
 *  Errors: LT_E_IO, LT_E_FORMAT (metrics.jsonl of a run to resume), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_run_open(lt_run **out, const char *folder,
                                           const lt_run_config *config);
/** Flushes and closes; ends the bar. *run may be NULL. */
LT_API void lt_run_close(lt_run **run);

/** A number of a record: {"top1", 71.3}. */
typedef struct lt_metric {
    const char *name; /**< its key in metrics.jsonl, and in TensorBoard's tag */
    double value;     /**< NAN: not known, left out */
} lt_metric;

/** One step. NAN: not known, left out. */
typedef struct lt_run_step_record {
    int64_t step;            /**< 1 after the first */
    int64_t epoch;           /**< 0 in the first */
    const lt_metric *metric; /**< the same ones in each step, as the bar smooths them by index */
    size_t metrics;
    double lr;
    int64_t samples;        /**< of all ranks in this step */
    double seconds;         /**< of this step */
    double data_seconds;    /**< of that, waiting for data */
    const lt_metric *extra; /**< written behind all of these, not shown */
    size_t extra_count;
} lt_run_step_record;

/** Writes {"event":"step",...} and moves the bar. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_step(lt_run *run, const lt_run_step_record *record);

/** One epoch. NAN: not known, left out. */
typedef struct lt_run_epoch_record {
    bool is_evaluation; /**< of one step alone: {"event":"evaluation",...}; else of an epoch */
    int64_t epoch, step;
    const lt_metric *metric; /**< {"train_loss", 2.1}, {"val_top1", 60} */
    size_t metrics;
    double seconds, eval_seconds; /**< training without evaluation; evaluation */
    const lt_metric *extra;
    size_t extra_count;
} lt_run_epoch_record;

/** Writes {"event":"epoch",...}, shows a line, syncs the file. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_epoch(lt_run *run, const lt_run_epoch_record *record);

/** Writes {"event":event,"step":step,key:text}, not a part of steps and epochs; key NULL: without.
 *  Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_event(lt_run *run, const char *event, int64_t step,
                                            const char *key, const char *text);
/** The same with numbers; those that are not finite are left out. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_event_values(lt_run *run, const char *event, int64_t step,
                                                   const lt_metric *value, size_t count);
/** Whether the folder that lt_run_open() wrote to is still the one of that name; records ask too.
 *  Errors: LT_E_IO (it was deleted, moved or emptied: nothing more of this run would be kept). */
LT_API LT_MUST_CHECK lt_status lt_run_check(const lt_run *run);

/** Appends a line to bad_images.txt. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_bad_image(lt_run *run, const char *description);
/** Shows a line above the bar: resumed, saved, target reached. */
LT_API void lt_run_note(lt_run *run, const char *fmt, ...) LT_PRINTF(2, 3);
/** Logs a warning, above the bar, and without one too. */
LT_API void lt_run_warn(lt_run *run, const char *fmt, ...) LT_PRINTF(2, 3);
/** Shows how far a long part other than training is, in place of the bar: "evaluate", 12, 50. */
LT_API void lt_run_part(lt_run *run, const char *name, int64_t done, int64_t total);

/** The folder, or NULL. Borrowed. */
LT_API const char *lt_run_folder(const lt_run *run);

#endif
