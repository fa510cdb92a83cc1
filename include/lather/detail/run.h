/** The run folder: the files of a training run, and its display of progress. */
#ifndef LATHER_DETAIL_RUN_H
#define LATHER_DETAIL_RUN_H

/* Not a stable interface: may change in any release. */

#include "lather/options.h"

#include <math.h>

/** An open run folder: config.yaml, env.json, metrics.jsonl, TensorBoard events, bad_images.txt. */
typedef struct lt_run lt_run;

typedef enum lt_progress {
    LT_PROGRESS_AUTO, /**< a bar if stderr is a terminal, else lines */
    LT_PROGRESS_BAR,
    LT_PROGRESS_LINES,
    LT_PROGRESS_OFF
} lt_progress;

/** Display of a metric: {"top1", "top-1", "%"}, {"val_loss", "| val loss", NULL}. With a unit it has two decimals,
 *  otherwise four. A label of NULL: not shown. */
typedef struct lt_metric_label {
    const char *name, *label, *unit;
} lt_metric_label;

typedef struct lt_run_config {
    const lt_options *options; /**< options for config.yaml and env.json; may be NULL. Borrowed */
    lt_progress progress;
    /** Plural name of samples, and its short form in the bar: "images", "img"; NULL: "samples". Records then have
     *  "images_per_second". Borrowed, as labels are. */
    const char *unit, *unit_short;
    const lt_metric_label
        *label; /**< display of metrics; metrics without a label are shown by name */
    size_t labels;
    int64_t log_every;       /**< steps between plain lines; 0: 50 */
    int64_t total_steps;     /**< steps of the whole run, for the estimated time; 0: unknown */
    int64_t steps_per_epoch; /**< steps of an epoch; 0: unknown */
    int64_t total_epochs;    /**< epochs of the whole run; 0: unknown */
    int64_t step_offset;     /**< steps in addition to those of epochs of this length */
    int64_t resume_step; /**< steps already done: later records of an earlier start are dropped */
    bool
        redo_epoch; /**< drops the epoch's record at resume_step, too, as the checkpoint precedes it */
    bool no_tensorboard;
    /** Name of the records file in the folder, as another process may write metrics.jsonl; NULL: "metrics.jsonl". */
    const char *records;
    bool append;       /**< keep the folder's files and append: an evaluation of a finished run */
    int rank;          /**< number of this rank; ranks above 0 write and show nothing */
    int ranks;         /**< number of ranks, for env.json; 0: omitted */
    bool reproducible; /**< the device is, for env.json */
    const char *id;    /**< lt_run_new_id(), for env.json and every record; may be NULL. Borrowed */
} lt_run_config;

/** Makes the folder, its parents, and the files in it. folder NULL: no files, only progress. Errors: LT_E_IO,
 *  LT_E_FORMAT (metrics.jsonl of a run to resume), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_run_open(lt_run **out, const char *folder,
                                           const lt_run_config *config);
/** Flushes and closes; ends the bar. *run may be NULL. */
LT_API void lt_run_close(lt_run **run);

/** A number in a record: {"top1", 71.3}. */
typedef struct lt_metric {
    const char *name; /**< key of the number in metrics.jsonl, and in TensorBoard's tag */
    double value;     /**< the number; NaN: unknown, omitted */
} lt_metric;

/** The record of a step. NaN: unknown, omitted. */
typedef struct lt_run_step_record {
    int64_t step;            /**< number of the step, from 1 */
    int64_t epoch;           /**< number of the epoch, from 0 */
    const lt_metric *metric; /**< the same metrics in each step, as the bar smooths them by index */
    size_t metrics;
    double lr;
    int64_t samples;        /**< samples of all ranks in this step */
    double seconds;         /**< duration of this step */
    double data_seconds;    /**< seconds of it spent waiting for data */
    const lt_metric *extra; /**< further metrics, written after the others and not shown */
    size_t extra_count;
} lt_run_step_record;

/** Writes {"event":"step",...} and moves the bar. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_step(lt_run *run, const lt_run_step_record *record);

/** The record of an epoch. NaN: unknown, omitted. */
typedef struct lt_run_epoch_record {
    bool is_evaluation; /**< evaluation at a step, {"event":"evaluation",...}; else an epoch */
    int64_t epoch, step;
    const lt_metric *metric; /**< metrics of the epoch: {"train_loss", 2.1}, {"val_top1", 60} */
    size_t metrics;
    double seconds, eval_seconds; /**< seconds of training without evaluation; of evaluation */
    const lt_metric *extra;
    size_t extra_count;
} lt_run_epoch_record;

/** Writes {"event":"epoch",...}, shows a line, syncs the file. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_epoch(lt_run *run, const lt_run_epoch_record *record);

/** Writes {"event":event,"step":step,key:text}, in addition to steps and epochs; key NULL: omitted. Errors:
 *  LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_event(lt_run *run, const char *event, int64_t step,
                                            const char *key, const char *text);
/** Appends a line of JSON to hashes.jsonl, and writes {"event":"hash","step":step,"sha256":sha256}. Errors:
 *  LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_hash(lt_run *run, int64_t step, const char *sha256,
                                           const char *line);
/** Writes {"event":"data","step","samples","fingerprint","bytes"}; the fingerprint as 16 hexadecimal digits. Errors:
 *  LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_data(lt_run *run, int64_t step, int64_t samples,
                                           uint64_t fingerprint, int64_t bytes);
/** Does the same as lt_run_event() with numbers; omits those that are not finite. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_event_values(lt_run *run, const char *event, int64_t step,
                                                   const lt_metric *value, size_t count);
/** Does the same as lt_run_event_values(), with TensorBoard's scalars "EVENT/NAME". Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_event_scalars(lt_run *run, const char *event, int64_t step,
                                                    const lt_metric *value, size_t count);
/** Writes TensorBoard's histogram "EVENT/NAME" of ascending finite values, if there are any. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_histogram(lt_run *run, const char *event, const char *name,
                                                int64_t step, const double *sorted, size_t count);
/** Checks that the folder that lt_run_open() wrote to still exists; writing records checks it, too. Errors:
 *  LT_E_IO (deleted, moved or emptied: the run cannot be saved any more). */
LT_API LT_MUST_CHECK lt_status lt_run_check(const lt_run *run);

/** Appends a line to bad_images.txt. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_bad_image(lt_run *run, const char *description);
/** Shows a line above the bar, such as: resumed, saved, target reached. */
LT_API void lt_run_note(lt_run *run, const char *fmt, ...) LT_PRINTF(2, 3);
/** Logs a warning, above the bar if there is one. */
LT_API void lt_run_warn(lt_run *run, const char *fmt, ...) LT_PRINTF(2, 3);
/** Shows the progress of a part other than training, in place of the bar: "evaluate", 12, 50. */
LT_API void lt_run_part(lt_run *run, const char *name, int64_t done, int64_t total);

/** Returns the folder, or NULL. Borrowed. */
LT_API const char *lt_run_folder(const lt_run *run);

#endif
