/* Pooling: a thread processes eight channels of a channels-last image, or one channel with any strides. Gradients are
 * gathered: each pixel sums over the windows that contain it, in their order. */

#include "pool.cuh"

namespace
{

template <int WIDTH>
__device__ bool find_thread_pixel(const lt_grid &grid, int64_t channels, lt_pixel *p)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    *p = lt_find_pixel(&grid, i, channels / WIDTH);
    p->channel *= WIDTH;
    return p->image < grid.images;
}

__device__ void store_tap_indices(const tensor4<uint8_t> &index, int64_t row, int64_t channel,
                                  const int (&place)[LT_VECTOR_WIDTH])
{
    uint2 bytes;
    bytes.x = bytes.y = 0;
#pragma unroll
    for (int k = 0; k < LT_VECTOR_WIDTH; k++)
        (k < 4 ? bytes.x : bytes.y) |= (unsigned)place[k] << 8 * (k % 4);
    *(uint2 *)index.at<LT_VECTOR_WIDTH>(row, channel) = bytes;
}

__device__ void store_tap_indices(const tensor4<uint8_t> &index, int64_t row, int64_t channel,
                                  const int (&place)[1])
{
    *index.at<1>(row, channel) = (uint8_t)place[0];
}

/* v = relu(v * scale + shift), rounded to T. */
template <class T, int WIDTH>
__device__ void apply_norm_relu(const float (&scale)[WIDTH], const float (&shift)[WIDTH],
                                float (&v)[WIDTH])
{
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
        T rounded;
        store_float(&rounded, lt_norm_relu(lt_norm_affine(v[k], scale[k], shift[k])));
        v[k] = to_float(rounded);
    }
}

/* NORM: pools relu(batchnorm(x)), with coefficients coef. */
template <class T, int WIDTH, bool NORM>
__device__ void max_pool_window(const pool_shape &s, const tensor4<const T> &x, const float *coef,
                                const tensor4<T> &y, const tensor4<uint8_t> &index)
{
    lt_pixel at;
    float scale[WIDTH], shift[WIDTH];
    if (!find_thread_pixel<WIDTH>(s.y, s.channels, &at))
        return;
    const lt_pool2d_config &c = s.config;
    const lt_range r = lt_window_taps(at.h, c.kernel_h, c.stride_h, c.pad_h, s.x.height);
    const lt_range q = lt_window_taps(at.w, c.kernel_w, c.stride_w, c.pad_w, s.x.width);
    const int64_t top = at.h * c.stride_h - c.pad_h, left = at.w * c.stride_w - c.pad_w;
    const int64_t corner = (at.image * s.x.height + top) * s.x.width + left;
    if (NORM) {
        load_channels(coef + 2 * s.channels, at.channel, scale);
        load_channels(coef + 3 * s.channels, at.channel, shift);
    }
    float best[WIDTH] = {};
    int place[WIDTH] = {};
    bool first = true;
    for (int i = r.first; i < r.end; i++)
        for (int j = q.first; j < q.end; j++) {
            float v[WIDTH];
            x.load(corner + (int64_t)i * s.x.width + j, at.channel, v);
            if (NORM)
                apply_norm_relu<T>(scale, shift, v);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                if (first || lt_is_new_window_max(v[k], best[k])) {
                    best[k] = v[k];
                    place[k] = i * c.kernel_w + j;
                }
            first = false;
        }
    const int64_t row = (at.image * s.y.height + at.h) * s.y.width + at.w;
    y.store(row, at.channel, best);
    if (index.data)
        store_tap_indices(index, row, at.channel, place);
}

template <class T, int WIDTH>
__global__ void max_kernel(pool_shape s, tensor4<const T> x, tensor4<T> y, tensor4<uint8_t> index)
{
    max_pool_window<T, WIDTH, false>(s, x, NULL, y, index);
}

template <class T, int WIDTH>
__global__ void max_norm_kernel(pool_shape s, tensor4<const T> x, const float *coef, tensor4<T> y,
                                tensor4<uint8_t> index)
{
    max_pool_window<T, WIDTH, true>(s, x, coef, y, index);
}

template <class T, int WIDTH>
__global__ void max_grad_kernel(pool_shape s, outputs_gradient<T> dy, tensor4<T> dx)
{
    lt_pixel at;
    if (!find_thread_pixel<WIDTH>(s.x, s.channels, &at))
        return;
    float sum[WIDTH];
    dy.gather(at, sum);
    dx.store((at.image * s.x.height + at.h) * s.x.width + at.w, at.channel, sum);
}

template <class T, int WIDTH>
__global__ void average_kernel(pool_shape s, tensor4<const T> x, tensor4<T> y)
{
    lt_pixel at;
    if (!find_thread_pixel<WIDTH>(s.y, s.channels, &at))
        return;
    const lt_pool2d_config &c = s.config;
    const lt_range r = lt_window_taps(at.h, c.kernel_h, c.stride_h, c.pad_h, s.x.height);
    const lt_range q = lt_window_taps(at.w, c.kernel_w, c.stride_w, c.pad_w, s.x.width);
    const int64_t top = at.h * c.stride_h - c.pad_h, left = at.w * c.stride_w - c.pad_w;
    const int64_t corner = (at.image * s.x.height + top) * s.x.width + left;
    float sum[WIDTH] = {};
    for (int i = r.first; i < r.end; i++)
        for (int j = q.first; j < q.end; j++) {
            float v[WIDTH];
            x.load(corner + (int64_t)i * s.x.width + j, at.channel, v);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                sum[k] += v[k];
        }
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        sum[k] /= (float)(c.kernel_h * c.kernel_w);
    y.store((at.image * s.y.height + at.h) * s.y.width + at.w, at.channel, sum);
}

template <class T, int WIDTH>
__global__ void average_grad_kernel(pool_shape s, tensor4<const T> dy, tensor4<T> dx)
{
    lt_pixel at;
    if (!find_thread_pixel<WIDTH>(s.x, s.channels, &at))
        return;
    const lt_pool2d_config &c = s.config;
    const lt_range p = lt_windows_with_pixel(at.h, c.kernel_h, s.stride_h, c.pad_h, s.y.height);
    const lt_range q = lt_windows_with_pixel(at.w, c.kernel_w, s.stride_w, c.pad_w, s.y.width);
    const float area = (float)(c.kernel_h * c.kernel_w);
    float sum[WIDTH] = {};
    for (int i = p.first; i < p.end; i++)
        for (int j = q.first; j < q.end; j++) {
            float g[WIDTH];
            dy.load((at.image * s.y.height + i) * s.y.width + j, at.channel, g);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                sum[k] += g[k] / area;
        }
    dx.store((at.image * s.x.height + at.h) * s.x.width + at.w, at.channel, sum);
}

unsigned blocks_for_view(const lt_view *target, int vector)
{
    return blocks_for(lt_shape_count(target->shape) / vector, THREADS);
}

lt_status maxpool2d(void *ctx, const lt_pool2d_config *config, const lt_view *x, const lt_view *y,
                    const lt_view *index)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const pool_shape s = make_pool_shape(config, x, y);
    const bool vectors = can_use_vectors(x) && can_use_vectors(y) && can_use_vectors(index);
    LT_TRY(lt_cuda_begin(c, "maxpool2d"));
    LT_TRY(check_dtype(c, y->dtype, {x}));
    WITH_TYPE(c, y->dtype,
              WITH_WIDTH(vectors, max_kernel<T, WIDTH>
                         <<<blocks_for_view(y, WIDTH), THREADS, 0, main_stream(c)>>>(
                             s, make_tensor4<const T>(x), make_tensor4<T>(y),
                             make_tensor4<uint8_t>(index))))
    return lt_cuda_end(c);
}

lt_status maxpool2d_norm(void *ctx, const lt_pool2d_config *config, const lt_batchnorm_before *norm,
                         const lt_view *y, const lt_view *index)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const pool_shape s = make_pool_shape(config, norm->x, y);
    const float *coef = (const float *)norm->coef->data;
    const bool vectors = can_use_vectors(norm->x) && can_use_vectors(y) && can_use_vectors(index)
                         && is_aligned(coef);
    LT_TRY(lt_cuda_begin(c, "maxpool2d_norm"));
    LT_TRY(check_dtype(c, y->dtype, {norm->x}));
    LT_TRY(check_dtype(c, LT_F32, {norm->coef}));
    WITH_TYPE(c, y->dtype,
              WITH_WIDTH(vectors, max_norm_kernel<T, WIDTH>
                         <<<blocks_for_view(y, WIDTH), THREADS, 0, main_stream(c)>>>(
                             s, make_tensor4<const T>(norm->x), coef, make_tensor4<T>(y),
                             make_tensor4<uint8_t>(index))))
    return lt_cuda_end(c);
}

lt_status maxpool2d_grad(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                         const lt_view *index, const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const pool_shape s = make_pool_shape(config, dx, &dy[0]);
    const bool vectors = pool_grad_can_use_vectors(dy, index) && can_use_vectors(dx);
    LT_TRY(lt_cuda_begin(c, "maxpool2d_grad"));
    LT_TRY(check_dtype(c, dx->dtype, {&dy[0], &dy[1]}));
    WITH_TYPE(c, dx->dtype,
              WITH_WIDTH(vectors, max_grad_kernel<T, WIDTH>
                         <<<blocks_for_view(dx, WIDTH), THREADS, 0, main_stream(c)>>>(
                             s, make_outputs_gradient<T>(s, dy, index), make_tensor4<T>(dx))))
    return lt_cuda_end(c);
}

lt_status avgpool2d(void *ctx, const lt_pool2d_config *config, const lt_view *x, const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const pool_shape s = make_pool_shape(config, x, y);
    const bool vectors = can_use_vectors(x) && can_use_vectors(y);
    LT_TRY(lt_cuda_begin(c, "avgpool2d"));
    LT_TRY(check_dtype(c, y->dtype, {x}));
    WITH_TYPE(c, y->dtype,
              WITH_WIDTH(vectors, average_kernel<T, WIDTH>
                         <<<blocks_for_view(y, WIDTH), THREADS, 0, main_stream(c)>>>(
                             s, make_tensor4<const T>(x), make_tensor4<T>(y))))
    return lt_cuda_end(c);
}

lt_status avgpool2d_grad(void *ctx, const lt_pool2d_config *config, const lt_view *dy,
                         const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const pool_shape s = make_pool_shape(config, dx, dy);
    const bool vectors = can_use_vectors(dy) && can_use_vectors(dx);
    LT_TRY(lt_cuda_begin(c, "avgpool2d_grad"));
    LT_TRY(check_dtype(c, dx->dtype, {dy}));
    WITH_TYPE(c, dx->dtype,
              WITH_WIDTH(vectors, average_grad_kernel<T, WIDTH>
                         <<<blocks_for_view(dx, WIDTH), THREADS, 0, main_stream(c)>>>(
                             s, make_tensor4<const T>(dy), make_tensor4<T>(dx))))
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_pool(lt_backend *be)
{
    be->maxpool2d = maxpool2d;
    be->maxpool2d_norm = maxpool2d_norm;
    be->maxpool2d_grad = maxpool2d_grad;
    be->avgpool2d = avgpool2d;
    be->avgpool2d_grad = avgpool2d_grad;
}
