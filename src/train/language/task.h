/* Next-token prediction as a task: cross-entropy of each token's successor, perplexity, accuracy. */
#ifndef LT_TRAIN_LANGUAGE_TASK_H
#define LT_TRAIN_LANGUAGE_TASK_H

#include "lather/ext/task.h"
#include "lather/module.h"
#include "lather/tensor_parallel.h"

/* Context of lt_language_task. */
typedef struct language_model {
    lt_module *model;                   /* the model: ids [N,T] -> logits [N,T,V] */
    int64_t length;                     /* tokens of a sequence, T */
    const lt_tensor_parallel *parallel; /* ranks that shard the model; NULL: one rank */
    int64_t classes;                    /* ids of the vocabulary, V */
} language_model;

extern const lt_task_ops lt_language_task;

double lt_language_perplexity(const lt_task_sums *sums);
/* Returns the fraction of tokens predicted correctly, in percent. */
double lt_language_accuracy(const lt_task_sums *sums);
/* Returns the number of predicted tokens. */
double lt_language_target_count(const lt_task_sums *sums);

#endif
