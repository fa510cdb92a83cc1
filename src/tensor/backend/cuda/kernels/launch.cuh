/* Helpers for kernels: dtypes as types, 16-byte accesses, sums over a block in a fixed order, grid sizes. */
#ifndef LT_CUDA_LAUNCH_CUH
#define LT_CUDA_LAUNCH_CUH

#include "tensor/backend/cuda/cuda.h"
#include "tensor/backend/cuda/element.h"
#include "tensor/backend/cuda/rows.h"
#include "tensor/backend/cuda/strided_iter.h"

#include <cuda_runtime.h>
#include <initializer_list>
#include <math.h>

enum { THREADS = 256 };

/* Most bytes of a kernel's parameters, since CUDA 12.1 and for compute capability 7.0 and later. */
enum { MAX_PARAMETERS = 32764 };

/* Runs the code with T the type of f32, bf16 or f16; returns LT_E_UNSUPPORTED for other dtypes. */
#define WITH_TYPE(c, dtype_, ...)                                                       \
    switch (dtype_) {                                                                   \
    case LT_F32: {                                                                      \
        typedef float T;                                                                \
        __VA_ARGS__;                                                                    \
        break;                                                                          \
    }                                                                                   \
    case LT_BF16: {                                                                     \
        typedef lt_bf16 T;                                                              \
        __VA_ARGS__;                                                                    \
        break;                                                                          \
    }                                                                                   \
    case LT_F16: {                                                                      \
        typedef lt_f16 T;                                                               \
        __VA_ARGS__;                                                                    \
        break;                                                                          \
    }                                                                                   \
    default:                                                                            \
        return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s: no kernel for %s", (c)->ordinal, \
                       (c)->operation, lt_dtype_name(dtype_));                          \
    }

/* Runs the code with T double or float. */
#define WIDE_OR_NOT(wide, ...) \
    if (wide) {                \
        typedef double T;      \
        __VA_ARGS__;           \
    } else {                   \
        typedef float T;       \
        __VA_ARGS__;           \
    }

/* Runs the code with WIDTH the number of channels that a thread accesses at once. */
#define WITH_WIDTH(vectors, ...)          \
    if (vectors) {                        \
        enum { WIDTH = LT_VECTOR_WIDTH }; \
        __VA_ARGS__;                      \
    } else {                              \
        enum { WIDTH = 1 };               \
        __VA_ARGS__;                      \
    }

static inline unsigned blocks_for(int64_t count, int64_t per_block)
{
    return (unsigned)((count + per_block - 1) / per_block);
}

static inline cudaStream_t main_stream(const lt_cuda *c)
{
    return c->stream[LT_CUDA_MAIN];
}

__host__ __device__ static inline bool is_aligned(const void *data)
{
    return ((uintptr_t)data & 15) == 0;
}

/* Returns the data of a view of f32, NULL if it is absent. */
static inline float *float_data(const lt_view *v)
{
    return v ? (float *)v->data : NULL;
}

/* Returns LT_OK if each view is absent or has that dtype, else LT_E_UNSUPPORTED. */
static inline lt_status check_dtype(const lt_cuda *c, lt_dtype dtype,
                                    std::initializer_list<const lt_view *> views)
{
    for (const lt_view *view : views)
        if (view && view->data && view->dtype != dtype)
            return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s: a tensor is %s, want %s", c->ordinal,
                           c->operation, lt_dtype_name(view->dtype), lt_dtype_name(dtype));
    return LT_OK;
}

static inline lt_status check_not_f64(const lt_cuda *c,
                                      std::initializer_list<const lt_view *> views)
{
    for (const lt_view *view : views)
        if (view->dtype == LT_F64)
            return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s: no kernel for f64", c->ordinal,
                           c->operation);
    return LT_OK;
}

static inline lt_rows make_rows(const lt_view *x)
{
    lt_rows r;
    r.height = x->shape.dim[2];
    r.width = x->shape.dim[3];
    r.channels = x->shape.dim[1];
    r.count = x->shape.dim[0] * r.height * r.width;
    for (int d = 0; d < 4; d++)
        r.stride[d] = x->stride[d];
    r.dense = lt_view_is_channels_last(x);
    return r;
}

/* Returns whether vectors of 8 channels can be read with 16-byte accesses; true for an absent view. */
static inline bool can_use_vectors(const lt_view *x)
{
    return !x || !x->data
           || (x->shape.dim[1] % LT_VECTOR_WIDTH == 0 && lt_view_is_channels_last(x)
               && is_aligned(x->data));
}

__device__ inline float to_float(float x)
{
    return x;
}
__device__ inline float to_float(lt_bf16 x)
{
    return lt_bf16_load(x);
}
__device__ inline float to_float(lt_f16 x)
{
    return lt_f16_load(x);
}
__device__ inline void store_float(float *to, float x)
{
    *to = x;
}
__device__ inline void store_float(lt_bf16 *to, float x)
{
    *to = lt_bf16_round(x);
}
__device__ inline void store_float(lt_f16 *to, float x)
{
    *to = lt_f16_round(x);
}

/* Eight unconverted elements, aligned to 16 bytes. Loads are issued before they are needed: a thread stalls at the
 * first use, not at the load. */
template <class T> struct raw_vector {
    uint4 bits;
};
template <> struct raw_vector<float> {
    float4 low, high;
};

__device__ inline raw_vector<float> fetch_vector(const float *from)
{
    raw_vector<float> r;
    r.low = ((const float4 *)from)[0];
    r.high = ((const float4 *)from)[1];
    return r;
}

template <class T> __device__ inline raw_vector<T> fetch_vector(const T *from)
{
    raw_vector<T> r;
    r.bits = *(const uint4 *)from;
    return r;
}

__device__ inline void widen(const raw_vector<float> &r, float (&v)[LT_VECTOR_WIDTH])
{
    v[0] = r.low.x, v[1] = r.low.y, v[2] = r.low.z, v[3] = r.low.w;
    v[4] = r.high.x, v[5] = r.high.y, v[6] = r.high.z, v[7] = r.high.w;
}

template <class T> __device__ inline void widen(const raw_vector<T> &r, float (&v)[LT_VECTOR_WIDTH])
{
    const unsigned word[4] = {r.bits.x, r.bits.y, r.bits.z, r.bits.w};
#pragma unroll
    for (int i = 0; i < LT_VECTOR_WIDTH; i++) {
        T x;
        x.bits = (uint16_t)(word[i / 2] >> 16 * (i % 2));
        v[i] = to_float(x);
    }
}

template <class T> __device__ inline void load_vector(const T *from, float (&v)[LT_VECTOR_WIDTH])
{
    widen(fetch_vector(from), v);
}

/* One store of 16 bytes; the compiler often splits an assignment into four. */
__device__ inline void store_16(uint4 *to, uint4 x)
{
#ifdef __CUDA_ARCH__
    asm("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
        :
        : "l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
        : "memory");
#else
    *to = x;
#endif
}

__device__ inline void store_16(float4 *to, float4 x)
{
#ifdef __CUDA_ARCH__
    asm("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
        :
        : "l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
        : "memory");
#else
    *to = x;
#endif
}

__device__ inline void store_vector(float *to, const float (&v)[LT_VECTOR_WIDTH])
{
    store_16((float4 *)to, make_float4(v[0], v[1], v[2], v[3]));
    store_16((float4 *)to + 1, make_float4(v[4], v[5], v[6], v[7]));
}

template <class T> __device__ inline void store_vector(T *to, const float (&v)[LT_VECTOR_WIDTH])
{
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        T low, high;
        store_float(&low, v[2 * i]);
        store_float(&high, v[2 * i + 1]);
        word[i] = low.bits | (unsigned)high.bits << 16;
    }
    store_16((uint4 *)to, make_uint4(word[0], word[1], word[2], word[3]));
}

/* Returns 2^x and 1 / x to about 2^-22, one instruction each; results below 2^-126 become 0. For 16-bit data. */
__device__ inline float fast_exp2(float x)
{
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return exp2f(x);
#endif
}

__device__ inline float fast_inverse(float x)
{
#ifdef __CUDA_ARCH__
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return 1 / x;
#endif
}

/* Returns exp(x) for data of type T. */
template <class T> __device__ inline float exp_for(float x)
{
    return sizeof(T) == 2 ? fast_exp2(x * 1.44269504088896340736F) : expf(x);
}

/* Returns the sum over the block's THREADS threads, added in a fixed order, in thread 0. */
__device__ inline double block_sum(double x)
{
    __shared__ double warp[THREADS / 32];
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_down_sync(0xFFFFFFFFU, x, step);
    __syncthreads(); /* the previous sum was read */
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < THREADS / 32; i++)
            x += warp[i];
    return x;
}

/* Returns the sum in every thread. */
__device__ inline double block_sum_to_all(double x)
{
    __shared__ double total;
    x = block_sum(x);
    if (threadIdx.x == 0)
        total = x;
    __syncthreads();
    return total;
}

#endif
