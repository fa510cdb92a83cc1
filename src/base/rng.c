/* Streams and sequences of counter-based random numbers. */

#include "base/rng.h"

#include "lather/ext/elementary.h"

#include <math.h>

uint64_t lt_rng_key(uint64_t seed, lt_stream stream, uint64_t a, uint64_t b)
{
    uint32_t w[4];
    lt_philox(seed, (uint64_t)stream, a, w);
    lt_philox((uint64_t)w[1] << 32 | w[0], (uint64_t)w[3] << 32 | w[2], b, w);
    return (uint64_t)w[1] << 32 | w[0];
}

uint64_t lt_rng_name_key(uint64_t seed, lt_stream stream, const char *name)
{
    uint64_t key = lt_rng_key(seed, stream, 0, 0);
    for (const char *c = name; *c; c++)
        key = lt_rng_key(key, stream, (uint8_t)*c, 1);
    return key;
}

uint32_t lt_rng_u32(lt_rng *rng)
{
    if (!(rng->used & 3)) {
        lt_philox(rng->key, 0, rng->counter++, rng->word);
        rng->used = 0;
    }
    return rng->word[rng->used++];
}

double lt_rng_uniform(lt_rng *rng)
{
    uint64_t high = lt_rng_u32(rng) >> 5, low = lt_rng_u32(rng) >> 6; /* 27 + 26 bits */
    return (double)(high << 26 | low) * 0x1p-53;
}

uint32_t lt_rng_below(lt_rng *rng, uint32_t bound)
{
    uint64_t product = (uint64_t)lt_rng_u32(rng) * bound;
    if ((uint32_t)product < bound) {
        uint32_t threshold = (0U - bound) % bound;
        while ((uint32_t)product < threshold)
            product = (uint64_t)lt_rng_u32(rng) * bound;
    }
    return (uint32_t)(product >> 32);
}

double lt_rng_normal(lt_rng *rng)
{
    const double two_pi = 6.283185307179586;
    double radius = sqrt(-2 * lt_f64_log(1 - lt_rng_uniform(rng))); /* 1 - u is never 0 */
    return radius * lt_f64_cos(two_pi * lt_rng_uniform(rng));
}
