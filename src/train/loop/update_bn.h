/* Running statistics of batch norms at the weights that are evaluated, which no training step has normalised with:
 * what torch.optim.swa_utils.update_bn() does. */
#ifndef LT_TRAIN_UPDATE_BN_H
#define LT_TRAIN_UPDATE_BN_H

#include "evaluate.h"

#include "lather/data_parallel.h"

typedef struct lt_update_bn {
    lt_dataset *train;
    lt_loader_config
        loader;           /* of training; max_batches: passes on each rank; rank and size are set */
    lt_data_parallel *dp; /* brings the ranks' statistics together; NULL: one rank */
    int64_t step;         /* which the statistics are of; below 0: of none */
} lt_update_bn;

/* The plain mean of the batches' statistics, whatever the running ones were; always the same batches. The values are
 * those of an evaluation; does nothing a second time in a step. Collective. Errors: those of its parts. */
lt_status lt_update_bn_run(lt_update_bn *u, const lt_evaluator *e, int64_t step);

#endif
