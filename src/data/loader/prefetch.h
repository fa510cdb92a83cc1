/* Prefetch queue: threads make batches ahead of their consumer, into a ring buffer of slots, in the
 * sampler's order. */
#ifndef LT_DATA_PREFETCH_H
#define LT_DATA_PREFETCH_H

#include "data/loader/corrupt_samples.h"
#include "data/loader/sample.h"
#include "data/loader/sampler.h"
#include "data/transform/mix.h"

typedef struct lt_prefetch lt_prefetch;

typedef struct lt_prefetch_config {
    const lt_dataset *dataset; /* borrowed */
    lt_transform transform;    /* checked */
    lt_size_schedule sizes;    /* checked; without steps: transform.size */
    lt_mix mix;                /* checked */
    lt_sampler sampler;
    lt_image_cache *cache; /* borrowed; NULL: none */
    int64_t read_ahead;    /* samples */
    int batch, slots, threads;
    int64_t batches;  /* of an epoch */
    int64_t tries;    /* samples tried in place of a broken one, itself included */
    bool keep_broken; /* not replaced: zeros */
} lt_prefetch_config;

/* One batch. Owned by the threads until it is complete, then by the consumer until the release. */
typedef struct lt_batch_slot {
    uint8_t *pixels; /* [count][size][size][channels], borrowed */
    int32_t *labels; /* [batch], borrowed */
    float *targets;  /* [batch][classes], borrowed; NULL without mix */
    lt_row *row;     /* [batch]; why is of report */
    int64_t number;  /* epoch * batches + batch within the epoch; -1: none */
    int size;        /* of this epoch's inputs */
    int count, done; /* samples */
    bool complete;   /* all samples are done, and mixed */
    lt_status status;
    int failed; /* place of the sample that failed with status */
    char *why;
    lt_broken_sample *report; /* broken samples, by place, then in the order they were tried */
    size_t reports, capacity;
} lt_batch_slot;

/* Sums over all threads and over all batches taken. */
typedef struct lt_prefetch_times {
    double read_seconds, decode_seconds, resize_seconds, idle_seconds;
    int64_t starved; /* batches that were not complete when they were to be taken */
    int64_t ready;   /* complete batches at each take, summed */
    int queued;      /* complete batches now */
} lt_prefetch_times;

/* Starts the threads, which wait for lt_prefetch_seek(). Errors: LT_E_NOMEM. */
lt_status lt_prefetch_new(lt_prefetch **out, const lt_prefetch_config *config);
/* Waits for the samples being worked on and drops them. */
void lt_prefetch_free(lt_prefetch **queue);
/* Where slot i's batch goes. Before the first seek. */
void lt_prefetch_set_memory(lt_prefetch *queue, int slot, uint8_t *pixels, int32_t *labels,
                            float *targets);

/* Continues with this batch number: drops batches made ahead, releases the one that was taken. */
void lt_prefetch_seek(lt_prefetch *queue, int64_t number);
/* Waits for the next batch. */
const lt_batch_slot *lt_prefetch_take(lt_prefetch *queue, int *slot);
/* The batch after the one that was taken; NULL: it is not complete. */
const lt_batch_slot *lt_prefetch_peek(lt_prefetch *queue);
/* Gives the taken batch's slot back to the threads. */
void lt_prefetch_release(lt_prefetch *queue);

lt_prefetch_times lt_prefetch_statistics(lt_prefetch *queue);

#endif
