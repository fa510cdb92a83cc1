/* A model's loss and metrics over a data set. */
#ifndef LT_TRAIN_EVALUATE_H
#define LT_TRAIN_EVALUATE_H

#include "input.h"

#include "lather/checkpoint.h"
#include "lather/detail/run.h"
#include "lather/ext/task.h"
#include "lather/share.h"

/* What an evaluation works with. All borrowed. */
typedef struct lt_evaluator {
    lt_device *device;
    lt_tape *tape;
    lt_task task;
    lt_pass pass;
    lt_loader_config loader; /* limit may be above the count of samples; rank and size are set */
    lt_ranks *ranks;
    const lt_optim *optim;       /* the run's, which may average iterates; NULL: none */
    lt_share *share;             /* one turn for the whole of it; NULL: none */
    lt_run *run;                 /* shows how far it is, lists bad samples; may be NULL */
    bool (*stop)(void *context); /* whether this rank was asked to stop; NULL: never */
    void *context;
} lt_evaluator;

/* Collective; each sample is of one rank, also where their number does not divide. Errors: LT_E_ARG (the model has
 * the optimizer's training sequence), those of its parts. */
lt_status lt_evaluate(const lt_evaluator *e, lt_dataset *data, lt_evaluation *out);

/* What the task's forward counts into, zeros; the caller frees it. NULL: the task counts nothing. */
lt_status lt_evaluator_counts(const lt_evaluator *e, lt_tensor **counts);

/* Of which samples an evaluation is, for its record; without val_samples and val_total it is of all, without
 * val_is_train of others than those trained on. e NULL: no evaluation. */
enum { EVALUATION_VALUES = 3 };
void lt_evaluation_values(const lt_evaluation *e, lt_metric out[EVALUATION_VALUES]);

/* Metrics of an epoch's record, of two parts at most: "train_loss", "train_top1", "val_loss", "val_top1", ... */
typedef struct lt_epoch_metrics {
    lt_metric metric[2 * (LT_TASK_METRICS + 1)]; /* their names are those below */
    char name[2 * (LT_TASK_METRICS + 1)][LT_CHECKPOINT_NAME];
    size_t count;
} lt_epoch_metrics;

/* "PART_NAME"; part and name are copied. */
void lt_epoch_metrics_add(lt_epoch_metrics *out, const char *part, const char *name, double value);
/* Loss and metrics of an evaluation; e NULL: there was none, NaN. */
void lt_epoch_metrics_add_evaluation(lt_epoch_metrics *out, const char *part,
                                     const lt_task_ops *task, const lt_evaluation *e);

#endif
