/* Gradient of max-pooling, gathered by its input's pixels: for pool.cu, and for a batch norm's fused backward. */
#ifndef LT_CUDA_POOL_CUH
#define LT_CUDA_POOL_CUH

#include "norm.cuh"
#include "window.h"

struct pool_shape {
    lt_pool2d_config config;
    int64_t height, width, outputs_h, outputs_w, channels; /* sizes of x and y */
};

static inline pool_shape make_pool_shape(const lt_pool2d_config *config, const lt_view *x,
                                         const lt_view *y)
{
    pool_shape s;
    s.config = *config;
    s.height = x->shape.dim[2];
    s.width = x->shape.dim[3];
    s.outputs_h = y->shape.dim[2];
    s.outputs_w = y->shape.dim[3];
    s.channels = x->shape.dim[1];
    return s;
}

/* Loads indices of taps in windows, a byte per channel. Vectors of them are dense. */
__device__ inline void load_tap_indices(const tensor4<const uint8_t> &index, int64_t row,
                                        int64_t channel, int (&place)[LT_VECTOR_WIDTH])
{
    const uint2 bytes = *(const uint2 *)index.at<LT_VECTOR_WIDTH>(row, channel);
#pragma unroll
    for (int k = 0; k < LT_VECTOR_WIDTH; k++)
        place[k] = (int)((k < 4 ? bytes.x : bytes.y) >> 8 * (k % 4) & 255);
}

__device__ inline void load_tap_indices(const tensor4<const uint8_t> &index, int64_t row,
                                        int64_t channel, int (&place)[1])
{
    place[0] = *index.at<1>(row, channel);
}

/* The gradient of the outputs, and the tap of each window's maximum. dy2.data: NULL if the gradient has one addend. */
template <class T> struct outputs_gradient {
    pool_shape s;
    tensor4<const T> dy, dy2;
    tensor4<const uint8_t> index;

    /* Returns the gradient of a pixel of x: the sum over the windows that contain it, in their order. */
    template <int WIDTH>
    __device__ void gather(int64_t image, int64_t h, int64_t w, int64_t channel,
                           float (&sum)[WIDTH]) const
    {
        const lt_pool2d_config &c = s.config;
        const lt_range p = lt_windows_with_pixel(h, c.kernel_h, c.stride_h, c.pad_h, s.outputs_h);
        const lt_range q = lt_windows_with_pixel(w, c.kernel_w, c.stride_w, c.pad_w, s.outputs_w);
        const int top = (int)h + c.pad_h, left = (int)w + c.pad_w;
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            sum[k] = 0;
        for (int i = (int)p.first; i < (int)p.end; i++)
            for (int j = (int)q.first; j < (int)q.end; j++) {
                const int64_t row = (image * s.outputs_h + i) * s.outputs_w + j;
                const int tap = (top - i * c.stride_h) * c.kernel_w + left - j * c.stride_w;
                float g[WIDTH], more[WIDTH] = {};
                int place[WIDTH];
                load_tap_indices(index, row, channel, place);
                dy.load(row, channel, g);
                if (dy2.data)
                    dy2.load(row, channel, more);
#pragma unroll
                for (int k = 0; k < WIDTH; k++)
                    sum[k] += place[k] == tap ? g[k] + more[k] : 0;
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
