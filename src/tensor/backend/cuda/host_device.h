/* Functions that run on the device, and on the host in tests: C that nvcc and the host's compiler
 * both read. */
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

/* a / b of numbers that are not negative. Short ones, below 2^32, are many times as fast on a device. */
LT_HD int64_t lt_quotient(int64_t a, int64_t b, bool is_short)
{
    return is_short ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

#endif
