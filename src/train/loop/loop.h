/* The training loop: micro-batches make a step, steps an epoch, epochs a run. */
#ifndef LT_TRAIN_LOOP_H
#define LT_TRAIN_LOOP_H

#include "evaluate.h"
#include "input.h"
#include "state.h"
#include "stragglers.h"
#include "update_bn.h"

#include "lather/local_steps.h"
#include "lather/schedule.h"

enum { LOOP_VALUES = 17 };

/* Whether the next step is queued before the results of this one are known. */
typedef enum lt_run_ahead {
    LT_RUN_AHEAD_AUTO, /* on devices with a queue */
    LT_RUN_AHEAD_OFF,
    LT_RUN_AHEAD_ON
} lt_run_ahead;

/* What a run works with; all borrowed. */
typedef struct lt_train_loop {
    lt_train_step *step;
    lt_train_input *input;
    lt_train_state *state;
    lt_ranks *ranks;
    lt_run *run;
    lt_data_parallel *dp;      /* NULL: one rank */
    lt_local_steps *local;     /* groups of ranks that meet every so many steps; NULL: none */
    lt_stragglers *stragglers; /* backup workers, or a deadline; NULL: neither */
    const lt_schedule *schedule;
    lt_evaluator evaluator;
    lt_dataset *evaluated;
    lt_update_bn *update_bn; /* before evaluations and checkpoints; NULL: never */
    lt_checkpoint_parts parts;

    const char *output; /* folder of checkpoints; NULL: none */
    int64_t total_steps, grad_accum;
    int64_t eval_every;       /* epochs; 0: at the end of the run alone; below: never */
    int64_t checkpoint_every; /* steps; 0: at the end of epochs alone */
    int keep;                 /* checkpoints */
    double clip_norm;
    double target;  /* of the task's best metric: the run ends when it is reached; 0: none */
    bool skip_nan;  /* a gradient that is not finite skips a step, instead of ending the run */
    bool is_scaled; /* the loss, for f16: then an overflow is part of the search for the scale */
    lt_run_ahead ahead; /* of one rank; several never do */

    /* Further numbers of a step's record, at most LOOP_VALUES, when it was begun: returns how many. NULL: none. */
    int (*step_values)(void *context, lt_metric out[LOOP_VALUES]);
    /* At the beginning of an epoch, or of the rest of one. NULL: nothing. */
    void (*begin_epoch)(void *context);
    /* Behind the record of an epoch, with its metrics. NULL: nothing. */
    lt_status (*end_epoch)(void *context, const lt_metric *metric, size_t count);
    void *context;
} lt_train_loop;

/* How a run shows the metrics of a task: lt_run_config.label, which borrows them. */
typedef struct lt_task_labels {
    lt_metric_label label[3 * LT_TASK_METRICS + 2];
    char name[2 * LT_TASK_METRICS][LT_CHECKPOINT_NAME];
    size_t count;
} lt_task_labels;
void lt_train_labels(const lt_task_ops *task, lt_task_labels *out);

/* What speeds are counted in: the task's rate_unit, or its samples. */
void lt_train_units(const lt_task_ops *task, lt_run_config *out);

/* Behind lt_run_open() of a run that goes on from state->folder: mends the links in output (NULL: none), records the
 * resume, the options that changed ("": none), and what the processor has otherwise. */
lt_status lt_train_resumed(lt_run *run, const lt_train_state *state, int64_t total_steps,
                           const lt_ranks *ranks, const char *output, const char *changed);

/* To the end, the target, or until ranks->stop. Collective. Errors: LT_E_ARG (a gradient is not finite), LT_E_IO
 * (the last checkpoint was not written), those of its parts. */
lt_status lt_train_loop_run(const lt_train_loop *loop);

#endif
