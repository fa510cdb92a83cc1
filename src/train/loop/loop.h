/* The training loop: micro-batches form a step, steps an epoch, epochs a run. */
#ifndef LT_TRAIN_LOOP_H
#define LT_TRAIN_LOOP_H

#include "evaluate.h"
#include "hooks.h"
#include "input.h"
#include "optim_stats.h"
#include "state.h"
#include "stragglers.h"
#include "update_bn.h"

#include "lather/local_steps.h"
#include "lather/train.h"

enum { LOOP_VALUES = 17 };

/* When the next step is queued before the results of this one are known. */
typedef enum lt_run_ahead {
    LT_RUN_AHEAD_AUTO, /* run ahead on devices with a queue */
    LT_RUN_AHEAD_OFF,
    LT_RUN_AHEAD_ON
} lt_run_ahead;

/* Settings and parts of a run; lt_train_loop_close() frees the step and the statistics, all others are borrowed. */
typedef struct lt_train_loop {
    const lt_train_config *config; /* settings, and the parts that it names */
    lt_ranks *ranks;
    lt_train_input *input;
    lt_train_state *state;
    lt_tape *tape;
    lt_run *run;
    lt_hooks hooks;
    lt_schedule schedule;
    lt_data_parallel *dp;  /* averages gradients over ranks; NULL: one rank */
    lt_local_steps *local; /* groups of ranks that synchronize every N steps; NULL if not used */
    lt_stragglers *stragglers; /* backup workers or a deadline; NULL if not used */
    lt_train_step *step;
    lt_train_stats stats; /* --optim-stats; its optim is NULL if off */
    lt_evaluator evaluator;
    lt_dataset *evaluated;
    lt_update_bn *update_bn;      /* runs before evaluations and checkpoints; NULL: never */
    lt_checkpoint_contents parts; /* set by lt_train_loop_begin_state() */

    int64_t total_steps;
    int64_t hash_every; /* steps between hashes of a reproducible run; 0: only with checkpoints */
    lt_run_ahead ahead; /* running ahead, on one rank; several ranks never do */

    /* Writes further values of a step's record, at most LOOP_VALUES, when the step begins; returns their number.
     * May be NULL. */
    int (*step_values)(void *context, lt_metric out[LOOP_VALUES]);
    /* Called at the beginning of an epoch, or of the rest of one. May be NULL. */
    void (*begin_epoch)(void *context);
    void *context;
    /* Returns true if this rank was asked to stop after its epoch; NULL: never. */
    bool (*stops_after_epoch)(void);
} lt_train_loop;

/* --- open.c: parts that follow from the settings --- */

/* Returns a training or evaluation pass with the settings' dtype, recompute and seed. */
lt_pass lt_train_pass(const lt_train_config *config, lt_pass pass);
/* Starts the state of a new run. Call after the optimizer and averages are made. */
void lt_train_loop_begin_state(lt_train_loop *loop);
/* Loads the checkpoint in state->folder, if there is one; sets the loss scale and the run's id. Collective. */
lt_status lt_train_loop_load_state(lt_train_loop *loop);
lt_status lt_train_loop_open_step(lt_train_loop *loop);
lt_status lt_train_loop_open_stats(lt_train_loop *loop);
void lt_train_loop_close(lt_train_loop *loop);

/* --- records.c: records before the first step --- */

/* Labels of a task's metrics for lt_run_config.label, which borrows them. */
typedef struct lt_task_labels {
    lt_metric_label label[3 * LT_TASK_METRICS + 2];
    char name[2 * LT_TASK_METRICS][LT_CHECKPOINT_NAME];
    size_t count;
} lt_task_labels;
void lt_train_fill_metric_labels(const lt_task_ops *task, lt_task_labels *out);

/* Sets the fields of *run that follow from the task, the state and the schedule: labels (which run borrows), units,
 * numbers of steps and epochs, rank and id. Speeds are in the task's rate_unit, or in its samples. */
void lt_train_fill_run_config(lt_run_config *run, lt_task_labels *labels,
                              const lt_train_loop *loop);

/* Call after lt_run_open(): of a run resumed from state->folder, repairs the links in output and records the resume,
 * the options that changed ("" if none) and differences of the processor. */
lt_status lt_train_log_resume(const lt_train_loop *loop, const char *changed);

/* --- loop.c --- */

/* Trains to the end, the target, or until ranks->stop or a hook ends it. Collective. Errors: LT_E_ARG (a gradient
 * is not finite), LT_E_IO (the last checkpoint was not written), those of its parts. */
lt_status lt_train_loop_run(lt_train_loop *loop);

#endif
