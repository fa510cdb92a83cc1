/* Backward of batch normalisation: sums over each channel in a fixed order, then the gradient.
 * Ioffe & Szegedy, "Batch Normalization", ICML 2015, section 3. */

#include "norm.cuh"

namespace
{

/* Of one channel: sum of g, and of g * (x - mean). */
struct grad_sums {
    double g, gx;
};

template <int PACK>
__device__ void load_channels(const float *row, int64_t channel, float (&v)[PACK])
{
#pragma unroll
    for (int k = 0; k < PACK; k++)
        v[k] = row[channel + k];
}

template <int PACK>
__device__ void add_lines(const lt_row_cut &cut, const place_in_cut &p, int64_t channels,
                          const float (&sum)[PACK], const float (&product)[PACK],
                          grad_sums *partial)
{
    __shared__ float shared[2][LT_ROW_THREADS];
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        __syncthreads();
        shared[0][threadIdx.x] = sum[k];
        shared[1][threadIdx.x] = product[k];
        __syncthreads();
        if (p.line > 0 || p.channel + k >= channels)
            continue;
        grad_sums all = {(double)sum[k], (double)product[k]};
        for (int line = 1; line < cut.lines; line++) {
            all.g += (double)shared[0][line * cut.lanes + p.lane];
            all.gx += (double)shared[1][line * cut.lanes + p.lane];
        }
        partial[blockIdx.y * channels + p.channel + k] = all;
    }
}

/* partial: [chunk][channel]. masked: where the masked gradient goes, or nowhere. */
template <class T, int PACK>
__global__ void __launch_bounds__(LT_ROW_THREADS)
    sums_of_chunks(norm_gradient<const T> in, tensor4<T> masked, lt_row_cut cut, grad_sums *partial)
{
    const int64_t channels = in.channels;
    const place_in_cut p = place_of<PACK>(cut, in.x.rows.count);
    float sum[PACK] = {}, product[PACK] = {};
    if (p.channel < channels) {
        float mean[PACK], scale[PACK], shift[PACK];
        load_channels(in.coef, p.channel, mean);
        load_channels(in.coef + 2 * channels, p.channel, scale);
        load_channels(in.coef + 3 * channels, p.channel, shift);
#pragma unroll 2
        for (int64_t row = p.begin + p.line; row < p.end; row += cut.lines) {
            float g[PACK], x[PACK];
            in.load(row, p.channel, scale, shift, g, x);
            if (masked.data)
                masked.store(row, p.channel, g);
#pragma unroll
            for (int k = 0; k < PACK; k++) {
                sum[k] += g[k];
                product[k] = fmaf(g[k], x[k] - mean[k], product[k]);
            }
        }
    }
    add_lines(cut, p, channels, sum, product, partial);
}

/* sums: rows sum of g, sum of g * xhat. */
__global__ void add_chunks(const grad_sums *partial, int64_t chunks, int64_t channels,
                           const float *coef, float *sums)
{
    enum { PARTS = 8 };
    __shared__ grad_sums shared[PARTS][32];
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
    const int64_t channel = (int64_t)blockIdx.x * 32 + lane, run = (chunks + PARTS - 1) / PARTS;
    grad_sums all = {0, 0};
    for (int64_t k = part * run; k < min((part + 1) * run, chunks) && channel < channels; k++) {
        all.g += partial[k * channels + channel].g;
        all.gx += partial[k * channels + channel].gx;
    }
    shared[part][lane] = all;
    __syncthreads();
    if (part > 0 || channel >= channels)
        return;
    for (int i = 1; i < PARTS; i++) {
        all.g += shared[i][lane].g;
        all.gx += shared[i][lane].gx;
    }
    sums[channel] = (float)all.g;
    sums[channels + channel] = (float)(all.gx * (double)coef[channels + channel]);
}

template <class T>
lt_status run_stats(lt_cuda *c, const lt_batchnorm_grad *from, const lt_view *g, float *sums)
{
    const norm_gradient<const T> in = gradient_of<const T>(from);
    const tensor4<T> masked = tensor_of<T>(g);
    const bool packs = gradient_has_packs(from) && has_packs(g);
    const lt_row_cut cut = lt_cut_rows(in.x.rows.count, in.channels, packs ? LT_PACK : 1);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(cut.chunks * in.channels) * sizeof(grad_sums), &memory));
    grad_sums *partial = (grad_sums *)memory;
    if (packs)
        sums_of_chunks<T, LT_PACK>
            <<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, masked, cut, partial);
    else
        sums_of_chunks<T, 1><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, masked, cut, partial);
    add_chunks<<<blocks_for(in.channels, 32), THREADS, 0, main_stream(c)>>>(
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

enum { DEPTH = 4 }; /* rows of a thread */

/* sums NULL: the statistics were not this batch's, so they have no gradient. */
template <class T, int PACK>
__global__ void __launch_bounds__(LT_ROW_THREADS)
    grad_x_kernel(norm_gradient<const T> in, tensor4<T> dx, const float *sums, float share,
                  int lanes)
{
    const int64_t channels = in.channels;
    const int lines = LT_ROW_THREADS / lanes;
    const int64_t channel = ((int64_t)blockIdx.y * lanes + threadIdx.x % lanes) * PACK;
    const int64_t first = (int64_t)blockIdx.x * lines * DEPTH + threadIdx.x / lanes;
    float mean[PACK], scale[PACK], shift[PACK], mean_g[PACK] = {}, slope[PACK] = {};
    if (channel >= channels)
        return;
    load_channels(in.coef, channel, mean);
    load_channels(in.coef + 2 * channels, channel, scale);
    load_channels(in.coef + 3 * channels, channel, shift);
#pragma unroll
    for (int k = 0; k < PACK && sums; k++) {
        mean_g[k] = sums[channel + k] * share;
        slope[k] = sums[channels + channel + k] * share * in.coef[channels + channel + k];
    }
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        const int64_t row = first + (int64_t)d * lines;
        float g[PACK], x[PACK];
        if (row >= in.x.rows.count)
            return;
        in.load(row, channel, scale, shift, g, x);
#pragma unroll
        for (int k = 0; k < PACK; k++)
            g[k] = lt_norm_dx(g[k], x[k], mean[k], scale[k], mean_g[k], slope[k]);
        dx.store(row, channel, g);
    }
}

template <class T, int PACK>
void run_grad_x(lt_cuda *c, const lt_batchnorm_grad *from, const float *sums, double count,
                const lt_view *dx)
{
    const norm_gradient<const T> in = gradient_of<const T>(from);
    const int lanes = lt_row_lanes(in.channels, PACK);
    const int64_t lines = (int64_t)(LT_ROW_THREADS / lanes) * DEPTH;
    const dim3 grid(blocks_for(in.x.rows.count, lines),
                    blocks_for(in.channels, (int64_t)lanes * PACK));
    const bool has_sums = count > 0 && sums;
    grad_x_kernel<T, PACK><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(
        in, tensor_of<T>(dx), has_sums ? sums : NULL, has_sums ? (float)(1 / count) : 0, lanes);
}

lt_status batchnorm_grad_x(void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
                           double count, const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const float *s = sums ? (const float *)sums->data : NULL;
    LT_TRY(lt_cuda_begin(c, "batchnorm_grad_x"));
    LT_TRY(want_dtypes(c, in, dx, sums));
    if (gradient_has_packs(in) && has_packs(dx)) {
        WITH_TYPE(c, in->x->dtype, run_grad_x<T, LT_PACK>(c, in, s, count, dx))
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
