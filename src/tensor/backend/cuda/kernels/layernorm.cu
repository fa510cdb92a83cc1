/* Layer and RMS normalization: one warp per row, sums in double. Sums over rows are split into chunks by size and
 * merged in index order. Ba, Kiros & Hinton, "Layer Normalization", 2016. Formulas: detail/norm_kernels.h. */

#include "norm.cuh"
#include "warp.cuh"

namespace
{

/* Contiguous vectors of f32, NULL if absent. stats [2,rows]. */
struct layer_vectors {
    const float *gamma, *beta;
    float *stats;
    bool rms;
    double eps;
};

template <int WIDTH>
__device__ void load_or_default(float otherwise, const float *row, int64_t channel,
                                float (&v)[WIDTH])
{
    if (row)
        load_channels(row, channel, v);
#pragma unroll
    for (int k = 0; k < WIDTH && !row; k++)
        v[k] = otherwise;
}

/* A row's mean as the sum of two floats, so that x - mean has no more error than x; 0 for RMS. */
struct layer_mean {
    float high, low;
    __device__ float away(float x) const
    {
        return x - high - low;
    }
};

template <class T, int WIDTH>
__device__ layer_mean row_mean(const tensor4<const T> &x, int64_t row, int64_t channels)
{
    double sum = 0;
    for (int64_t c = threadIdx.x % WARP * WIDTH; c < channels; c += WARP * WIDTH) {
        float v[WIDTH], part = 0;
        x.load(row, c, v);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            part += v[k];
        sum += (double)part;
    }
    const double mean = warp_sum(sum) / (double)channels;
    layer_mean m;
    m.high = (float)mean;
    m.low = (float)(mean - (double)m.high);
    return m;
}

template <class T, int WIDTH>
__device__ double row_square_sum(const tensor4<const T> &x, int64_t row, int64_t channels,
                                 layer_mean m)
{
    double sum = 0;
    for (int64_t c = threadIdx.x % WARP * WIDTH; c < channels; c += WARP * WIDTH) {
        float v[WIDTH], part = 0;
        x.load(row, c, v);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            part = fmaf(m.away(v[k]), m.away(v[k]), part);
        sum += (double)part;
    }
    return warp_sum(sum);
}

template <class T, int WIDTH>
__global__ void normalise_rows(tensor4<const T> x, tensor4<T> y, layer_vectors v)
{
    const int64_t row = row_of_warp(), channels = x.rows.channels;
    if (row >= x.rows.count)
        return;
    layer_mean m = {0, 0};
    if (!v.rms)
        m = row_mean<T, WIDTH>(x, row, channels);
    const double square = row_square_sum<T, WIDTH>(x, row, channels, m);
    const float rstd = (float)(1 / sqrt(square / (double)channels + v.eps));
    if (threadIdx.x % WARP == 0) {
        v.stats[row] = m.high;
        v.stats[x.rows.count + row] = rstd;
    }
    for (int64_t c = threadIdx.x % WARP * WIDTH; c < channels; c += WARP * WIDTH) {
        float u[WIDTH], gamma[WIDTH], beta[WIDTH];
        x.load(row, c, u);
        load_or_default(1.0F, v.gamma, c, gamma);
        load_or_default(0.0F, v.beta, c, beta);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            u[k] = fmaf(m.away(u[k]) * rstd, gamma[k], beta[k]);
        y.store(row, c, u);
    }
}

/* Inputs of the backward pass. */
template <class T> struct layer_gradient {
    tensor4<const T> dy, x;
    const float *gamma, *stats;
    bool rms;
    /* Computes h = gamma * dy and the normalized x of a vector. */
    template <int WIDTH>
    __device__ void load(int64_t row, int64_t c, float (&h)[WIDTH], float (&n)[WIDTH]) const
    {
        const float mean = stats[row], rstd = stats[x.rows.count + row];
        float scale[WIDTH];
        dy.load(row, c, h);
        x.load(row, c, n);
        load_or_default(1.0F, gamma, c, scale);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            h[k] *= scale[k];
            n[k] = (n[k] - mean) * rstd;
        }
    }
};

/* dx = rstd * (h - mean(h) - xhat * mean(h * xhat)); RMS: without mean(h). */
template <class T, int WIDTH> __global__ void layer_grad_x(layer_gradient<T> in, tensor4<T> dx)
{
    const int64_t row = row_of_warp(), channels = in.x.rows.channels;
    double sum = 0, product = 0;
    float h[WIDTH], n[WIDTH];
    if (row >= in.x.rows.count)
        return;
    for (int64_t c = threadIdx.x % WARP * WIDTH; c < channels; c += WARP * WIDTH) {
        float s = 0, p = 0;
        in.load(row, c, h, n);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            s += h[k];
            p = fmaf(h[k], n[k], p);
        }
        sum += (double)s;
        product += (double)p;
    }
    const float mean_h = in.rms ? 0 : (float)(warp_sum(sum) / (double)channels);
    const float slope = (float)(warp_sum(product) / (double)channels);
    const float rstd = in.stats[in.x.rows.count + row];
    for (int64_t c = threadIdx.x % WARP * WIDTH; c < channels; c += WARP * WIDTH) {
        in.load(row, c, h, n);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            h[k] = rstd * (h[k] - mean_h - n[k] * slope);
        dx.store(row, c, h);
    }
}

/* partial: [chunk][channel], with dy and the normalized x. in.gamma is NULL. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    layer_chunk_sums(layer_gradient<T> in, lt_row_cut cut, grad_sums<1> *partial)
{
    const int64_t channels = in.x.rows.channels;
    const place_in_cut p = find_place_in_cut<WIDTH>(cut, in.x.rows.count);
    float product[WIDTH] = {}, sum[WIDTH] = {};
    for (int64_t row = p.begin + p.line; row < p.end && p.channel < channels; row += cut.lines) {
        float dy[WIDTH], n[WIDTH];
        in.load(row, p.channel, dy, n);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            product[k] = fmaf(dy[k], n[k], product[k]);
            sum[k] += dy[k];
        }
    }
    grad_sums<1> all;
    sum_over_lines(cut, product, sum, &all.gx[0], &all.g);
    const int64_t channel = channel_of_sums<WIDTH>(cut, channels);
    if (channel >= 0)
        partial[blockIdx.y * channels + channel] = all;
}

__global__ void layer_merge_chunks(const grad_sums<1> *partial, int64_t chunks, int64_t channels,
                                   float *dgamma, float *dbeta)
{
    const int64_t channel = (int64_t)blockIdx.x * MERGED + threadIdx.x % MERGED;
    const grad_sums<1> all = merge_channel_chunks(partial, chunks, channels, channel);
    if (threadIdx.x >= MERGED || channel >= channels)
        return;
    if (dgamma)
        dgamma[channel] = (float)all.gx[0];
    if (dbeta)
        dbeta[channel] = (float)all.g;
}

/* Views rows as pixels of one image. */
lt_view rows_as_images(const lt_view *x)
{
    lt_view v = *x;
    v.shape.ndim = 4;
    for (int d = 2; d < 4; d++) {
        v.shape.dim[d] = 1;
        v.stride[d] = x->shape.dim[1];
    }
    return v;
}

template <class T> tensor4<T> rows_tensor(const lt_view *x)
{
    const lt_view v = rows_as_images(x);
    return make_tensor4<T>(&v);
}

bool rows_can_use_vectors(const lt_view *x)
{
    const lt_view v = rows_as_images(x);
    return can_use_vectors(&v);
}

lt_status layernorm(void *ctx, const lt_layernorm_config *config, const lt_view *x,
                    const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                    const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const layer_vectors v = {float_data(gamma), float_data(beta), float_data(stats), config->rms,
                             config->eps};
    const unsigned blocks = blocks_for(x->shape.dim[0], WARPS);
    LT_TRY(lt_cuda_begin(c, "layernorm"));
    LT_TRY(check_dtype(c, LT_F32, {gamma, beta, stats}));
    LT_TRY(check_dtype(c, x->dtype, {y}));
    const bool wide = rows_can_use_vectors(x) && rows_can_use_vectors(y) && is_aligned(v.gamma)
                      && is_aligned(v.beta);
    WITH_TYPE(c, x->dtype, {
        const tensor4<const T> in = rows_tensor<const T>(x);
        const tensor4<T> out = rows_tensor<T>(y);
        WITH_WIDTH(wide,
                   normalise_rows<T, WIDTH><<<blocks, THREADS, 0, main_stream(c)>>>(in, out, v))
    })
    return lt_cuda_end(c);
}

template <class T, int WIDTH>
lt_status run_layer_sums(lt_cuda *c, layer_gradient<T> in, const lt_layernorm_grad *g)
{
    const int64_t channels = in.x.rows.channels;
    const lt_row_cut cut = lt_partition_rows(in.x.rows.count, channels, WIDTH);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(cut.chunks * channels) * sizeof(grad_sums<1>), &memory));
    grad_sums<1> *partial = (grad_sums<1> *)memory;
    in.gamma = NULL;
    layer_chunk_sums<T, WIDTH><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, cut, partial);
    layer_merge_chunks<<<blocks_for_merge(channels), THREADS, 0, main_stream(c)>>>(
        partial, cut.chunks, channels, float_data(g->dgamma), float_data(g->dbeta));
    return LT_OK;
}

template <class T, int WIDTH>
lt_status run_layer_grad(lt_cuda *c, bool rms, const lt_layernorm_grad *g)
{
    const layer_gradient<T> in = {rows_tensor<const T>(g->dy), rows_tensor<const T>(g->x),
                                  float_data(g->gamma), float_data(g->stats), rms};
    if (g->dgamma || g->dbeta)
        LT_TRY((run_layer_sums<T, WIDTH>(c, in, g)));
    if (g->dx) {
        const unsigned blocks = blocks_for(in.x.rows.count, WARPS);
        layer_grad_x<T, WIDTH><<<blocks, THREADS, 0, main_stream(c)>>>(in, rows_tensor<T>(g->dx));
    }
    return LT_OK;
}

lt_status layernorm_grad(void *ctx, const lt_layernorm_config *config, const lt_layernorm_grad *g)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "layernorm_grad"));
    LT_TRY(check_dtype(c, LT_F32, {g->gamma, g->stats, g->dgamma, g->dbeta}));
    LT_TRY(check_dtype(c, g->x->dtype, {g->dy, g->dx}));
    const bool wide = rows_can_use_vectors(g->dy) && rows_can_use_vectors(g->x)
                      && (!g->dx || rows_can_use_vectors(g->dx))
                      && is_aligned(float_data(g->gamma));
    WITH_TYPE(c, g->x->dtype,
              WITH_WIDTH(wide, LT_TRY((run_layer_grad<T, WIDTH>(c, config->rms, g)))))
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_layernorm(lt_backend *be)
{
    be->layernorm = layernorm;
    be->layernorm_grad = layernorm_grad;
}
