/* Recomputes batch norm's running statistics for averaged weights, which no training step has normalized with;
 * torch.optim.swa_utils.update_bn(). */
#ifndef LT_TRAIN_UPDATE_BN_H
#define LT_TRAIN_UPDATE_BN_H

#include "evaluate.h"

#include "lather/data_parallel.h"

typedef struct lt_update_bn {
    lt_dataset *train;
    /* the loader of training; max_batches: batches on each rank */
    lt_loader_config loader;
    lt_data_parallel *dp; /* averages the statistics over ranks; NULL: one rank */
    int64_t step;         /* step that the present statistics were computed for; negative: none */
} lt_update_bn;

/* Computes the mean of the batches' statistics, always of the same batches. The model must have the evaluation
 * weights. Does nothing if called again in the same step. Collective. Errors: those of its parts. */
lt_status lt_update_bn_run(lt_update_bn *u, const lt_evaluator *e, int64_t step);

#endif
