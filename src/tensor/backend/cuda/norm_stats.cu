/* Statistics of batch normalisation, read once: each thread sums differences to its channel's first
 * value in the chunk, each chunk becomes (count, mean, M2), and chunks are merged in the order of their
 * index by Chan's formula (rows.h). Then coefficients and running statistics. */

#include "norm.cuh"

namespace
{

/* A thread's sums become moments, which the first line of threads merges in the order of lines. */
template <int PACK>
__device__ void merge_lines(const lt_row_cut &cut, const place_in_cut &p, int64_t channels,
                            const float (&shift)[PACK], const float (&sum)[PACK],
                            const float (&square)[PACK], lt_moments *partial)
{
    __shared__ float shared[3][LT_ROW_THREADS];
    const int64_t mine = p.end - p.begin - p.line;
    const int64_t count = mine > 0 ? (mine + cut.lines - 1) / cut.lines : 0;
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        __syncthreads();
        shared[0][threadIdx.x] = (float)count;
        shared[1][threadIdx.x] = sum[k];
        shared[2][threadIdx.x] = square[k];
        __syncthreads();
        if (p.line > 0 || p.channel + k >= channels)
            continue;
        lt_moments all =
            lt_moments_of((double)count, (double)shift[k], (double)sum[k], (double)square[k]);
        for (int line = 1; line < cut.lines; line++) {
            const int from = line * cut.lanes + p.lane;
            all = lt_moments_merge(all,
                                   lt_moments_of((double)shared[0][from], (double)shift[k],
                                                 (double)shared[1][from], (double)shared[2][from]));
        }
        partial[blockIdx.y * channels + p.channel + k] = all;
    }
}

/* partial: [chunk][channel]. */
template <class T, int PACK>
__global__ void __launch_bounds__(LT_ROW_THREADS)
    stats_of_chunks(tensor4<const T> x, lt_row_cut cut, lt_moments *partial)
{
    const int64_t channels = x.rows.channels;
    const place_in_cut p = place_of<PACK>(cut, x.rows.count);
    float shift[PACK] = {}, sum[PACK] = {}, square[PACK] = {};
    if (p.channel < channels) {
        x.load(p.begin, p.channel, shift);
#pragma unroll 4
        for (int64_t row = p.begin + p.line; row < p.end; row += cut.lines) {
            float v[PACK];
            x.load(row, p.channel, v);
#pragma unroll
            for (int k = 0; k < PACK; k++) {
                const float d = v[k] - shift[k];
                sum[k] += d;
                square[k] = fmaf(d, d, square[k]);
            }
        }
    }
    merge_lines(cut, p, channels, shift, sum, square, partial);
}

enum { MERGERS = 8 }; /* threads that share a channel's chunks: each has a run of them */

__global__ void merge_chunks(const lt_moments *partial, int64_t chunks, int64_t channels,
                             float *stats)
{
    __shared__ lt_moments shared[MERGERS][32];
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
    const int64_t channel = (int64_t)blockIdx.x * 32 + lane;
    const int64_t run = (chunks + MERGERS - 1) / MERGERS;
    lt_moments all = {0, 0, 0};
    for (int64_t k = part * run; k < min((part + 1) * run, chunks) && channel < channels; k++)
        all = lt_moments_merge(all, partial[k * channels + channel]);
    shared[part][lane] = all;
    __syncthreads();
    if (part > 0 || channel >= channels)
        return;
    for (int i = 1; i < MERGERS; i++)
        all = lt_moments_merge(all, shared[i][lane]);
    stats[channel] = (float)all.count;
    stats[channels + channel] = (float)all.mean;
    stats[2 * channels + channel] = (float)all.m2;
}

template <class T> lt_status run_stats(lt_cuda *c, const lt_view *x, float *stats)
{
    const tensor4<const T> t = tensor_of<const T>(x);
    const bool packs = has_packs(x);
    const lt_row_cut cut = lt_cut_rows(t.rows.count, t.rows.channels, packs ? LT_PACK : 1);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(cut.chunks * t.rows.channels) * sizeof(lt_moments), &memory));
    lt_moments *partial = (lt_moments *)memory;
    if (packs)
        stats_of_chunks<T, LT_PACK><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(t, cut, partial);
    else
        stats_of_chunks<T, 1><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(t, cut, partial);
    merge_chunks<<<blocks_for(t.rows.channels, 32), 32 * MERGERS, 0, main_stream(c)>>>(
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

} /* namespace */

extern "C" void lt_cuda_install_norm_stats(lt_backend *be)
{
    be->batchnorm_stats = batchnorm_stats;
    be->batchnorm_finish = batchnorm_finish;
}
