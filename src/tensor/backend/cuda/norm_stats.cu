/* Statistics of batch normalisation, read once: all threads of a chunk sum differences to its channel's
 * first value there, each chunk becomes (count, mean, M2), and chunks are merged in the order of their
 * index by Chan's formula (rows.h). Then coefficients and running statistics. */

#include "norm.cuh"
#include "norm_sums.h"

namespace
{

/* partial: [chunk][channel]. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS)
    stats_of_chunks(tensor4<const T> x, lt_row_cut cut, lt_moments *partial)
{
    constexpr int together = rows_together<T>();
    const int64_t channels = x.rows.channels;
    const place_in_cut p = place_of<WIDTH>(cut, x.rows.count);
    float first[WIDTH] = {}, sum[WIDTH] = {}, square[WIDTH] = {};
    if (p.channel < channels)
        x.load(p.begin, p.channel, first);
    for (int64_t row = p.begin + p.line; row < p.end && p.channel < channels;
         row += together * cut.lines) {
        vector<T, WIDTH> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            next[d].fetch(x.template at<WIDTH>(min(row + d * cut.lines, p.end - 1), p.channel));
#pragma unroll
        for (int d = 0; d < together; d++) {
            float v[WIDTH];
            next[d].read(v);
#pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                const float away = row + d * cut.lines < p.end ? v[k] - first[k] : 0;
                sum[k] += away;
                square[k] = fmaf(away, away, square[k]);
            }
        }
    }
    double all, squares;
    add_lines(cut, sum, square, &all, &squares);
    const int64_t channel = channel_of_sums<WIDTH>(cut, channels);
    if (channel < 0)
        return;
    float shift[1];
    x.load(p.begin, channel, shift);
    partial[blockIdx.y * channels + channel] =
        lt_moments_of((double)(p.end - p.begin), (double)shift[0], all, squares);
}

__global__ void merge_chunks(const lt_moments *partial, int64_t chunks, int64_t channels,
                             float *stats)
{
    const int64_t channel = (int64_t)blockIdx.x * MERGED + threadIdx.x % MERGED;
    const lt_moments all = merge_chunks_of(partial, chunks, channels, channel);
    if (threadIdx.x >= MERGED || channel >= channels)
        return;
    stats[channel] = (float)all.count;
    stats[channels + channel] = (float)all.mean;
    stats[2 * channels + channel] = (float)all.m2;
}

template <class T> lt_status run_stats(lt_cuda *c, const lt_view *x, float *stats)
{
    const tensor4<const T> t = tensor_of<const T>(x);
    const bool vectors = has_vectors(x);
    const lt_row_cut cut = lt_cut_rows(t.rows.count, t.rows.channels, vectors ? LT_VECTOR_WIDTH : 1);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(cut.chunks * t.rows.channels) * sizeof(lt_moments), &memory));
    lt_moments *partial = (lt_moments *)memory;
    if (vectors)
        stats_of_chunks<T, LT_VECTOR_WIDTH><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(t, cut, partial);
    else
        stats_of_chunks<T, 1><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(t, cut, partial);
    merge_chunks<<<merge_blocks(t.rows.channels), THREADS, 0, main_stream(c)>>>(
        partial, cut.chunks, t.rows.channels, stats);
    return LT_OK;
}

lt_status batchnorm_stats(void *ctx, const lt_view *x, const lt_view *stats)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "batchnorm_stats"));
    LT_TRY(want_dtype(c, stats, LT_F32));
    WITH_TYPE(c, x->dtype, LT_TRY(run_stats<T>(c, x, (float *)stats->data)))
    return lt_cuda_end(c);
}

/* One channel's pointers; stats, mean and var may be NULL. */
struct norm_channels {
    const float *stats, *gamma, *beta;
    float *mean, *var, *coef;
    int64_t count;
};

__global__ void finish_channels(norm_channels n, lt_batchnorm2d_config config)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n.count)
        return;
    double mean, var;
    if (n.stats) {
        const double count = (double)n.stats[i], m2 = (double)n.stats[2 * n.count + i];
        mean = (double)n.stats[n.count + i];
        var = m2 / count;
        if (n.mean && n.var) {
            const double unbiased = m2 / (count > 1 ? count - 1 : 1), m = config.momentum;
            n.mean[i] = (float)((1 - m) * (double)n.mean[i] + m * mean);
            n.var[i] = (float)((1 - m) * (double)n.var[i] + m * unbiased);
        }
    } else {
        mean = (double)n.mean[i];
        var = (double)n.var[i];
    }
    const lt_norm_channel k =
        lt_norm_coefficients(mean, var, (double)n.gamma[i], (double)n.beta[i], config.eps);
    n.coef[i] = (float)k.mean;
    n.coef[n.count + i] = (float)k.rstd;
    n.coef[2 * n.count + i] = (float)k.scale;
    n.coef[3 * n.count + i] = (float)k.shift;
}

lt_status batchnorm_finish(void *ctx, const lt_batchnorm2d_config *config, const lt_view *stats,
                           const lt_view *gamma, const lt_view *beta, const lt_view *mean,
                           const lt_view *var, const lt_view *coef)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_view *const all[] = {stats, gamma, beta, mean, var, coef};
    LT_TRY(lt_cuda_begin(c, "batchnorm_finish"));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        LT_TRY(want_dtype(c, all[i], LT_F32));
    norm_channels n;
    n.stats = stats ? (const float *)stats->data : NULL;
    n.gamma = (const float *)gamma->data;
    n.beta = (const float *)beta->data;
    n.mean = mean ? (float *)mean->data : NULL;
    n.var = var ? (float *)var->data : NULL;
    n.coef = (float *)coef->data;
    n.count = coef->shape.dim[1];
    finish_channels<<<blocks_for(n.count, THREADS), THREADS, 0, main_stream(c)>>>(n, *config);
    return lt_cuda_end(c);
}

/* Statistics from sums that a convolution took along.
 *
 * sum(x^2) - mean * sum(x) loses digits where the mean is far from 0 (Chan, Golub & LeVeque, The
 * American Statistician 37, 1983, section 1). That shows in its result; such a channel, which is rare
 * behind a convolution, is read once more and summed around its first value, by the same block: a
 * launch more, or a choice of the host, would cost every step. */

/* The moments of one channel, read again by all threads of the block; right in thread 0. */
template <class T> __device__ lt_moments read_again(const tensor4<const T> &y, int64_t channel)
{
    float shift[1], v[1];
    double sum = 0, square = 0;
    y.load(0, channel, shift);
    for (int64_t row = threadIdx.x; row < y.rows.count; row += THREADS) {
        y.load(row, channel, v);
        const double d = (double)v[0] - (double)shift[0];
        sum += d;
        square += d * d;
    }
    sum = block_sum(sum);
    square = block_sum(square);
    return lt_moments_of((double)y.rows.count, (double)shift[0], sum, square);
}

/* A block for each channel. */
template <class T>
__global__ void moments_of_sums(tensor4<const T> y, const float *sum, const float *squares,
                                float *stats)
{
    const int64_t channel = blockIdx.x, channels = y.rows.channels;
    lt_moments m =
        lt_moments_of_sums((double)y.rows.count, (double)sum[channel], (double)squares[channel]);
    if (lt_moments_cancel(m))
        m = read_again(y, channel);
    if (threadIdx.x)
        return;
    stats[channel] = (float)m.count;
    stats[channels + channel] = (float)m.mean;
    stats[2 * channels + channel] = (float)m.m2;
}

} /* namespace */

extern "C" void lt_cuda_install_norm_stats(lt_backend *be)
{
    be->batchnorm_stats = batchnorm_stats;
    be->batchnorm_finish = batchnorm_finish;
}

extern "C" lt_status lt_cuda_moments_of_sums(lt_cuda *c, const lt_view *y, const float *sum,
                                             const float *squares, const lt_view *stats)
{
    LT_TRY(want_dtype(c, stats, LT_F32));
    WITH_TYPE(c, y->dtype,
              moments_of_sums<T><<<(unsigned)y->shape.dim[1], THREADS, 0, main_stream(c)>>>(
                  tensor_of<const T>(y), sum, squares, (float *)stats->data))
    return LT_OK;
}
