/* Attributes of functions that compile for the device, and for the host in tests: C for nvcc and the host's
 * compiler. */
#ifndef LT_CUDA_HOST_DEVICE_H
#define LT_CUDA_HOST_DEVICE_H

#ifdef __CUDACC__
#define LT_HD   __host__ __device__ static inline
#define LT_PURE LT_HD
#else
#define LT_HD static inline
#endif

#include "base/rng.h"
#include "tensor/backend/dtype.h"

#include <stdbool.h>

/* Returns a / b for a, b >= 0. is_short: both are below 2^32, which a device divides many times faster. */
LT_HD int64_t lt_quotient(int64_t a, int64_t b, bool is_short)
{
    return is_short ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Division by a number that a launch knows, without an instruction that divides: Granlund & Montgomery, "Division by
 * invariant integers using multiplication", PLDI 1994, figure 4.1. */
typedef struct lt_divisor {
    uint32_t factor;
    int shift;
} lt_divisor;

LT_HD lt_divisor lt_make_divisor(uint32_t by)
{
    lt_divisor d;
    for (d.shift = 0; d.shift < 31 && (uint32_t)1 << d.shift < by;)
        d.shift++;
    d.factor = (uint32_t)(((((uint64_t)1 << d.shift) - by) << 32) / by + 1);
    return d;
}

/* Returns a / by for a, by < 2^31. */
LT_HD uint32_t lt_divide(uint32_t a, lt_divisor by)
{
    return ((uint32_t)((uint64_t)a * by.factor >> 32) + a) >> by.shift;
}

/* Returns the index of the list's item that a block works on: the last one whose first block is not after it. first:
 * that of item 0; items are `bytes` apart. */
LT_HD int64_t lt_find_item_of_block(const int64_t *first, size_t bytes, int64_t count,
                                    int64_t block)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (*(const int64_t *)((const char *)first + (size_t)middle * bytes) <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

#endif
