/* In place of the toolkit's header: as much of CUDA C++ as the kernels of this project use, for the
 * host's compiler. emulate.py turns launches into calls of lt_emulate(). */
#ifndef LT_TESTS_CUDA_RUNTIME_H
#define LT_TESTS_CUDA_RUNTIME_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static /* one block runs at a time */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

typedef struct CUstream_st *cudaStream_t;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };

static inline int cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind,
                                  cudaStream_t)
{
    memmove(dst, src, bytes);
    return 0;
}
static inline int cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t)
{
    memset(dst, value, bytes);
    return 0;
}

/* Of the thread that runs. */
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
/* The block's shared variable: garbage (NaN, as floats) until the block writes it. */
void lt_emulate_shared(void *variable, size_t bytes);
/* The values of the warp's other threads; all of them must take part. */
uint64_t lt_emulate_exchange(uint64_t bits, unsigned lane);

template <class T> T lt_emulate_shuffle(T x, unsigned lane)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = lt_emulate_exchange(bits, lane);
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <class T> T __shfl_down_sync(unsigned, T x, unsigned step)
{
    const unsigned lane = threadIdx.x % 32;
    return lt_emulate_shuffle(x, lane + step < 32 ? lane + step : lane);
}
template <class T> T __shfl_xor_sync(unsigned, T x, unsigned bits)
{
    return lt_emulate_shuffle(x, threadIdx.x % 32 ^ bits);
}
template <class T> T __shfl_sync(unsigned, T x, unsigned lane)
{
    return lt_emulate_shuffle(x, lane % 32);
}

template <class T> T atomicAdd(T *to, T more)
{
    const T before = *to;
    *to += more;
    return before;
}

static inline int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
using std::signbit;

/* Runs the body once for each thread of each block. */
void lt_emulate(dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                const std::function<void()> &body);

#endif
