/* Backward of batch normalisation: sums over each channel in a fixed order, then the gradient.
 * Ioffe & Szegedy, "Batch Normalization", ICML 2015, section 3. */

#include "norm.cuh"

namespace
{

/* Of one channel: sum of g, and of g * (x - mean). */
struct grad_sums {
    double g, gx;
};

__device__ grad_sums merged(const grad_sums &a, const grad_sums &b)
{
    const grad_sums both = {a.g + b.g, a.gx + b.gx};
    return both;
}

/* partial: [chunk][channel]. masked: where the masked gradient goes, or nowhere. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    sums_of_chunks(norm_gradient<const T> in, tensor4<T> masked, lt_row_cut cut, grad_sums *partial)
{
    constexpr int together = rows_together<T>();
    const int64_t channels = in.channels;
    const place_in_cut p = place_of<WIDTH>(cut, in.x.rows.count);
    float sum[WIDTH] = {}, product[WIDTH] = {}, mean[WIDTH], scale[WIDTH], shift[WIDTH];
    const bool there = p.channel < channels;
    if (there) {
        load_channels(in.coef, p.channel, mean);
        load_channels(in.coef + 2 * channels, p.channel, scale);
        load_channels(in.coef + 3 * channels, p.channel, shift);
    }
    for (int64_t row = p.begin + p.line; row < p.end && there; row += together * cut.lines) {
        typename norm_gradient<const T>::template pieces<WIDTH> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            in.fetch(min(row + d * cut.lines, p.end - 1), p.channel, &next[d]);
#pragma unroll
        for (int d = 0; d < together; d++) {
            const bool mine = row + d * cut.lines < p.end;
            float g[WIDTH], x[WIDTH];
            in.read(next[d], scale, shift, g, x);
            if (masked.data && mine)
                masked.store(row + d * cut.lines, p.channel, g);
#pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                const float away = mine ? x[k] - mean[k] : 0;
                g[k] = mine ? g[k] : 0;
                sum[k] += g[k];
                product[k] = fmaf(g[k], away, product[k]);
            }
        }
    }
    grad_sums all;
    add_lines(cut, sum, product, &all.g, &all.gx);
    const int64_t channel = channel_of_sums<WIDTH>(cut, channels);
    if (channel >= 0)
        partial[blockIdx.y * channels + channel] = all;
}

/* sums: rows sum of g, sum of g * xhat. */
__global__ void add_chunks(const grad_sums *partial, int64_t chunks, int64_t channels,
                           const float *coef, float *sums)
{
    const int64_t channel = (int64_t)blockIdx.x * MERGED + threadIdx.x % MERGED;
    const grad_sums all = merge_chunks_of(partial, chunks, channels, channel);
    if (threadIdx.x >= MERGED || channel >= channels)
        return;
    sums[channel] = (float)all.g;
    sums[channels + channel] = (float)(all.gx * (double)coef[channels + channel]);
}

template <class T>
lt_status run_stats(lt_cuda *c, const lt_batchnorm_grad *from, const lt_view *g, float *sums)
{
    const norm_gradient<const T> in = gradient_of<const T>(from);
    const tensor4<T> masked = tensor_of<T>(g);
    const bool vectors = gradient_has_vectors(from) && has_vectors(g);
    const lt_row_cut cut = lt_cut_rows(in.x.rows.count, in.channels, vectors ? LT_VECTOR_WIDTH : 1);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(cut.chunks * in.channels) * sizeof(grad_sums), &memory));
    grad_sums *partial = (grad_sums *)memory;
    if (vectors)
        sums_of_chunks<T, LT_VECTOR_WIDTH>
            <<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, masked, cut, partial);
    else
        sums_of_chunks<T, 1><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, masked, cut, partial);
    add_chunks<<<merge_blocks(in.channels), THREADS, 0, main_stream(c)>>>(
        partial, cut.chunks, in.channels, in.coef, sums);
    return LT_OK;
}

lt_status want_dtypes(const lt_cuda *c, const lt_batchnorm_grad *in, const lt_view *out,
                      const lt_view *sums)
{
    for (int i = 0; i < 2; i++)
        LT_TRY(want_dtype(c, &in->dy[i], in->x->dtype));
    LT_TRY(want_dtype(c, out, in->x->dtype));
    LT_TRY(want_dtype(c, in->coef, LT_F32));
    return want_dtype(c, sums, LT_F32);
}

lt_status batchnorm_grad_stats(void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
                               const lt_view *sums)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "batchnorm_grad_stats"));
    LT_TRY(want_dtypes(c, in, g, sums));
    WITH_TYPE(c, in->x->dtype, LT_TRY(run_stats<T>(c, in, g, (float *)sums->data)))
    return lt_cuda_end(c);
}

enum { GRAD_DEPTH = 4 }; /* rows of a thread */

/* Where the sums go as gradients of the affine parameters; NULL: not wanted. */
struct affine_outputs {
    const float *sums;
    float *row[2];
    template <int WIDTH> __device__ void put(int64_t channel, int64_t channels) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                if (row[i])
                    row[i][channel + k] = sums[i * channels + channel + k];
    }
};

/* sums NULL: the statistics were not this batch's, so they have no gradient. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    grad_x_kernel(norm_gradient<const T> in, tensor4<T> dx, const float *sums, float share,
                  int lanes, affine_outputs affine)
{
    constexpr int together = rows_together<T>();
    const int64_t channels = in.channels, rows = in.x.rows.count;
    const int lines = LT_ROW_THREADS / lanes;
    const int64_t channel = ((int64_t)blockIdx.y * lanes + threadIdx.x % lanes) * WIDTH;
    const int64_t first = (int64_t)blockIdx.x * lines * GRAD_DEPTH + threadIdx.x / lanes;
    float mean[WIDTH], scale[WIDTH], shift[WIDTH], rstd[WIDTH], mean_g[WIDTH] = {}, slope[WIDTH] = {};
    if (channel >= channels)
        return;
    if (blockIdx.x == 0 && (int)threadIdx.x < lanes)
        affine.template put<WIDTH>(channel, channels);
    load_channels(in.coef, channel, mean);
    load_channels(in.coef + 2 * channels, channel, scale);
    load_channels(in.coef + 3 * channels, channel, shift);
    if (sums) {
        load_channels(in.coef + channels, channel, rstd);
        load_channels(sums, channel, mean_g);
        load_channels(sums + channels, channel, slope);
    }
#pragma unroll
    for (int k = 0; k < WIDTH && sums; k++) {
        mean_g[k] = mean_g[k] * share;
        slope[k] = slope[k] * share * rstd[k];
    }
#pragma unroll
    for (int begin = 0; begin < GRAD_DEPTH; begin += together) {
        typename norm_gradient<const T>::template pieces<WIDTH> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            in.fetch(min(first + (int64_t)(begin + d) * lines, rows - 1), channel, &next[d]);
#pragma unroll
        for (int d = 0; d < together; d++) {
            const int64_t row = first + (int64_t)(begin + d) * lines;
            float g[WIDTH], x[WIDTH];
            if (row >= rows)
                return;
            in.read(next[d], scale, shift, g, x);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                g[k] = lt_norm_dx(g[k], x[k], mean[k], scale[k], mean_g[k], slope[k]);
            dx.store(row, channel, g);
        }
    }
}

template <class T, int WIDTH>
void run_grad_x(lt_cuda *c, const lt_batchnorm_grad *from, const float *sums, double count,
                const lt_view *dx)
{
    const norm_gradient<const T> in = gradient_of<const T>(from);
    const int lanes = lt_row_lanes(in.channels, WIDTH);
    const int64_t lines = (int64_t)(LT_ROW_THREADS / lanes) * GRAD_DEPTH;
    const dim3 grid(blocks_for(in.x.rows.count, lines),
                    blocks_for(in.channels, (int64_t)lanes * WIDTH));
    const bool has_sums = count > 0 && sums;
    affine_outputs affine = {sums, {NULL, NULL}};
    for (int i = 0; i < 2 && sums; i++)
        affine.row[i] = (float *)from->affine[i].data;
    grad_x_kernel<T, WIDTH><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(
        in, tensor_of<T>(dx), has_sums ? sums : NULL, has_sums ? (float)(1 / count) : 0, lanes,
        affine);
}

lt_status batchnorm_grad_x(void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
                           double count, const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const float *s = sums ? (const float *)sums->data : NULL;
    LT_TRY(lt_cuda_begin(c, "batchnorm_grad_x"));
    LT_TRY(want_dtypes(c, in, dx, sums));
    if (gradient_has_vectors(in) && has_vectors(dx) && is_aligned(s)) {
        WITH_TYPE(c, in->x->dtype, run_grad_x<T, LT_VECTOR_WIDTH>(c, in, s, count, dx))
    } else {
        WITH_TYPE(c, in->x->dtype, run_grad_x<T, 1>(c, in, s, count, dx))
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_norm_grad(lt_backend *be)
{
    be->batchnorm_grad_stats = batchnorm_grad_stats;
    be->batchnorm_grad_x = batchnorm_grad_x;
}
