/* One warp per row: sums and maxima over the lanes of a warp, in a fixed order, returned in every lane. */
#ifndef LT_CUDA_WARP_CUH
#define LT_CUDA_WARP_CUH

#include "launch.cuh"

enum { WARP = 32, WARPS = THREADS / WARP };

/* Returns the row of the thread's warp. */
__device__ inline int64_t row_of_warp()
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
}

__device__ inline double warp_sum(double x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
    return x;
}

/* Returns the maximum, or NaN if a value is NaN. */
__device__ inline float warp_max(float x)
{
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFU, x, step);
        x = other > x || other != other ? other : x;
    }
    return x;
}

#endif
