/** Hooks (callbacks) of a training run: functions that the loop calls before and after steps, epochs and
 *  evaluations, for early stopping, own log lines and own records. */
#ifndef LATHER_TRAIN_HOOKS_H
#define LATHER_TRAIN_HOOKS_H

#include "lather/detail/run.h"
#include "lather/optim.h"
#include "lather/param.h"

enum { LT_MAX_HOOKS = 8 };

/** State of a run that a hook may read; valid during the call. */
typedef struct lt_train_view {
    /** steps done, skipped ones included; in before_step the number of the step that begins */
    int64_t step;
    int64_t epoch;       /**< current epoch, from 0 */
    int64_t total_steps; /**< step at which the run ends */
    double lr;           /**< learning rate of the step */
    /** Numbers by their names in metrics.jsonl, NaN if one does not apply: in after_step those of the step's record
     *  ("loss", "gradient_norm"), in after_epoch and after_evaluation those of the epoch's ("train_loss", "val_loss",
     *  "val_top1", "seconds"), the same on all ranks except timings and bytes; in the others no numbers. */
    const lt_metric *metric;
    size_t metrics;
    /** training weights; with run ahead (cuda, one rank) after_step may see those of the step after it, and
     *  with --shard-params reading one of another rank is an error */
    const lt_params *params;
    const lt_optim *optim;
    int rank, ranks;
    const char *folder; /**< run folder; NULL: the run writes nothing */
    lt_run *run;        /**< for lt_train_note() and lt_train_record() */
} lt_train_view;

/** A hook. Sets *stop, false at first, to end the run: all ranks agree after each call, the run ends if it is true
 *  on one of them. An error ends the run with it. */
typedef lt_status lt_train_hook(void *context, const lt_train_view *view, bool *stop);

/** A number of a hook that checkpoints store: state.json has it in "hooks" as "HOOK.NAME". */
typedef struct lt_train_number {
    const char *name;
    double *value; /**< rank 0's is saved; a resume sets it on all ranks, before before_run */
} lt_train_number;

/** Hooks of a run; any may be NULL. They are called by the thread that trains, on each rank.
 *
 *  A run that a hook ends is saved and has its final weights in the run folder; the exit status is 0, and
 *  metrics.jsonl has {"event":"ended","step":STEP,"by":NAME}. After before_step, the step does not run; after
 *  after_epoch and after_evaluation, the epoch has ended; after after_step a resumed run continues within the epoch.
 *  With several ranks each of before_step and after_step costs a small all-reduce per step. */
typedef struct lt_train_hooks {
    const char *name; /**< name in messages, records and state.json: "early_stop"; required */
    void *context;
    lt_train_hook *before_run; /**< called once, after a resume has loaded its checkpoint */
    lt_train_hook *before_step;
    /** Called when the results of a step are known and recorded, skipped steps included. With run ahead
     *  (--run-ahead, cuda, one rank) the next step is queued already: it is completed even if the hook ends the run. */
    lt_train_hook *after_step;
    /** Called after each evaluation and then after each epoch, when its record was written and before its
     *  checkpoint. A run's last epoch may end within. */
    lt_train_hook *after_evaluation, *after_epoch;
    const lt_train_number
        *number; /**< numbers to save and load, at most LT_CHECKPOINT_NUMBERS of all hooks */
    size_t numbers;
} lt_train_hooks;

/** Adds hooks to all later runs of this process: those of lt_train() and of training programs. Borrowed until the
 *  process ends; ranks that are threads share the context. Call before training, from one thread. Errors: LT_E_ARG
 *  (no name, or one that is taken; a number without name or value), LT_E_NOMEM (more than LT_MAX_HOOKS, which include
 *  the run's own). */
LT_API LT_MUST_CHECK lt_status lt_train_hooks_register(const lt_train_hooks *hooks);

/** Returns a number of view->metric; NaN if it is unknown or does not apply. */
LT_API double lt_train_view_metric(const lt_train_view *view, const char *name);
/** Shows a line above the progress bar; ranks above 0 show nothing. */
LT_API void lt_train_note(const lt_train_view *view, const char *format, ...) LT_PRINTF(2, 3);
/** Appends {"event":event,"step":view->step, ...} to metrics.jsonl, and "EVENT/NAME" to TensorBoard, without numbers
 *  that are not finite; no-op on ranks above 0 and without a run folder. Errors: LT_E_ARG (an event of the library's: "step", "epoch"; a number
 *  named "event", "step" or "run"), LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_train_record(const lt_train_view *view, const char *event,
                                               const lt_metric *value, size_t count);

#endif
