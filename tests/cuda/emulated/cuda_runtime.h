/* Replaces the header of the CUDA toolkit on machines without one. */
#ifndef LT_TESTS_CUDA_RUNTIME_H
#define LT_TESTS_CUDA_RUNTIME_H

#include <cstddef>
#include <cstring>

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

#include "threads.h"

#endif
