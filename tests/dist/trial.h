/* Training of a small model on ranks that are threads. */
#ifndef LT_TESTS_DIST_TRIAL_H
#define LT_TESTS_DIST_TRIAL_H

#include "lather/data_parallel.h"

#include <stdint.h>

enum { MAX_RANKS = 8, SAMPLES = 24, MAX_VALUES = 600, TRIAL_STEPS = 3, RANKS_MESSAGE = 256 };

/* Configuration of a training run. */
typedef struct trial {
    int ranks;
    bool f64;           /* else f32 on the cpu device */
    bool has_norm;      /* batch norm after the convolution */
    int accum;          /* micro-batches of an update; 0: 1 */
    bool extra_on_zero; /* only rank 0's loss depends on the parameter "extra" */
    bool swapped;       /* odd ranks finish two gradients in the opposite order */
    int idle;           /* number of last ranks without a batch */
    int poisoned;       /* rank + 1 whose image contains a NaN; 0: no rank */
    int disturbed;      /* rank + 1 that changes a parameter separately; 0: no rank */
    bool divided;       /* shard gradients and state */
    int other_shape;    /* rank + 1 whose last layer differs; 0: no rank */
    int per_node;       /* ranks per node; 0: nodes are unknown */
    bool graphs;        /* the device has graphs, though no step is captured */
    bool captures;      /* the first step is captured */
    lt_data_parallel_config config;
} trial;

/* Results of a rank. */
typedef struct outcome {
    lt_status status;
    char message[RANKS_MESSAGE];
    int values;
    double value[MAX_VALUES]; /* values of all parameters, concatenated */
    double mean[4], var[4];   /* running statistics after lt_data_parallel_sync_statistics() */
    double gradient_of_extra[5];
    bool extra_has_grad, unused_has_grad, applied;
    uint64_t update_bytes; /* sent in the last update */
    double exposed;
} outcome;

/* Trains on all ranks and sets out[rank]. A single rank gets the whole batch. */
void trial_run(const trial *t, outcome *out);

#endif
