/* Random floats of all kinds, the same each time. */
#ifndef LT_TESTS_CPU_RANDOM_FLOATS_H
#define LT_TESTS_CPU_RANDOM_FLOATS_H

#include <stdint.h>

static uint64_t seed = 88172645463325252U;

/* Marsaglia's xorshift, 2003. */
static inline uint32_t random_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

/* Zeros, the smallest and largest of each kind, infinities, NaNs quiet and not, ties of bf16 and of integers. */
static const uint32_t special[] = {
    0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00008000, 0x00800000, 0x80800000, 0x7F7FFFFF,
    0x7F7F8000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001, 0x7F808000, 0x3F800000,
    0xBF800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F000000, 0xBF000000, 0x3FC00000, 0x40200000,
    0x4AFFFFFF, 0x4B000001, 0x43160000, 0xC3160000, 0xC2FC0000, 0x3F7FFFFF, 0x00FFFFFF, 0x01000000};

static inline uint32_t random_float(void)
{
    const uint32_t u = random_bits(), near_one = (u & 0x807FFFFF) | (119 + (u >> 27)) << 23;
    switch (random_bits() % 8) {
    case 0:
        return u; /* any */
    case 1:
        return special[u % (sizeof special / sizeof *special)];
    case 2:
        /* about the smallest normal one, or powers of 2 there */
        return (u & (u & 1 << 28 ? 0x80000000 : 0x807FFFFF)) | (u >> 25 & 3) << 23;
    case 3:
        return (u & 0x807FFFFF) | (48 + (u >> 28)) << 23; /* whose products are */
    case 4:
        return near_one & 0xFFFF8000; /* ties, few bits */
    default:
        return near_one;
    }
}

#endif
