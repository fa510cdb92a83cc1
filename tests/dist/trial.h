/* A small model trained by ranks that are threads of the test program. */
#ifndef LT_TESTS_DIST_TRIAL_H
#define LT_TESTS_DIST_TRIAL_H

#include "lather/data_parallel.h"

#include <stdint.h>

enum { MAX_RANKS = 8, SAMPLES = 24, MAX_VALUES = 600, TRIAL_STEPS = 3, RANKS_MESSAGE = 256 };

/* What to train, and what is done to it. */
typedef struct trial {
    int ranks;
    bool f64;           /* else f32 on the cpu device */
    bool has_norm;      /* batch norm behind the convolution */
    int accum;          /* micro-batches of an update; 0: 1 */
    bool extra_on_zero; /* only rank 0's loss depends on the parameter "extra" */
    bool swapped;       /* odd ranks finish two gradients in the other order */
    int idle;           /* so many of the last ranks have no batch */
    int poisoned;       /* rank + 1 whose image holds a NaN; 0: none */
    int disturbed;      /* rank + 1 that changes a parameter on its own; 0: none */
    bool divided;       /* gradients and state, over ranks */
    int other_shape;    /* rank + 1 whose last layer is another; 0: none */
    int per_node;       /* ranks of a node; 0: nodes are not known */
    lt_data_parallel_config config;
} trial;

/* What a rank ends with. */
typedef struct outcome {
    lt_status status;
    char message[RANKS_MESSAGE];
    int values;
    double value[MAX_VALUES]; /* of all parameters, one after the other */
    double mean[4], var[4];   /* running statistics after lt_data_parallel_statistics() */
    double gradient_of_extra[5];
    bool extra_has_grad, unused_has_grad, applied;
    uint64_t update_bytes; /* sent in the last update */
    double exposed;
} outcome;

/* Trains on all ranks; out[rank]. ranks 1: alone, on the whole batch. */
void trial_run(const trial *t, outcome *out);

#endif
