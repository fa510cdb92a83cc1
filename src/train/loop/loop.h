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
#include "lather/schedule.h"

enum { LOOP_VALUES = 17 };

/* When the next step is queued before the results of this one are known. */
typedef enum lt_run_ahead {
    LT_RUN_AHEAD_AUTO, /* run ahead on devices with a queue */
    LT_RUN_AHEAD_OFF,
    LT_RUN_AHEAD_ON
} lt_run_ahead;

/* The parts and settings of a run; all borrowed. */
typedef struct lt_train_loop {
    lt_train_step *step;
    lt_train_input *input;
    lt_train_state *state;
    lt_hooks *hooks; /* NULL if absent */
    lt_ranks *ranks;
    lt_run *run;
    lt_data_parallel *dp;  /* averages gradients over ranks; NULL: one rank */
    lt_local_steps *local; /* groups of ranks that synchronize every N steps; NULL if not used */
    lt_stragglers *stragglers; /* backup workers or a deadline; NULL if not used */
    lt_train_stats *stats;     /* --optim-stats; its optim is NULL if off */
    const lt_schedule *schedule;
    lt_evaluator evaluator;
    lt_dataset *evaluated;
    lt_update_bn *update_bn; /* runs before evaluations and checkpoints; NULL: never */
    lt_checkpoint_contents parts;

    const char *output; /* folder of checkpoints; NULL: none are written */
    int64_t total_steps, grad_accum;
    int64_t
        eval_every; /* epochs between evaluations; 0: only at the end of the run; negative: never */
    int64_t checkpoint_every; /* steps between checkpoints; 0: only at the end of epochs */
    int64_t hash_every; /* steps between hashes of a reproducible run; 0: only with checkpoints */
    int keep;           /* number of checkpoints to keep */
    double clip_norm;
    double target;      /* value of the task's best metric at which the run ends; 0: none */
    bool skip_nan;      /* a gradient that is not finite skips the step instead of ending the run */
    bool is_scaled;     /* f16 loss scaling: an overflow is part of the search for the scale */
    lt_run_ahead ahead; /* running ahead, on one rank; several ranks never do */

    /* Writes further values of a step's record, at most LOOP_VALUES, when the step begins; returns their number.
     * May be NULL. */
    int (*step_values)(void *context, lt_metric out[LOOP_VALUES]);
    /* Called at the beginning of an epoch, or of the rest of one. May be NULL. */
    void (*begin_epoch)(void *context);
    void *context;
} lt_train_loop;

/* Labels of a task's metrics for lt_run_config.label, which borrows them. */
typedef struct lt_task_labels {
    lt_metric_label label[3 * LT_TASK_METRICS + 2];
    char name[2 * LT_TASK_METRICS][LT_CHECKPOINT_NAME];
    size_t count;
} lt_task_labels;
void lt_train_fill_metric_labels(const lt_task_ops *task, lt_task_labels *out);

/* Sets the fields of *run that follow from the task, the state and the schedule: labels (which run borrows), units,
 * numbers of steps and epochs, rank and id. Speeds are in the task's rate_unit, or in its samples. */
void lt_train_fill_run_config(lt_run_config *run, lt_task_labels *labels, const lt_task_ops *task,
                              const lt_train_state *state, const lt_ranks *ranks,
                              int64_t steps_per_epoch, int64_t total_steps);

/* Call after lt_run_open() of a run resumed from state->folder: repairs the links in output (NULL: none) and
 * records the resume, the options that changed ("" if none) and differences of the processor. */
lt_status lt_train_log_resume(lt_run *run, const lt_train_state *state, int64_t total_steps,
                              const lt_ranks *ranks, const char *output, const char *changed);

/* Trains to the end, the target, or until ranks->stop or a hook ends it. Collective. Errors: LT_E_ARG (a gradient
 * is not finite), LT_E_IO (the last checkpoint was not written), those of its parts. */
lt_status lt_train_loop_run(const lt_train_loop *loop);

#endif
