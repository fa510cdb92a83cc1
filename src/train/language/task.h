/* Next-token prediction as a task: cross-entropy of each token's successor, perplexity, accuracy. */
#ifndef LT_TRAIN_LANGUAGE_TASK_H
#define LT_TRAIN_LANGUAGE_TASK_H

#include "lather/ext/task.h"
#include "lather/module.h"
#include "lather/tensor_parallel.h"

/* Context of lt_language_task. */
typedef struct language_model {
    lt_module *model;                   /* ids [N,T] -> logits [N,T,V] */
    int64_t length;                     /* T */
    const lt_tensor_parallel *parallel; /* ranks that shard the model; NULL: one rank */
    int64_t classes;                    /* V */
} language_model;

extern const lt_task_ops lt_language_task;

double lt_language_perplexity(const lt_task_sums *sums);
/* Returns a percentage. */
double lt_language_accuracy(const lt_task_sums *sums);
/* Returns the number of predicted tokens. */
double lt_language_target_count(const lt_task_sums *sums);

#endif
