/* Small kernels that race, and the same without the race. */

#include "races.h"

#include <cuda_runtime.h>

namespace
{

enum { THREADS = 64, BLOCKS = 3 };

float memory[THREADS * BLOCKS], total;
float *const values = memory;
unsigned arrived;

/* What a thread wrote is read by another behind a barrier, and written again behind one more. */
template <bool BEFORE, bool BEHIND> __global__ void neighbours(float *to)
{
    __shared__ float x[THREADS];
    x[threadIdx.x] = (float)threadIdx.x;
    if (BEFORE)
        __syncthreads();
    to[threadIdx.x] = x[(threadIdx.x + 1) % THREADS];
    if (BEHIND)
        __syncthreads();
    x[threadIdx.x] = 0;
}

/* Values of a warp that are exchanged order nothing in memory. */
template <bool BARRIER> __global__ void exchanged(float *to)
{
    __shared__ float x[THREADS];
    x[threadIdx.x] = (float)threadIdx.x;
    const float other = __shfl_xor_sync(0xFFFFFFFFU, x[threadIdx.x], 1);
    if (BARRIER)
        __syncthreads();
    to[threadIdx.x] = other + x[threadIdx.x ^ 1U];
}

/* Blocks that count together. */
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

enum fences { ALL, NOT_BEFORE, NOT_BEHIND, BEHIND_THE_BARRIER };

/* The last block adds up what the others wrote. */
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
    if (HAS == BEHIND_THE_BARRIER)
        __threadfence();
    if (is_last && threadIdx.x == 1)
        *sum = parts[0] + parts[1] + parts[2];
}

__global__ void reads_them(const float *parts, float *sum)
{
    if (threadIdx.x == 0 && blockIdx.x == 0)
        *sum = parts[0] + parts[THREADS];
}

template <bool BEFORE, bool BEHIND> void run_neighbours()
{
    neighbours<BEFORE, BEHIND><<<1, THREADS, 0, NULL>>>(values);
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
    {"barriers before and behind a read", "neighbours", false, run_neighbours<true, true>},
    {"no barrier before a read", "neighbours", true, run_neighbours<false, true>},
    {"no barrier behind a read", "neighbours", true, run_neighbours<true, false>},
    {"a barrier behind an exchange", "exchanged", false, run_exchanged<true>},
    {"an exchange is no barrier", "exchanged", true, run_exchanged<false>},
    {"blocks add atomically", "counted", false, run_counted<true>},
    {"blocks add", "counted", true, run_counted<false>},
    {"blocks write apart", "of_blocks", false, run_of_blocks<true>},
    {"blocks write the same, if equal, values", "of_blocks", true, run_of_blocks<false>},
    {"fences around the count of blocks", "last_block", false, run_last_block<ALL>},
    {"no fence before the count", "last_block", true, run_last_block<NOT_BEFORE>},
    {"no fence behind the count", "last_block", true, run_last_block<NOT_BEHIND>},
    {"a fence behind the barrier is other threads'", "last_block", true,
     run_last_block<BEHIND_THE_BARRIER>},
    {"launches follow each other", "reads_them", false, run_two_launches},
};
