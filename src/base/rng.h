/* Counter-based random numbers: Philox4x32-10.
 * Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef LT_BASE_RNG_H
#define LT_BASE_RNG_H

#include "base/inline.h"

#include <stdint.h>

/* Writes four independent 32-bit words for one (key, counter); a pure function. */
LT_PURE void lt_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4])
{
    enum { ROUNDS = 10 };
    const uint32_t m0 = 0xD2511F53U, m1 = 0xCD9E8D57U; /* Philox's multipliers, section 4.3 */
    const uint32_t w0 = 0x9E3779B9U, w1 = 0xBB67AE85U; /* Weyl constants of Philox's key schedule */
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)m0 * c0, p1 = (uint64_t)m1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += w0;
        k1 += w1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Separates independent streams of one seed; comments list the words of the key. */
typedef enum lt_stream {
    LT_STREAM_AUGMENT = 1, /* augmentation of samples: (seed, epoch, global index) */
    LT_STREAM_ORDER,       /* order of samples: (seed, epoch) */
    LT_STREAM_MIX,         /* mixup and cutmix: (seed, epoch, batch, rank), or (.., step, shard) */
    LT_STREAM_DROPOUT,     /* dropout: (seed, attempt, micro-batch, operation ordinal, element) */
    LT_STREAM_INIT,        /* initial values: (seed, parameter name) */
    LT_STREAM_DATA,        /* synthetic samples: (seed, index) */
    LT_STREAM_SAMPLE,      /* sampled ids of a language model: (seed, text, position) */
    LT_STREAM_COMPRESS,    /* initial vectors of low-rank compression: (column, parameter name) */
    LT_STREAM_ROUND, /* stochastic rounding of state: (parameter name, state, block), (attempt, element) */
    LT_STREAM_SPLIT /* samples to hold back: (seed, sample name or index) */
} lt_stream;

/* Mixes words into a stream's key. Each step is a Philox call, so that collisions are as unlikely as for 64-bit random
 * numbers. */
uint64_t lt_rng_key(uint64_t seed, lt_stream stream, uint64_t a, uint64_t b);
/* Mixes a name into a stream's key. */
uint64_t lt_rng_name_key(uint64_t seed, lt_stream stream, const char *name);

/* Generator of a sequence from one key; initialise with {.key = ...}. */
typedef struct lt_rng {
    uint64_t key, counter;
    uint32_t word[4];
    int used; /* words consumed of the current four; 0 initially */
} lt_rng;

uint32_t lt_rng_u32(lt_rng *rng);
/* Returns a uniform number in [0,1), 53 bits. */
double lt_rng_uniform(lt_rng *rng);
/* Returns an unbiased uniform integer in 0 .. bound-1 (Lemire 2019). bound >= 1. */
uint32_t lt_rng_below(lt_rng *rng, uint32_t bound);
/* Returns a standard normal number (Box & Muller 1958). */
double lt_rng_normal(lt_rng *rng);

#endif
