/* Small kernels with a race, and the same kernels without it. */

#include "races.h"

#include <cuda_runtime.h>

namespace
{

enum { THREADS = 64, BLOCKS = 3 };

float memory[THREADS * BLOCKS], total;
float *const values = memory;
unsigned arrived;

/* Each thread reads the value of the next one after a barrier, and overwrites its own after a second barrier. */
template <bool BEFORE, bool AFTER> __global__ void shifted(float *to)
{
    __shared__ float x[THREADS];
    x[threadIdx.x] = (float)threadIdx.x;
    if (BEFORE)
        __syncthreads();
    to[threadIdx.x] = x[(threadIdx.x + 1) % THREADS];
    if (AFTER)
        __syncthreads();
    x[threadIdx.x] = 0;
}

/* A shuffle within a warp does not order memory accesses. */
template <bool BARRIER> __global__ void exchanged(float *to)
{
    __shared__ float x[THREADS];
    x[threadIdx.x] = (float)threadIdx.x;
    const float other = __shfl_xor_sync(0xFFFFFFFFU, x[threadIdx.x], 1);
    if (BARRIER)
        __syncthreads();
    to[threadIdx.x] = other + x[threadIdx.x ^ 1U];
}

/* Blocks increment one counter. */
template <bool ATOMIC> __global__ void counted(unsigned *count)
{
    if (threadIdx.x)
        return;
    if (ATOMIC)
        atomicAdd(count, 1U);
    else
        *count += 1;
}

template <bool APART> __global__ void of_blocks(float *to)
{
    to[APART ? blockIdx.x * THREADS + threadIdx.x : threadIdx.x] = 1;
}

enum fences { ALL, NOT_BEFORE, NOT_AFTER, AFTER_THE_BARRIER };

/* The last block to finish adds the other blocks' values. */
template <fences HAS> __global__ void last_block(float *parts, unsigned *count, float *sum)
{
    bool is_last = false;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = 1;
        if (HAS != NOT_BEFORE)
            __threadfence();
        is_last = atomicAdd(count, 1U) == BLOCKS - 1;
        if (HAS == ALL || HAS == NOT_BEFORE)
            __threadfence();
    }
    is_last = __syncthreads_or(is_last);
    if (HAS == AFTER_THE_BARRIER)
        __threadfence();
    if (is_last && threadIdx.x == 1)
        *sum = parts[0] + parts[1] + parts[2];
}

__global__ void reads_them(const float *parts, float *sum)
{
    if (threadIdx.x == 0 && blockIdx.x == 0)
        *sum = parts[0] + parts[THREADS];
}

template <bool BEFORE, bool AFTER> void run_shifted()
{
    shifted<BEFORE, AFTER><<<1, THREADS, 0, NULL>>>(values);
}

template <bool BARRIER> void run_exchanged()
{
    exchanged<BARRIER><<<1, THREADS, 0, NULL>>>(values);
}

template <bool ATOMIC> void run_counted()
{
    counted<ATOMIC><<<BLOCKS, THREADS, 0, NULL>>>(&arrived);
}

template <bool APART> void run_of_blocks()
{
    of_blocks<APART><<<BLOCKS, THREADS, 0, NULL>>>(values);
}

template <fences HAS> void run_last_block()
{
    last_block<HAS><<<BLOCKS, THREADS, 0, NULL>>>(values, &arrived, &total);
}

void run_two_launches()
{
    of_blocks<true><<<BLOCKS, THREADS, 0, NULL>>>(values);
    reads_them<<<BLOCKS, THREADS, 0, NULL>>>(values, &total);
    of_blocks<true><<<BLOCKS, THREADS, 0, NULL>>>(values);
}

} /* namespace */

const race_row race_rows[RACE_ROWS] = {
    {"barriers before and after a read", "shifted", false, run_shifted<true, true>},
    {"no barrier before a read", "shifted", true, run_shifted<false, true>},
    {"no barrier after a read", "shifted", true, run_shifted<true, false>},
    {"a barrier after a shuffle", "exchanged", false, run_exchanged<true>},
    {"a shuffle is no barrier", "exchanged", true, run_exchanged<false>},
    {"blocks add atomically", "counted", false, run_counted<true>},
    {"blocks add", "counted", true, run_counted<false>},
    {"blocks write different addresses", "of_blocks", false, run_of_blocks<true>},
    {"blocks write equal values to one address", "of_blocks", true, run_of_blocks<false>},
    {"fences around the count of blocks", "last_block", false, run_last_block<ALL>},
    {"no fence before the count", "last_block", true, run_last_block<NOT_BEFORE>},
    {"no fence after the count", "last_block", true, run_last_block<NOT_AFTER>},
    {"the fence after the barrier is of another thread", "last_block", true,
     run_last_block<AFTER_THE_BARRIER>},
    {"launches follow each other", "reads_them", false, run_two_launches},
};
