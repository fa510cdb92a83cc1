/* Helpers for the normalization kernels. */
#ifndef LT_CUDA_NORM_CUH
#define LT_CUDA_NORM_CUH

#include "launch.cuh"
#include "norm.h"

#include <type_traits>

/* WIDTH channels of a row, unconverted: a vector access, or one element. */
template <class T, int WIDTH> struct vector;

template <class T> struct vector<T, LT_VECTOR_WIDTH> {
    raw_vector<T> raw;
    __device__ void fetch(const T *from)
    {
        raw = fetch_vector(from);
    }
    __device__ void read(float (&v)[LT_VECTOR_WIDTH]) const
    {
        widen(raw, v);
    }
};

template <class T> struct vector<T, 1> {
    T raw;
    __device__ void fetch(const T *from)
    {
        raw = *from;
    }
    __device__ void read(float (&v)[1]) const
    {
        v[0] = to_float(raw);
    }
};

template <class T> __device__ void store_channels(T *to, const float (&v)[LT_VECTOR_WIDTH])
{
    store_vector(to, v);
}
template <class T> __device__ void store_channels(T *to, const float (&v)[1])
{
    store_float(to, v[0]);
}

/* Rows that a thread loads before it uses the first, to overlap loads with arithmetic. */
template <class T> __host__ __device__ constexpr int rows_together()
{
    return sizeof(T) == 2 ? 4 : 2;
}

/* A 4-D operand: its data and the strides of its rows. */
template <class T> struct tensor4 {
    typedef typename std::remove_const<T>::type element;
    T *data;
    lt_rows rows;
    /* Vectors are used in dense rows only: has_vectors(). */
    template <int WIDTH> __device__ T *at(int64_t row, int64_t channel) const
    {
        return data
               + (WIDTH == LT_VECTOR_WIDTH ? row * rows.channels + channel
                                           : lt_rows_offset(&rows, row, channel));
    }
    template <int WIDTH> __device__ void load(int64_t row, int64_t channel, float (&v)[WIDTH]) const
    {
        vector<element, WIDTH> p;
        p.fetch(at<WIDTH>(row, channel));
        p.read(v);
    }
    template <int WIDTH>
    __device__ void store(int64_t row, int64_t channel, const float (&v)[WIDTH]) const
    {
        store_channels(at<WIDTH>(row, channel), v);
    }
};

template <class T> static inline tensor4<T> make_tensor4(const lt_view *view)
{
    tensor4<T> t;
    const bool there = view && view->data;
    t.data = there ? (T *)view->data : (T *)NULL;
    t.rows = there ? make_rows(view) : lt_rows();
    return t;
}

/* Loads coefficients; vectors are aligned to 16 bytes. */
__device__ inline void load_channels(const float *row, int64_t channel, float (&v)[LT_VECTOR_WIDTH])
{
    load_vector(row + channel, v);
}
__device__ inline void load_channels(const float *row, int64_t channel, float (&v)[1])
{
    v[0] = row[channel];
}

/* A thread's position in a partition of rows. */
struct place_in_cut {
    int lane, line;
    int64_t channel, begin, end;
};

template <int WIDTH> __device__ place_in_cut find_place_in_cut(const lt_row_cut &cut, int64_t rows)
{
    place_in_cut p;
    p.lane = threadIdx.x % cut.lanes;
    p.line = threadIdx.x / cut.lanes;
    p.channel = ((int64_t)blockIdx.x * cut.lanes + p.lane) * WIDTH;
    p.begin = blockIdx.y * cut.length;
    p.end = min(p.begin + cut.length, rows);
    return p;
}

/* Adds two sums of each channel over the lines of a block, in the order of lines: thread i returns those of channel i
 * of the block's tile. Needs a barrier between two calls. */
template <int WIDTH>
__device__ void sum_over_lines(const lt_row_cut &cut, const float (&a)[WIDTH],
                               const float (&b)[WIDTH], double *all_a, double *all_b)
{
    __shared__ float shared[2][LT_ROW_THREADS * WIDTH];
    const int width = cut.lanes * WIDTH, i = threadIdx.x;
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
        shared[0][i * WIDTH + k] = a[k];
        shared[1][i * WIDTH + k] = b[k];
    }
    __syncthreads();
    *all_a = *all_b = 0;
    for (int line = 0; line < cut.lines && i < width; line++) {
        *all_a += (double)shared[0][line * width + i];
        *all_b += (double)shared[1][line * width + i];
    }
}

/* Returns the channel of the sums that this thread has from sum_over_lines(), or -1. */
template <int WIDTH> __device__ int64_t channel_of_sums(const lt_row_cut &cut, int64_t channels)
{
    const int width = cut.lanes * WIDTH, i = threadIdx.x;
    const int64_t channel = (int64_t)blockIdx.x * width + i;
    return i < width && channel < channels ? channel : -1;
}

/* Merges two partial results; other types have their own overload. */
__device__ inline lt_moments merge_partials(const lt_moments &a, const lt_moments &b)
{
    return lt_moments_merge(a, b);
}

/* Sums over one channel: of the gradient, and of it times the centred x of each norm. */
template <int NORMS> struct grad_sums {
    double g, gx[NORMS];
};

template <int NORMS>
__device__ grad_sums<NORMS> merge_partials(const grad_sums<NORMS> &a, const grad_sums<NORMS> &b)
{
    grad_sums<NORMS> both;
    both.g = a.g + b.g;
    for (int i = 0; i < NORMS; i++)
        both.gx[i] = a.gx[i] + b.gx[i];
    return both;
}

/* Channels of a block, and threads that share a channel's chunks. */
enum { MERGED = 8, MERGERS = THREADS / MERGED };

static inline unsigned blocks_for_merge(int64_t channels)
{
    return blocks_for(channels, MERGED);
}

/* Merges a channel's chunks by merge_partials(), in index order: each thread a run of them, then adjacent threads. partial:
 * [chunk][channel]. The result is valid in the channel's first thread. */
template <class X>
__device__ X merge_channel_chunks(const X *partial, int64_t chunks, int64_t channels,
                                  int64_t channel)
{
    enum { TOGETHER = 4 };
    __shared__ X shared[MERGERS][MERGED];
    const int lane = threadIdx.x % MERGED, part = threadIdx.x / MERGED;
    const int64_t run = (chunks + MERGERS - 1) / MERGERS;
    const int64_t end = channel < channels ? min((part + 1) * run, chunks) : 0;
    X all = {};
    for (int64_t k = part * run; k < end; k += TOGETHER) {
        X next[TOGETHER];
#pragma unroll
        for (int d = 0; d < TOGETHER; d++)
            next[d] = partial[min(k + d, end - 1) * channels + channel];
#pragma unroll
        for (int d = 0; d < TOGETHER; d++)
            all = k + d < end ? merge_partials(all, next[d]) : all;
    }
    for (int step = 1; step < MERGERS; step *= 2) {
        if (part % step == 0)
            shared[part][lane] = all;
        __syncthreads();
        if (part % (2 * step) == 0)
            all = merge_partials(all, shared[part + step][lane]);
    }
    return all;
}

#endif
