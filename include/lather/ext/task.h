/** For authors of tasks: the objective of training. A batch becomes a loss, counts become metrics. */
#ifndef LATHER_EXT_TASK_H
#define LATHER_EXT_TASK_H

#include "lather/loader.h"
#include "lather/tape.h"

enum { LT_TASK_COUNTS = 5, LT_TASK_METRICS = 8 };

/** Sums over micro-batches, ranks and an epoch. */
typedef struct lt_task_sums {
    double loss;                  /**< mean loss over the samples, or over lt_task_ops.terms */
    double samples;               /**< number of samples: rows of batches */
    double count[LT_TASK_COUNTS]; /**< counts that lt_task_ops.forward adds up */
} lt_task_sums;

/** A measure of a model's quality. */
typedef struct lt_task_metric {
    /** name of the field in records: "top1"; in an epoch's "train_top1", "val_top1" */
    const char *name;
    const char *label;    /**< label in messages: "top-1". Required, as name is */
    const char *unit;     /**< unit in messages, after a blank: "%"; NULL if none */
    bool of_training;     /**< reported for training too, otherwise only for evaluations */
    bool lower_is_better; /**< lower values are better, as for a perplexity; otherwise higher */
    double (*value)(const lt_task_sums *sums); /**< value; sums->samples is above 0. Required */
} lt_task_metric;

/** Results of a batch, owned by the tape. */
typedef struct lt_task_output {
    lt_tensor *loss;   /**< loss [], the mean over the batch's samples */
    lt_tensor *output; /**< output of the model, for lt_task_ops.observe; may be NULL */
} lt_task_output;

/** The table of a task. All entries are called on the tape's thread. */
typedef struct lt_task_ops {
    const char *name; /**< name of the task in messages */
    /** plural name of samples, in records and in the bar: "images", "img"; unit_short NULL: unit */
    const char *unit, *unit_short;
    /** If speeds are not in samples: their unit, "tokens" and "tok", and how many a sample has. All NULL: samples. */
    const char *rate_unit, *rate_unit_short;
    int64_t (*rate_per_sample)(const void *context);
    int counts; /**< number of counts that forward adds up; at most LT_TASK_COUNTS */
    /** names of the counts in checkpoints: "correct"; NULL: not stored */
    const char *count_name[LT_TASK_COUNTS];
    /** 1 + index of the count of terms that a batch's loss is the mean of, such as predicted tokens: a mean over
     *  several batches weights each by its terms. 0: samples. */
    int terms;
    /** table of metrics in addition to the loss; those of training are computed from counts that checkpoints
     *  store; may be NULL */
    const lt_task_metric *metric;
    int metrics; /**< number of metrics, at most LT_TASK_METRICS */
    /** index of the metric (without metrics: the loss) that determines the best checkpoint and the target */
    int best;
    /** Required. Computes the batch's loss on the tape, and adds the batch's counts to counts, [counts] LT_I64 on
     *  the device (NULL without counts). lt_tape_pass() distinguishes training (record) from evaluation. Training
     *  may capture it in a graph: as for lt_step_fn in lather/graph.h, no read-back and no branch on device data.
     *  Errors: the tape's. */
    lt_status (*forward)(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out);
    /** Optional. Called after forward for each batch of an evaluation; may read the batch and its output. */
    lt_status (*observe)(void *context, lt_tape *tape, const lt_batch *batch,
                         const lt_task_output *out);
} lt_task_ops;

/** Results of an evaluation. */
typedef struct lt_evaluation {
    lt_task_sums sums;      /**< sums over all ranks; sums.samples is 1 if nothing was evaluated */
    int64_t samples, total; /**< samples evaluated; samples in the data set */
    double seconds;
    bool unsplit; /**< the data set has no split: these are its training images */
    bool stopped; /**< a rank was asked to stop: only part of the data was evaluated */
} lt_evaluation;

/** A task and the context of its entries. Both borrowed. */
typedef struct lt_task {
    const lt_task_ops *ops;
    void *context;
} lt_task;

#endif
