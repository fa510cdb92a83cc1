/* One update of a run: a few micro-batches, then the optimizer. */
#ifndef UPDATE_H
#define UPDATE_H

#include "session.h"

/* What one update showed. */
typedef struct update {
    double loss; /* mean over its micro-batches */
    int64_t images, correct;
    double seconds, data_seconds, lr, grad_norm;
    double exposed_seconds, comm_bytes; /* of this rank */
    int queued;                         /* batches that were ready for the last micro-batch */
    bool applied;
    int64_t steps;     /* applied so far */
    double loss_scale; /* of the next update */
} update;

/* update.c */
lt_status session_update(session *s, update *u);

#endif
