/* Order of samples: a pseudo-random permutation computed per place, without a table. */
#ifndef LT_DATA_SAMPLER_H
#define LT_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct lt_sampler {
    int64_t count; /* samples of an epoch, all ranks together */
    int rank, size;
    uint64_t seed;
    bool shuffle, drop_last;
    int64_t
        spread; /* size of the data set, over which count samples are spread evenly; 0: the first */
    int repeats; /* of a sample, in neighbouring places of the epoch's order; 0: 1 */
} lt_sampler;

/* Place of the index in the epoch's order: a permutation of 0 .. count-1. */
int64_t lt_sampler_permute(int64_t count, uint64_t seed, int64_t epoch, int64_t place);

/* Samples of this rank in an epoch, before batches are made. */
int64_t lt_sampler_share(const lt_sampler *sampler);
/* Data set index of this rank's sample number i, 0 .. share-1. */
int64_t lt_sampler_index(const lt_sampler *sampler, int64_t epoch, int64_t i);
/* Key of the random numbers of this rank's sample number i, if it is the one with that index: a
 * function of seed, epoch, index, and of the repeat from the second on. */
uint64_t lt_sampler_key(const lt_sampler *sampler, int64_t epoch, int64_t i, int64_t index);

/* As lt_record has it: of seed and epoch, 0 without shuffle. */
uint64_t lt_sampler_epoch_key(const lt_sampler *sampler, int64_t epoch);

#endif
