/* Space-to-depth of the first convolution's input and weight, and its inverse for the gradient: space_to_depth.h. */

#include "launch.cuh"
#include "pixels.h"
#include "space_to_depth.h"

namespace
{

/* Sources of blocks: activations, or pixels, which are normalized. */
template <class T> struct activations {
    const T *data;
    __device__ float operator()(int64_t at, int) const
    {
        return to_float(data[at]);
    }
};

struct pixels {
    const uint8_t *data;
    lt_normalize_config config;
    __device__ float operator()(int64_t at, int colour) const
    {
        return lt_normalize_pixel(data[at], &config, colour);
    }
};

/* Computes one block of 2x2 pixels, which may be in the padding: 16 channels. */
template <class T, class Source>
__global__ void space_to_depth_input(lt_view x, const __grid_constant__ Source source, T *blocks,
                                     int64_t count, int64_t height, int64_t width)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    const bool is_short = count < INT32_MAX;
    const int64_t above = lt_quotient(i, width, is_short);
    const int64_t n = lt_quotient(above, height, is_short);
    const int64_t top = (above - n * height) * LT_STEM_STRIDE - LT_STEM_PAD;
    const int64_t left = (i - above * width) * LT_STEM_STRIDE - LT_STEM_PAD;
    float v[2][LT_VECTOR_WIDTH];
#pragma unroll
    for (int k = 0; k < LT_STEM_CHANNELS; k++) {
        const lt_stem_place p = lt_find_stem_place(k);
        const int64_t h = top + p.row, w = left + p.column;
        const bool there =
            p.colour >= 0 && h >= 0 && h < x.shape.dim[2] && w >= 0 && w < x.shape.dim[3];
        v[k / LT_VECTOR_WIDTH][k % LT_VECTOR_WIDTH] =
            there ? source(n * x.stride[0] + p.colour * x.stride[1] + h * x.stride[2]
                               + w * x.stride[3],
                           p.colour)
                  : 0;
    }
    store_vector(blocks + i * LT_STEM_CHANNELS, v[0]);
    store_vector(blocks + i * LT_STEM_CHANNELS + LT_VECTOR_WIDTH, v[1]);
}

/* Returns the offset of element i of the transformed filters in the 7x7 filters; false if it is a zero. */
__device__ bool find_tap(int64_t i, const int64_t *stride, int64_t *at)
{
    const lt_stem_place p = lt_find_stem_place((int)(i % LT_STEM_CHANNELS));
    const int64_t tap = i / LT_STEM_CHANNELS;
    const int64_t s = tap % LT_STEM_TAPS * LT_STEM_STRIDE + p.column;
    const int64_t r = tap / LT_STEM_TAPS % LT_STEM_TAPS * LT_STEM_STRIDE + p.row;
    *at = tap / (LT_STEM_TAPS * LT_STEM_TAPS) * stride[0] + p.colour * stride[1] + r * stride[2]
          + s * stride[3];
    return p.colour >= 0 && r < LT_STEM_SIZE && s < LT_STEM_SIZE;
}

template <class T> __global__ void space_to_depth_weight(lt_view w, T *filters, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at;
    if (i < count)
        store_float(filters + i,
                    find_tap(i, w.stride, &at) ? lt_element_f32(w.data, w.dtype, at) : 0);
}

template <class T>
__global__ void depth_to_space_weight(const T *filters, lt_view dw, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at;
    if (i < count && find_tap(i, dw.stride, &at))
        lt_set_element_f32(dw.data, dw.dtype, at, to_float(filters[i]));
}

lt_view dense_stem_view(lt_dtype dtype, int64_t n, int64_t height, int64_t width)
{
    lt_view v = {};
    v.dtype = dtype;
    v.shape = {4, {n, LT_STEM_CHANNELS, height, width}};
    lt_view_set_dense_strides(&v);
    return v;
}

} /* namespace */

extern "C" bool lt_space_to_depth_fits(const lt_conv2d_config *config, const lt_view *x,
                                       const lt_view *w, const lt_view *y)
{
    return lt_cuda_is_16_bit(y->dtype) && x->shape.dim[1] == LT_STEM_COLOURS
           && w->shape.dim[2] == LT_STEM_SIZE && w->shape.dim[3] == LT_STEM_SIZE
           && config->stride_h == LT_STEM_STRIDE && config->stride_w == LT_STEM_STRIDE
           && config->pad_h == LT_STEM_PAD && config->pad_w == LT_STEM_PAD
           && config->dilation_h == 1 && config->dilation_w == 1 && config->groups == 1
           && y->shape.dim[1] % LT_VECTOR_WIDTH == 0;
}

extern "C" lt_view lt_space_to_depth_blocks(const lt_view *x, const lt_view *y)
{
    return dense_stem_view(y->dtype, x->shape.dim[0], y->shape.dim[2] + LT_STEM_TAPS - 1,
                           y->shape.dim[3] + LT_STEM_TAPS - 1);
}

extern "C" lt_view lt_space_to_depth_filters(const lt_view *w, const lt_view *y)
{
    return dense_stem_view(y->dtype, w->shape.dim[0], LT_STEM_TAPS, LT_STEM_TAPS);
}

extern "C" lt_conv2d_config lt_space_to_depth_config(void)
{
    lt_conv2d_config config = {};
    config.stride_h = config.stride_w = config.dilation_h = config.dilation_w = 1;
    config.groups = 1;
    return config;
}

extern "C" lt_status lt_space_to_depth_x(lt_cuda *c, const lt_view *x, const lt_view *blocks)
{
    const int64_t height = blocks->shape.dim[2], width = blocks->shape.dim[3];
    const int64_t count = blocks->shape.dim[0] * height * width;
    WITH_TYPE(c, blocks->dtype, const activations<T> source = {(const T *)x->data};
              space_to_depth_input<<<blocks_for(count, THREADS), THREADS, 0, main_stream(c)>>>(
                  *x, source, (T *)blocks->data, count, height, width))
    return LT_OK;
}

extern "C" lt_status lt_space_to_depth_pixels(lt_cuda *c, const lt_view *x,
                                              const lt_normalize_config *config,
                                              const lt_view *blocks)
{
    const int64_t height = blocks->shape.dim[2], width = blocks->shape.dim[3];
    const int64_t count = blocks->shape.dim[0] * height * width;
    const pixels source = {(const uint8_t *)x->data, *config};
    WITH_TYPE(c, blocks->dtype,
              space_to_depth_input<<<blocks_for(count, THREADS), THREADS, 0, main_stream(c)>>>(
                  *x, source, (T *)blocks->data, count, height, width))
    return LT_OK;
}

extern "C" lt_status lt_space_to_depth_w(lt_cuda *c, const lt_view *w, const lt_view *filters)
{
    const int64_t count = lt_shape_count(filters->shape);
    WITH_TYPE(c, filters->dtype,
              space_to_depth_weight<T><<<blocks_for(count, THREADS), THREADS, 0, main_stream(c)>>>(
                  *w, (T *)filters->data, count))
    return LT_OK;
}

extern "C" lt_status lt_depth_to_space_w(lt_cuda *c, const lt_view *filters, const lt_view *dw)
{
    const int64_t count = lt_shape_count(filters->shape);
    WITH_TYPE(c, filters->dtype,
              depth_to_space_weight<T><<<blocks_for(count, THREADS), THREADS, 0, main_stream(c)>>>(
                  (const T *)filters->data, *dw, count))
    return LT_OK;
}
