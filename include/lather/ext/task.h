/** For writers of tasks: what a model is trained for. A batch becomes a loss, counts become metrics. */
#ifndef LATHER_EXT_TASK_H
#define LATHER_EXT_TASK_H

#include "lather/loader.h"
#include "lather/tape.h"

enum { LT_TASK_COUNTS = 5, LT_TASK_METRICS = 8 };

/** What was summed up over micro-batches, over ranks, over an epoch. */
typedef struct lt_task_sums {
    double loss;                  /**< mean over the samples, or over lt_task_ops.terms */
    double samples;               /**< rows of batches */
    double count[LT_TASK_COUNTS]; /**< that lt_task_ops.forward counted */
} lt_task_sums;

/** A number that says how good a model is. */
typedef struct lt_task_metric {
    const char
        *name; /**< of the field in records: "top1"; an epoch's are "train_top1", "val_top1" */
    const char *label;    /**< in messages: "top-1". Required, as name is */
    const char *unit;     /**< in messages, behind a blank: "%"; NULL: none */
    bool of_training;     /**< in records of training too; else of evaluations alone */
    bool lower_is_better; /**< as a perplexity; else higher, as an accuracy */
    double (*value)(const lt_task_sums *sums); /**< samples is above 0. Required */
} lt_task_metric;

/** A batch's results. The tape owns both. */
typedef struct lt_task_output {
    lt_tensor *loss;   /**< [], mean over the batch's samples */
    lt_tensor *output; /**< of the model, for lt_task_ops.observe; may be NULL */
} lt_task_output;

/** The table of a task. All entries are called on the tape's thread. */
typedef struct lt_task_ops {
    const char *name; /**< in messages */
    const char *unit,
        *unit_short; /**< of samples, plural, in records and in the bar: "images", "img"; unit_short: NULL is unit */
    /** Where speeds are not of samples: of what, "tokens" and "tok", and how many of these a sample is.
     *  All NULL: of samples. */
    const char *rate_unit, *rate_unit_short;
    int64_t (*rate_per_sample)(const void *context);
    int counts; /**< that forward adds up; at most LT_TASK_COUNTS */
    const char *
        count_name[LT_TASK_COUNTS]; /**< of each, in checkpoints: "correct"; NULL: it is not kept */
    /** 1 + index of the count that says over how many terms a batch's loss is the mean, as tokens that
     *  are predicted: a mean over several batches weighs each by its terms. 0: over samples. */
    int terms;
    const lt_task_metric
        *metric; /**< table of metrics besides the loss, whose means are known; those
                                              of training from counts that checkpoints keep; may be NULL */
    int metrics; /**< at most LT_TASK_METRICS */
    int best; /**< index of the metric (without metrics: the loss) that says which checkpoint is the best and whether a target is reached */
    /** Required. The batch's loss, on the tape, and for each count what the batch adds to it, in counts
     *  [counts] LT_I64 on the device (NULL if there are none). lt_tape_pass() tells training (record) from
     *  evaluation. In training it may be captured in a graph: as lt_step_fn in lather/graph.h says, neither
     *  a read-back nor a choice by what is on the device. Errors: the tape's. */
    lt_status (*forward)(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out);
    /** Optional. Sees each batch of an evaluation with its output, behind forward; may read both. */
    lt_status (*observe)(void *context, lt_tape *tape, const lt_batch *batch,
                         const lt_task_output *out);
} lt_task_ops;

/** What an evaluation found. */
typedef struct lt_evaluation {
    lt_task_sums sums;      /**< of all ranks; samples: 1 if there were none */
    int64_t samples, total; /**< evaluated; in the data set */
    double seconds;
    bool unsplit; /**< the data set has no split: these are its training images */
    bool stopped; /**< a rank was asked to: the numbers are of a part */
} lt_evaluation;

/** A task and what its entries get. Both borrowed. */
typedef struct lt_task {
    const lt_task_ops *ops;
    void *context;
} lt_task;

#endif
