/* Gradient of max-pooling, gathered by its input's pixels: for pool.cu, and for a batch norm's fused backward. */
#ifndef LT_CUDA_POOL_CUH
#define LT_CUDA_POOL_CUH

#include "norm.cuh"
#include "window.h"

struct pool_shape {
    lt_pool2d_config config;
    lt_divisor stride_h, stride_w, kernel_w;
    lt_grid x, y;
    int64_t channels;
};

static inline pool_shape make_pool_shape(const lt_pool2d_config *config, const lt_view *x,
                                         const lt_view *y)
{
    pool_shape s;
    s.config = *config;
    s.stride_h = lt_make_divisor((uint32_t)config->stride_h);
    s.stride_w = lt_make_divisor((uint32_t)config->stride_w);
    s.kernel_w = lt_make_divisor((uint32_t)config->kernel_w);
    s.x = lt_make_grid(x->shape.dim[0], x->shape.dim[2], x->shape.dim[3]);
    s.y = lt_make_grid(y->shape.dim[0], y->shape.dim[2], y->shape.dim[3]);
    s.channels = x->shape.dim[1];
    return s;
}

/* The taps of WIDTH channels' maxima in one window, a byte each. Vectors of them are dense. */
template <int WIDTH> struct tap_indices {
    uint2 bytes;
    __device__ void fetch(const uint8_t *from)
    {
        bytes.x = WIDTH == 1 ? *from : ((const uint2 *)from)->x;
        bytes.y = WIDTH == 1 ? 0 : ((const uint2 *)from)->y;
    }
    __device__ unsigned tap(int k) const
    {
        return (k < 4 ? bytes.x : bytes.y) >> 8 * (k % 4) & 255;
    }
    /* Replaces each tap by 0 if it is this one, else by another number; there: false if none is. */
    __device__ void compare(int tap, bool there)
    {
        const unsigned four = (unsigned)tap * 0x01010101U;
        bytes.x = there ? bytes.x ^ four : ~0U;
        bytes.y = there ? bytes.y ^ four : ~0U;
    }
};

/* The gradient of the outputs, and the tap of each window's maximum. dy2.data: NULL if the gradient has one addend. */
template <class T> struct outputs_gradient {
    /* Windows that a thread requests before it uses the first. */
    enum { TOGETHER = sizeof(T) == 2 ? 2 : 1 };
    pool_shape s;
    tensor4<const T> dy, dy2;
    tensor4<const uint8_t> index;

    template <int WIDTH> struct pieces {
        vector<T, WIDTH> dy, dy2;
        tap_indices<WIDTH> index;
        __device__ void read(float (&g)[WIDTH]) const
        {
            float more[WIDTH];
            dy.read(g);
            dy2.read(more);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                g[k] += more[k];
        }
    };
    /* dense: the offset of the row's channel in dense tensors. */
    template <int WIDTH>
    __device__ void fetch(int64_t row, int64_t channel, int64_t dense, pieces<WIDTH> *p) const
    {
        const bool vectors = WIDTH == LT_VECTOR_WIDTH;
        p->index.fetch(vectors ? index.data + dense : index.template at<WIDTH>(row, channel));
        p->dy.fetch(vectors ? dy.data + dense : dy.template at<WIDTH>(row, channel));
        p->dy2 = vector<T, WIDTH>();
        if (dy2.data)
            p->dy2.fetch(vectors ? dy2.data + dense : dy2.template at<WIDTH>(row, channel));
    }

    /* Returns the gradient of a pixel of x: the sum over the windows that contain it, in their order. */
    template <int WIDTH> __device__ void gather(const lt_pixel &at, float (&sum)[WIDTH]) const
    {
        const lt_pool2d_config &c = s.config;
        const lt_range p = lt_windows_with_pixel(at.h, c.kernel_h, s.stride_h, c.pad_h, s.y.height);
        const lt_range q = lt_windows_with_pixel(at.w, c.kernel_w, s.stride_w, c.pad_w, s.y.width);
        const int top = at.h + c.pad_h, left = at.w + c.pad_w - q.first * c.stride_w;
        const int64_t first = at.image * s.y.height * s.y.width + q.first;
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            sum[k] = 0;
        for (int i = p.first; i < p.end; i++) {
            int64_t row = first + (int64_t)i * s.y.width, dense = row * s.channels + at.channel;
            int tap = (top - i * c.stride_h) * c.kernel_w + left;
            for (int j = q.first; j < q.end; j += TOGETHER) {
                pieces<WIDTH> next[TOGETHER];
#pragma unroll
                for (int d = 0; d < TOGETHER; d++) {
                    const int there = j + d < q.end ? d : 0;
                    fetch(row + there, at.channel, dense + there * s.channels, &next[d]);
                }
#pragma unroll
                for (int d = 0; d < TOGETHER; d++) {
                    float g[WIDTH];
                    next[d].read(g);
                    next[d].index.compare(tap - d * c.stride_w, d == 0 || j + d < q.end);
#pragma unroll
                    for (int k = 0; k < WIDTH; k++)
                        if (next[d].index.tap(k) == 0)
                            sum[k] += g[k];
                }
                row += TOGETHER;
                dense += TOGETHER * s.channels;
                tap -= TOGETHER * c.stride_w;
            }
        }
    }
};

template <class T>
static inline outputs_gradient<T> make_outputs_gradient(const pool_shape &s, const lt_view dy[2],
                                                        const lt_view *index)
{
    outputs_gradient<T> g;
    g.s = s;
    g.dy = make_tensor4<const T>(&dy[0]);
    g.dy2 = make_tensor4<const T>(&dy[1]);
    g.index = make_tensor4<const uint8_t>(index);
    return g;
}

static inline bool pool_grad_can_use_vectors(const lt_view dy[2], const lt_view *index)
{
    return can_use_vectors(&dy[0]) && can_use_vectors(&dy[1]) && can_use_vectors(index);
}

#endif
