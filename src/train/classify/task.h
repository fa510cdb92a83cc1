/* Image classification as a task: softmax cross entropy, top-1 and top-5 accuracy. */
#ifndef LT_TRAIN_CLASSIFY_TASK_H
#define LT_TRAIN_CLASSIFY_TASK_H

#include "lather/ext/task.h"
#include "lather/module.h"
#include "lather/ops.h"

/* The context of lt_classification_task. */
typedef struct classification {
    lt_module *model;
    lt_normalize_config pixels; /* of u8 images; inputs of other dtypes go in as they are */
    double label_smoothing;     /* of training */
    /* Of evaluations, after each batch; NULL: nothing. Reads labels and images, too. */
    lt_status (*collect)(void *collector, lt_tape *tape, const lt_batch *batch, lt_tensor *logits);
    void *collector;
} classification;

extern const lt_task_ops lt_classification_task;

/* Percent. */
double lt_classification_top1(const lt_task_sums *sums);
double lt_classification_top5(const lt_task_sums *sums);

/* The softmax of logits, in their place. */
void lt_classification_softmax(double *logits, int classes);

#endif
