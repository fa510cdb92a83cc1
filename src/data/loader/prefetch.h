/* Prefetch queue: threads make batches ahead of the consumer, in the sampler's order, into a ring buffer of slots. */
#ifndef LT_DATA_PREFETCH_H
#define LT_DATA_PREFETCH_H

#include "data/loader/corrupt_samples.h"
#include "data/loader/sample.h"
#include "data/loader/sampler.h"
#include "data/transform/mix.h"

typedef struct lt_prefetch lt_prefetch;

typedef struct lt_prefetch_config {
    const lt_dataset *dataset; /* data set to read; borrowed */
    lt_transform transform;    /* transform of the samples; checked */
    lt_size_schedule sizes;    /* sides per epoch; checked; if empty, the side is transform.size */
    lt_mix mix;                /* mixup and cutmix; checked */
    lt_sampler sampler;
    lt_image_cache *cache; /* cache of decoded images; borrowed; may be NULL */
    int64_t read_ahead;    /* number of samples to read ahead of the decoders */
    int batch, slots, threads;
    int64_t batches;   /* number of batches per epoch */
    int64_t tries;     /* samples to try for a row, including the first */
    bool keep_corrupt; /* makes a corrupt sample zeros; false: replaces it by the next one */
} lt_prefetch_config;

/* A batch. The threads own it until it is complete, then the consumer until the release. */
typedef struct lt_batch_slot {
    uint8_t *pixels; /* inputs [count][size][size][channels], borrowed */
    int32_t *labels; /* [batch] or [batch][length] labels, borrowed */
    float *targets;  /* [batch][classes], borrowed; NULL without mixup and cutmix */
    lt_row *row;     /* [batch] origin of each row; why points into report */
    int64_t number;  /* epoch * batches + index in the epoch; -1 if unused */
    int size;        /* side of the inputs in pixels */
    int count, done; /* samples of the batch; samples made so far */
    bool complete;   /* all samples are done and mixed */
    lt_status status;
    int failed; /* lowest row that failed; status and why are from it */
    char *why;
    lt_corrupt_sample *report; /* corrupt samples by row, then in the order of the tries */
    size_t reports, capacity;
} lt_batch_slot;

/* Statistics of a queue: sums over all threads, and over all batches acquired. */
typedef struct lt_prefetch_times {
    double read_seconds, decode_seconds, resize_seconds, idle_seconds;
    int64_t starved; /* batches that were incomplete when lt_prefetch_acquire() was called */
    int64_t ready;   /* sum over these calls of the number of complete batches */
    int queued;      /* batches that are complete now */
} lt_prefetch_times;

/* Starts the threads, which wait for lt_prefetch_seek(). Errors: LT_E_NOMEM. */
lt_status lt_prefetch_new(lt_prefetch **out, const lt_prefetch_config *config);
/* Waits for the samples in progress, discards all batches and frees the queue. */
void lt_prefetch_free(lt_prefetch **queue);
/* Sets the memory of a slot's batch. Must be called for all slots before the first seek. */
void lt_prefetch_set_slot_buffers(lt_prefetch *queue, int slot, uint8_t *pixels, int32_t *labels,
                                  float *targets);

/* Continues with this batch number: discards batches made ahead and releases the acquired one. */
void lt_prefetch_seek(lt_prefetch *queue, int64_t number);
/* Waits for the next batch. Sets *slot to its index. */
const lt_batch_slot *lt_prefetch_acquire(lt_prefetch *queue, int *slot);
/* Returns the batch after the acquired one, or NULL if it is incomplete. */
const lt_batch_slot *lt_prefetch_peek(lt_prefetch *queue);
/* Returns the acquired slot to the threads. */
void lt_prefetch_release(lt_prefetch *queue);

lt_prefetch_times lt_prefetch_statistics(lt_prefetch *queue);

#endif
