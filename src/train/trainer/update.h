/* One update of a run: a few micro-batches, then the optimizer. */
#ifndef UPDATE_H
#define UPDATE_H

#include "session.h"

/* What one update showed. */
typedef struct update {
    int64_t step; /* its number, from 1 */
    double loss;  /* mean over its micro-batches */
    int64_t images, correct;
    double begin, seconds, data_seconds, lr, grad_norm;
    double exposed_seconds, comm_bytes; /* of this rank */
    int queued;                         /* batches that were ready for the last micro-batch */
    bool applied;
    int64_t steps;     /* applied so far */
    double loss_scale; /* of the next update */
    bool may_wait;     /* its results may be read after the next update was queued */
    lt_run_value shampoo[SHAMPOO_VALUES];
} update;

/* update.c: puts an update on its way, number state.step + 1. */
lt_status session_update(session *s, update *u);
/* Its results, in the order of updates; at most one more may be on its way. Errors: LT_E_ARG (a
 * gradient is not finite, and that is not to be passed over), LT_E_DEVICE. */
lt_status session_update_finish(session *s, update *u);

#endif
