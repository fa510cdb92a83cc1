/* Image classification as a task: softmax cross entropy, top-1 and top-5 accuracy. */
#ifndef LT_TRAIN_CLASSIFY_TASK_H
#define LT_TRAIN_CLASSIFY_TASK_H

#include "lather/ext/task.h"
#include "lather/module.h"
#include "lather/ops.h"

struct details;

/* The context of lt_classification_task. */
typedef struct classification {
    lt_module *model;
    lt_normalize_config pixels; /* of u8 images; inputs of other dtypes go in as they are */
    double label_smoothing;     /* of training */
    struct details *details;    /* what evaluations collect; NULL: nothing */
} classification;

extern const lt_task_ops lt_classification_task;

/* Percent. */
double lt_classification_top1(const lt_task_sums *sums);
double lt_classification_top5(const lt_task_sums *sums);

#endif
