/* Evaluation of a model: its loss and metrics over a data set. */
#ifndef LT_TRAIN_EVALUATE_H
#define LT_TRAIN_EVALUATE_H

#include "input.h"

#include "lather/checkpoint.h"
#include "lather/detail/run.h"
#include "lather/ext/task.h"
#include "lather/share.h"

/* The parts of an evaluation; all borrowed. */
typedef struct lt_evaluator {
    lt_device *device;
    lt_tape *tape;
    lt_task task;
    lt_pass pass;
    lt_loader_config
        loader; /* limit may exceed the number of samples; rank and size are set here */
    lt_ranks *ranks;
    const lt_optim *optim; /* the run's optimizer, which may average weights; NULL if absent */
    lt_share *share; /* one time slice for the whole evaluation; NULL: the device is not shared */
    lt_run *run;     /* shows progress and lists corrupt samples; may be NULL */
    bool (*stop)(void *context); /* returns true if this rank was asked to stop; NULL: never */
    void *context;
} lt_evaluator;

/* Evaluates the model; each sample is read by exactly one rank, even if their number does not divide. Sets
 * ranks->stop if a rank was asked to stop. Collective. Errors: LT_E_ARG (the model has an averaging optimizer's
 * training weights), those of its parts. */
lt_status lt_evaluate(const lt_evaluator *e, lt_dataset *data, lt_evaluation *out);

/* Makes the zeroed counts that the task's forward adds to, which the caller frees; NULL if the task counts
 * nothing. */
lt_status lt_evaluator_new_counts(const lt_evaluator *e, lt_tensor **counts);

/* Returns the values that describe the evaluated samples: val_samples and val_total if not all, val_is_train if
 * those trained on, else NaN. e NULL: no evaluation, all NaN. */
enum { EVALUATION_VALUES = 3 };
void lt_evaluation_sample_metrics(const lt_evaluation *e, lt_metric out[EVALUATION_VALUES]);

/* Metrics of an epoch's record, of up to two parts: "train_loss", "train_top1", "val_loss", "val_top1", ... */
typedef struct lt_epoch_metrics {
    lt_metric metric[2 * (LT_TASK_METRICS + 1)]; /* named by the array below */
    char name[2 * (LT_TASK_METRICS + 1)][LT_CHECKPOINT_NAME];
    size_t count;
} lt_epoch_metrics;

/* Adds "PART_NAME"; part and name are copied. */
void lt_epoch_metrics_add(lt_epoch_metrics *out, const char *part, const char *name, double value);
/* Adds loss and metrics of an evaluation; e NULL: no evaluation, all NaN. */
void lt_epoch_metrics_add_evaluation(lt_epoch_metrics *out, const char *part,
                                     const lt_task_ops *task, const lt_evaluation *e);

#endif
