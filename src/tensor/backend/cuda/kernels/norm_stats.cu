/* Statistics of batch normalization in one pass: threads sum differences to the chunk's first value of the channel,
 * each chunk yields (count, mean, M2), and chunks are merged in index order by Chan's formula (rows.h). Then
 * coefficients and running statistics. */

#include "norm.cuh"
#include "tensor/backend/cuda/norm_sums.h"

namespace
{

/* partial: [chunk][channel]. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS)
    chunk_stats(tensor4<const T> x, lt_row_cut cut, lt_moments *partial)
{
    constexpr int together = rows_together<T>();
    const int64_t channels = x.rows.channels;
    const place_in_cut p = find_place_in_cut<WIDTH>(cut, x.rows.count);
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
    sum_over_lines(cut, sum, square, &all, &squares);
    const int64_t channel = channel_of_sums<WIDTH>(cut, channels);
    if (channel < 0)
        return;
    float shift[1];
    x.load(p.begin, channel, shift);
    partial[blockIdx.y * channels + channel] =
        lt_moments_from_sums((double)(p.end - p.begin), (double)shift[0], all, squares);
}

__global__ void merge_stats_chunks(const lt_moments *partial, int64_t chunks, int64_t channels,
                                   float *stats)
{
    const int64_t channel = (int64_t)blockIdx.x * MERGED + threadIdx.x % MERGED;
    const lt_moments all = merge_channel_chunks(partial, chunks, channels, channel);
    if (threadIdx.x >= MERGED || channel >= channels)
        return;
    stats[channel] = (float)all.count;
    stats[channels + channel] = (float)all.mean;
    stats[2 * channels + channel] = (float)all.m2;
}

template <class T> lt_status run_stats(lt_cuda *c, const lt_view *x, float *stats)
{
    const tensor4<const T> t = make_tensor4<const T>(x);
    const bool vectors = can_use_vectors(x);
    const lt_row_cut cut =
        lt_partition_rows(t.rows.count, t.rows.channels, vectors ? LT_VECTOR_WIDTH : 1);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(cut.chunks * t.rows.channels) * sizeof(lt_moments), &memory));
    lt_moments *partial = (lt_moments *)memory;
    WITH_WIDTH(vectors,
               chunk_stats<T, WIDTH><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(t, cut, partial))
    merge_stats_chunks<<<blocks_for_merge(t.rows.channels), THREADS, 0, main_stream(c)>>>(
        partial, cut.chunks, t.rows.channels, stats);
    return LT_OK;
}

lt_status batchnorm_stats(void *ctx, const lt_view *x, const lt_view *stats)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "batchnorm_stats"));
    LT_TRY(check_dtype(c, LT_F32, {stats}));
    WITH_TYPE(c, x->dtype, LT_TRY(run_stats<T>(c, x, (float *)stats->data)))
    return lt_cuda_end(c);
}

/* Outputs computed from a channel's moments; NULL if not wanted. */
struct norm_outputs {
    const float *gamma, *beta;
    float *mean, *var, *coef;
    int64_t *batches;
    void *rounded;
    lt_dtype rounded_dtype;
    int64_t count; /* channels */
    lt_batchnorm2d_config config;
};

/* Updates the running statistics from moments that are rounded to f32. */
__device__ void update_running_stats(const norm_outputs &n, int64_t i, double count, double mean,
                                     double m2, double *var)
{
    *var = m2 / count;
    if (n.batches && i == 0)
        ++*n.batches;
    if (n.mean && n.var) {
        const double unbiased = m2 / (count > 1 ? count - 1 : 1), m = n.config.momentum;
        n.mean[i] = (float)((1 - m) * (double)n.mean[i] + m * mean);
        n.var[i] = (float)((1 - m) * (double)n.var[i] + m * unbiased);
    }
}

__device__ void store_coefficients(const norm_outputs &n, int64_t i, double mean, double var)
{
    const lt_norm_channel k =
        lt_norm_coefficients(mean, var, (double)n.gamma[i], (double)n.beta[i], n.config.eps);
    n.coef[i] = (float)k.mean;
    n.coef[n.count + i] = (float)k.rstd;
    n.coef[2 * n.count + i] = (float)k.scale;
    n.coef[3 * n.count + i] = (float)k.shift;
    if (n.rounded) {
        lt_set_element_f32(n.rounded, n.rounded_dtype, i, (float)k.scale);
        lt_set_element_f32(n.rounded, n.rounded_dtype, n.count + i, (float)k.shift);
    }
}

/* stats NULL: uses the running statistics. */
__global__ void finish_channels(const float *stats, norm_outputs n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n.count)
        return;
    double mean = stats ? (double)stats[n.count + i] : (double)n.mean[i], var;
    if (stats)
        update_running_stats(n, i, (double)stats[i], mean, (double)stats[2 * n.count + i], &var);
    else
        var = (double)n.var[i];
    store_coefficients(n, i, mean, var);
}

/* Statistics from sums that a fused convolution computed.
 *
 * sum(x^2) - mean * sum(x) loses digits where the mean is far from 0 (Chan, Golub & LeVeque, The
 * American Statistician 37, 1983, section 1), which its result shows. Such a channel, rare after a convolution, is
 * read again and summed around its first value, by all blocks of the same launch: another launch, or a decision of
 * the host, would cost time in every step. The last block adds the others' sums in index order. */

enum { SUM_BLOCKS = LT_SUM_BLOCKS };
static_assert((int)LT_SUM_BLOCKS == (int)THREADS,
              "the last block has a thread for each block's part");

/* Blocks of a launch that have finished their part; 0 between launches. */
__device__ unsigned arrived;

/* Sums over one channel, around its first value. */
struct centred_sums {
    double x, square;
};

template <class T> struct sums_input {
    tensor4<const T> y;
    const float *sum, *squares;
    centred_sums *partial; /* [channel][block] */
    __device__ lt_moments moments(int64_t channel) const
    {
        return lt_moments_from_raw_sums((double)y.rows.count, (double)sum[channel],
                                        (double)squares[channel]);
    }
};

/* Sums this block's part of a channel's rows. */
template <class T> __device__ void reread_channel(const sums_input<T> &in, int64_t channel)
{
    const int64_t rows = in.y.rows.count, share = (rows + SUM_BLOCKS - 1) / SUM_BLOCKS,
                  length = max(share, (int64_t)THREADS);
    const int64_t begin = blockIdx.x * length, end = min(begin + length, rows);
    float shift[1], v[1];
    centred_sums s = {};
    if (begin >= rows) { /* the whole block */
        if (threadIdx.x == 0)
            in.partial[channel * SUM_BLOCKS + blockIdx.x] = s;
        return;
    }
    in.y.load(0, channel, shift);
    for (int64_t row = begin + threadIdx.x; row < end; row += THREADS) {
        in.y.load(row, channel, v);
        const double d = (double)v[0] - (double)shift[0];
        s.x += d;
        s.square += d * d;
    }
    s.x = block_sum(s.x);
    s.square = block_sum(s.square);
    if (threadIdx.x == 0)
        in.partial[channel * SUM_BLOCKS + blockIdx.x] = s;
}

/* The result is valid in thread 0. */
template <class T> __device__ lt_moments merge_block_parts(const sums_input<T> &in, int64_t channel)
{
    const centred_sums part = in.partial[channel * SUM_BLOCKS + threadIdx.x];
    float shift[1];
    in.y.load(0, channel, shift);
    const double sum = block_sum(part.x), square = block_sum(part.square);
    return lt_moments_from_sums((double)in.y.rows.count, (double)shift[0], sum, square);
}

/* Returns whether all other blocks have written their parts. The counting thread, which wrote this block's part,
 * makes both fences; after the barrier all its threads see what the others wrote. */
__device__ bool is_last_block()
{
    bool last = false;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(&arrived, 1U) == SUM_BLOCKS - 1;
        __threadfence();
        if (last)
            arrived = 0;
    }
    return __syncthreads_or(last);
}

/* Destination of moments: stats, or batch norm's coefficients. */
struct sums_output {
    float *stats;
    norm_outputs n;
    __device__ void put(int64_t channel, lt_moments m) const
    {
        const float count = (float)m.count, mean = (float)m.mean, m2 = (float)m.m2;
        if (stats) {
            stats[channel] = count;
            stats[n.count + channel] = mean;
            stats[2 * n.count + channel] = m2;
            return;
        }
        double var;
        update_running_stats(n, channel, (double)count, (double)mean, (double)m2, &var);
        store_coefficients(n, channel, (double)mean, var);
    }
};

template <class T>
__global__ void __launch_bounds__(THREADS) finish_from_sums(sums_input<T> in, sums_output out)
{
    const int64_t channels = out.n.count;
    bool any = false;
    for (int64_t i = threadIdx.x; i < channels; i += THREADS) {
        const lt_moments m = in.moments(i);
        if (lt_moments_have_cancelled(m))
            any = true;
        else if (i / THREADS == blockIdx.x)
            out.put(i, m);
    }
    if (!__syncthreads_or(any))
        return;
    for (int64_t i = 0; i < channels; i++)
        if (lt_moments_have_cancelled(in.moments(i)))
            reread_channel(in, i);
    if (!is_last_block())
        return;
    for (int64_t i = 0; i < channels; i++)
        if (lt_moments_have_cancelled(in.moments(i))) {
            const lt_moments m = merge_block_parts(in, i);
            if (threadIdx.x == 0)
                out.put(i, m);
        }
}

static_assert(SUM_BLOCKS * sizeof(centred_sums) == (size_t)LT_SUMS_BYTES,
              "LT_SUMS_BYTES of lt_cuda_moments_from_sums()");

lt_status run_finish_from_sums(lt_cuda *c, const lt_view *y, const float *sum, const float *squares,
                               void *parts, const sums_output &out)
{
    WITH_TYPE(c, y->dtype, sums_input<T> in; in.y = make_tensor4<const T>(y); in.sum = sum;
              in.squares = squares; in.partial = (centred_sums *)parts;
              finish_from_sums<T><<<SUM_BLOCKS, THREADS, 0, main_stream(c)>>>(in, out))
    return LT_OK;
}

norm_outputs make_norm_outputs(const lt_batchnorm2d_config *config, const lt_batchnorm_parts *p)
{
    norm_outputs n = {};
    n.gamma = float_data(p->gamma);
    n.beta = float_data(p->beta);
    n.mean = float_data(p->mean);
    n.var = float_data(p->var);
    n.coef = float_data(p->coef);
    n.batches = p->batches ? (int64_t *)p->batches->data : NULL;
    n.rounded = p->rounded ? p->rounded->data : NULL;
    n.rounded_dtype = n.rounded ? p->rounded->dtype : LT_F32;
    n.count = p->coef->shape.dim[1];
    n.config = *config;
    return n;
}

lt_status batchnorm_finish(void *ctx, const lt_batchnorm2d_config *config,
                           const lt_batchnorm_parts *p)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "batchnorm_finish"));
    LT_TRY(check_dtype(c, LT_F32, {p->stats, p->gamma, p->beta, p->mean, p->var, p->coef}));
    const norm_outputs n = make_norm_outputs(config, p);
    const float *stats = float_data(p->stats);
    if (stats && p->sums_of && p->sums_of->data) {
        const sums_output out = {NULL, n};
        void *parts;
        LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, (size_t)n.count * LT_SUMS_BYTES, &parts));
        LT_TRY(
            run_finish_from_sums(c, p->sums_of, stats + n.count, stats + 2 * n.count, parts, out));
    } else {
        finish_channels<<<blocks_for(n.count, THREADS), THREADS, 0, main_stream(c)>>>(stats, n);
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_norm_stats(lt_backend *be)
{
    be->batchnorm_stats = batchnorm_stats;
    be->batchnorm_finish = batchnorm_finish;
}

extern "C" lt_status lt_cuda_moments_from_sums(lt_cuda *c, const lt_view *y, const float *sum,
                                               const float *squares, void *parts,
                                               const lt_view *stats)
{
    sums_output out = {};
    LT_TRY(check_dtype(c, LT_F32, {stats}));
    out.stats = (float *)stats->data;
    out.n.count = y->shape.dim[1];
    return run_finish_from_sums(c, y, sum, squares, parts, out);
}
