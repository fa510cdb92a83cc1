/* Image classification as a task: softmax cross-entropy, top-1 and top-5 accuracy. */
#ifndef LT_TRAIN_CLASSIFY_TASK_H
#define LT_TRAIN_CLASSIFY_TASK_H

#include "lather/ext/task.h"
#include "lather/module.h"
#include "lather/ops.h"

/* Context of lt_classification_task. */
typedef struct classification {
    lt_module *model;
    lt_normalize_config
        pixels; /* normalization of u8 images; inputs of other dtypes are not normalized */
    double label_smoothing;  /* smoothing of labels in training */
    lt_tensor *class_weight; /* [classes] factors of the loss in training, or NULL */
    lt_tensor *mirror;       /* [width] reversed columns: evaluate mirror images, too; or NULL */
    lt_tensor *shift[2]; /* [width] rows and columns of shifted images to evaluate, too; or NULL */
    /* Callback after each batch of an evaluation; may read labels and images. May be NULL. */
    lt_status (*collect)(void *collector, lt_tape *tape, const lt_batch *batch, lt_tensor *logits);
    void *collector;
} classification;

extern const lt_task_ops lt_classification_task;

/* Returns logits of normalized images x; in evaluations with mirror their mean over images and mirror images, half of
 * it over shifted ones if there are any. */
lt_tensor *lt_classification_logits(const classification *c, lt_tape *tape, lt_tensor *x);
/* Return the accuracies in percent. */
double lt_classification_top1(const lt_task_sums *sums);
double lt_classification_top5(const lt_task_sums *sums);

/* Computes the softmax of logits in place. */
void lt_classification_softmax(double *logits, int classes);

#endif
