/* Order of samples in an epoch: a pseudo-random permutation that is computed per position, without a table. */
#ifndef LT_DATA_SAMPLER_H
#define LT_DATA_SAMPLER_H

#include "lather/data.h"

typedef struct lt_sampler {
    int64_t count; /* samples per epoch, of all ranks */
    int rank, size;
    uint64_t seed;
    bool shuffle, drop_last;
    int64_t spread; /* size of the data set to take count samples from evenly; 0: the first count */
    int repeats;    /* consecutive positions with the same sample; 0: 1 */
    /* samples of a batch and batches of a rank per update: batch m of rank r takes consecutive positions as number
     * r * accum + m of the update's batches, so they do not depend on the number of ranks; 0: positions rank,
     * rank + size, ... */
    int64_t batch, accum;
    /* Samples by class, for positions that draw a class with equal probability and one of its samples, with
     * replacement: begins of the classes in index, [classes + 1]; classes 0: off. */
    int64_t classes, *first, *index;
} lt_sampler;

/* Lists the samples of each class that has any in *memory, the caller's for lt_free(). Errors: LT_E_NOMEM,
 * LT_E_FORMAT (a label out of range), LT_E_IO. */
LT_MUST_CHECK lt_status lt_sampler_balance(lt_sampler *sampler, int64_t **memory,
                                           const lt_dataset *dataset);

/* Returns the value at a position of the epoch's permutation of 0 .. count-1. */
int64_t lt_sampler_permute(int64_t count, uint64_t seed, int64_t epoch, int64_t position);

/* Returns the number of samples of this rank per epoch. */
int64_t lt_sampler_rank_samples(const lt_sampler *sampler);
/* Returns the data set index of this rank's i-th sample. */
int64_t lt_sampler_index(const lt_sampler *sampler, int64_t epoch, int64_t i);
/* Returns the seed of the random numbers for this rank's i-th sample if the sample with this index is used: a function
 * of seed, epoch, index and, from the second repeat on, the repeat. */
uint64_t lt_sampler_sample_key(const lt_sampler *sampler, int64_t epoch, int64_t i, int64_t index);

/* Returns lt_record.epoch_key: a function of seed and epoch; 0 without shuffle. */
uint64_t lt_sampler_epoch_key(const lt_sampler *sampler, int64_t epoch);

#endif
