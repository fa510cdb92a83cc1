/* Threads that make batches ahead, into a ring of slots, in an order that is fixed beforehand. */
#ifndef LT_DATA_RING_H
#define LT_DATA_RING_H

#include "data/loader/broken.h"
#include "data/loader/sample.h"
#include "data/loader/sampler.h"
#include "data/transform/mix.h"

typedef struct lt_ring lt_ring;

typedef struct lt_ring_config {
    const lt_dataset *dataset; /* borrowed */
    lt_transform transform;    /* checked */
    lt_size_schedule sizes;    /* checked; without steps: transform.size */
    lt_mix mix;                /* checked */
    lt_sampler sampler;
    lt_picture_cache *cache; /* borrowed; NULL: none */
    int64_t read_ahead;      /* samples */
    int batch, slots, threads;
    int64_t batches;  /* of an epoch */
    int64_t tries;    /* samples to look at in place of a broken one, itself included */
    bool keep_broken; /* none: zeros */
} lt_ring_config;

/* One batch. Owned by the threads until it is complete, then by the taker until the release. */
typedef struct lt_batch_slot {
    uint8_t *pixels; /* [count][size][size][channels], borrowed */
    int32_t *labels; /* [batch], borrowed */
    float *targets;  /* [batch][classes], borrowed; NULL without mix */
    lt_row *row;     /* [batch]; why is of report */
    int64_t number;  /* epoch * batches + batch within the epoch; -1: none */
    int size;        /* of this epoch's inputs */
    int count, done; /* samples */
    bool complete;   /* all are done, and mixed */
    lt_status status;
    int failed; /* place of the sample that status is of */
    char *why;
    lt_report *report; /* by place, then in the order met */
    size_t reports, capacity;
} lt_batch_slot;

/* Sums over all threads, and over what was taken. */
typedef struct lt_ring_times {
    double read_seconds, decode_seconds, resize_seconds, idle_seconds;
    int64_t starved,
        ready;  /* batches: not complete when they were to be taken; complete then, all */
    int queued; /* complete now */
} lt_ring_times;

/* Threads wait for lt_ring_seek(). Errors: LT_E_NOMEM. */
lt_status lt_ring_new(lt_ring **out, const lt_ring_config *config);
/* Waits for samples in work, drops them. */
void lt_ring_free(lt_ring **ring);
/* Where slot i's batch goes. Before the first seek. */
void lt_ring_set_memory(lt_ring *ring, int slot, uint8_t *pixels, int32_t *labels, float *targets);

/* Goes on with batch number; what was made ahead is dropped, what was taken is released. */
void lt_ring_seek(lt_ring *ring, int64_t number);
/* Waits for the next batch. */
const lt_batch_slot *lt_ring_take(lt_ring *ring, int *slot);
/* The batch behind the one that was taken, if it is complete; NULL: not yet. */
const lt_batch_slot *lt_ring_peek(lt_ring *ring);
/* Gives back what was taken last. */
void lt_ring_release(lt_ring *ring);

lt_ring_times lt_ring_statistics(lt_ring *ring);

#endif
