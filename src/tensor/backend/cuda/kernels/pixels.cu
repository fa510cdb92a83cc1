/* Entries that depend on an element's position: dropout on its logical index, normalize on its channel. */

#include "launch.cuh"
#include "pixels.h"
#include "tensor/backend/random.h"

namespace
{

/* A thread processes four consecutive elements, which share a call of Philox if they are consecutive in the whole
 * tensor. */
__global__ void dropout_kernel(lt_iter iter, lt_random random, double p, float factor, lt_view x,
                               lt_view y)
{
    const int64_t group = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    lt_random_words words;
    words.group = -1;
    for (int k = 0; k < 4 && group * 4 + k < iter.count; k++) {
        int64_t at[LT_ITER_OPERANDS];
        lt_iter_offsets(&iter, group * 4 + k, at);
        const float u = lt_element_f32(x.data, x.dtype, at[1]);
        const uint32_t word = lt_random_word(&words, &random, group * 4 + k);
        lt_set_element_f32(y.data, y.dtype, at[0], lt_dropout_keeps(word, p) ? u * factor : 0);
    }
}

lt_status dropout(void *ctx, lt_random random, double p, const lt_view *x, const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_view *const view[] = {y, x};
    lt_iter iter;
    LT_TRY(lt_cuda_begin(c, "dropout"));
    lt_iter_logical_order(&iter, view, 2);
    dropout_kernel<<<blocks_for(iter.count, THREADS * 4), THREADS, 0, main_stream(c)>>>(
        iter, random, p, (float)(1 / (1 - p)), *x, *y);
    return lt_cuda_end(c);
}

/* x and y are channels-last: a thread processes eight consecutive elements, which begin at any channel. */
template <class T>
__global__ void normalize_dense(const uint8_t *x, T *y, int64_t count, int channels,
                                const __grid_constant__ lt_normalize_config config)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LT_VECTOR_WIDTH;
    int channel = (int)(i - lt_quotient(i, channels, count < INT32_MAX) * channels);
    if (i + LT_VECTOR_WIDTH <= count) {
        const uint2 bytes = *(const uint2 *)(x + i);
        float v[LT_VECTOR_WIDTH];
#pragma unroll
        for (int k = 0; k < LT_VECTOR_WIDTH; k++) {
            const unsigned word = k < 4 ? bytes.x : bytes.y;
            v[k] = lt_normalize_pixel((uint8_t)(word >> 8 * (k % 4)), &config, channel);
            channel = channel + 1 == channels ? 0 : channel + 1;
        }
        store_vector(y + i, v);
        return;
    }
    for (int64_t k = i; k < count; k++)
        store_float(y + k, lt_normalize_pixel(x[k], &config, (int)(k % channels)));
}

/* Operands of the iter: y, x, and the channel as an offset. */
__global__ void normalize_strided(lt_iter iter, lt_view y, const uint8_t *x,
                                  const __grid_constant__ lt_normalize_config config)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at[LT_ITER_OPERANDS];
    if (i >= iter.count)
        return;
    lt_iter_offsets(&iter, i, at);
    lt_set_element_f32(y.data, y.dtype, at[0], lt_normalize_pixel(x[at[1]], &config, (int)at[2]));
}

lt_status normalize(void *ctx, const lt_normalize_config *config, const lt_view *x,
                    const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "normalize"));
    if (lt_view_is_channels_last(x) && lt_view_is_channels_last(y) && is_aligned(x->data)
        && is_aligned(y->data) && y->dtype != LT_F64) {
        const int64_t count = lt_shape_count(y->shape);
        WITH_TYPE(c, y->dtype,
                  normalize_dense<<<blocks_for(count, THREADS * LT_VECTOR_WIDTH), THREADS, 0,
                                    main_stream(c)>>>((const uint8_t *)x->data, (T *)y->data, count,
                                                      (int)y->shape.dim[1], *config))
    } else {
        lt_view channel = *y;
        const lt_view *const view[] = {y, x, &channel};
        lt_iter iter;
        for (int d = 0; d < LT_MAX_DIMS; d++)
            channel.stride[d] = d == 1;
        lt_iter_memory_order(&iter, view, 3);
        normalize_strided<<<blocks_for(iter.count, THREADS), THREADS, 0, main_stream(c)>>>(
            iter, *y, (const uint8_t *)x->data, *config);
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_pixels(lt_backend *be)
{
    be->dropout = dropout;
    be->normalize = normalize;
}
