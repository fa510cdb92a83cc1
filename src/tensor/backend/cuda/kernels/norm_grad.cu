/* Backward of batch normalisation: sums over each channel in a fixed order, then the gradient.
 * Ioffe & Szegedy, "Batch Normalization", ICML 2015, section 3. The gradient that comes in lies in memory, is
 * gathered from that of a max-pooling, or is also that of a second batch norm, which made the residual. */

#include "pool.cuh"

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

/* The gradient of relu(batchnorm(x)) as that of the max-pooling behind it: gathered, never written. */
template <class T> struct pool_gradient {
    outputs_gradient<T> dy;
    tensor4<const T> x;
    const float *coef;
    int64_t channels;

    template <int WIDTH> struct pieces {
        vector<T, WIDTH> x;
        int64_t row, channel;
    };
    template <int WIDTH> __device__ void fetch(int64_t row, int64_t channel, pieces<WIDTH> *p) const
    {
        p->x.fetch(x.template at<WIDTH>(row, channel));
        p->row = row;
        p->channel = channel;
    }
    template <int WIDTH>
    __device__ void read(const pieces<WIDTH> &p, const float (&scale)[WIDTH],
                         const float (&shift)[WIDTH], float (&g)[WIDTH], float (&v)[WIDTH]) const
    {
        const bool is_short = x.rows.count < INT32_MAX;
        const int64_t line = lt_quotient(p.row, x.rows.width, is_short);
        const int64_t image = lt_quotient(line, x.rows.height, is_short);
        p.x.read(v);
        dy.gather(image, line - image * x.rows.height, p.row - line * x.rows.width, p.channel, g);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            g[k] = lt_norm_affine(v[k], scale[k], shift[k]) > 0 ? g[k] : 0;
    }
};

/* partial: [chunk][channel]. masked: where the masked gradient goes, or nowhere. */
template <class In, class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    sums_of_chunks(In in, tensor4<T> masked, lt_row_cut cut, grad_sums *partial)
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
        typename In::template pieces<WIDTH> next[together];
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

template <class T, class In>
lt_status run_stats(lt_cuda *c, const In &in, bool vectors, const tensor4<T> &masked, float *sums)
{
    const lt_row_cut cut = lt_cut_rows(in.x.rows.count, in.channels, vectors ? LT_VECTOR_WIDTH : 1);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN,
                             (size_t)(cut.chunks * in.channels) * sizeof(grad_sums), &memory));
    grad_sums *partial = (grad_sums *)memory;
    if (vectors)
        sums_of_chunks<In, T, LT_VECTOR_WIDTH>
            <<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, masked, cut, partial);
    else
        sums_of_chunks<In, T, 1>
            <<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, masked, cut, partial);
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
    const bool vectors = gradient_has_vectors(in) && has_vectors(g);
    WITH_TYPE(c, in->x->dtype,
              LT_TRY(run_stats(c, gradient_of<const T>(in), vectors, tensor_of<T>(g),
                               (float *)sums->data)))
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
template <class In, class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    grad_x_kernel(In in, tensor4<T> dx, const float *sums, float share, int lanes,
                  affine_outputs affine)
{
    constexpr int together = rows_together<T>();
    const int64_t channels = in.channels, rows = in.x.rows.count;
    const int lines = LT_ROW_THREADS / lanes;
    const int64_t channel = ((int64_t)blockIdx.y * lanes + threadIdx.x % lanes) * WIDTH;
    const int64_t first = (int64_t)blockIdx.x * lines * GRAD_DEPTH + threadIdx.x / lanes;
    float mean[WIDTH], scale[WIDTH], shift[WIDTH], rstd[WIDTH], mean_g[WIDTH] = {},
                                                                slope[WIDTH] = {};
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
        typename In::template pieces<WIDTH> next[together];
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

affine_outputs affine_of(const float *sums, const lt_view row[2])
{
    affine_outputs affine = {sums, {NULL, NULL}};
    for (int i = 0; i < 2 && sums; i++)
        affine.row[i] = (float *)row[i].data;
    return affine;
}

template <int WIDTH, class T, class In>
void run_grad_x(lt_cuda *c, const In &in, const affine_outputs &affine, double count,
                const tensor4<T> &dx)
{
    const int lanes = lt_row_lanes(in.channels, WIDTH);
    const int64_t lines = (int64_t)(LT_ROW_THREADS / lanes) * GRAD_DEPTH;
    const dim3 grid(blocks_for(in.x.rows.count, lines),
                    blocks_for(in.channels, (int64_t)lanes * WIDTH));
    const bool has_sums = count > 0 && affine.sums;
    grad_x_kernel<In, T, WIDTH><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(
        in, dx, has_sums ? affine.sums : NULL, has_sums ? (float)(1 / count) : 0, lanes, affine);
}

lt_status batchnorm_grad_x(void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
                           double count, const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const float *s = sums ? (const float *)sums->data : NULL;
    LT_TRY(lt_cuda_begin(c, "batchnorm_grad_x"));
    LT_TRY(want_dtypes(c, in, dx, sums));
    const affine_outputs affine = affine_of(s, in->affine);
    if (gradient_has_vectors(in) && has_vectors(dx) && is_aligned(s)) {
        WITH_TYPE(c, in->x->dtype,
                  run_grad_x<LT_VECTOR_WIDTH>(c, gradient_of<const T>(in), affine, count,
                                              tensor_of<T>(dx)))
    } else {
        WITH_TYPE(c, in->x->dtype,
                  run_grad_x<1>(c, gradient_of<const T>(in), affine, count, tensor_of<T>(dx)))
    }
    return lt_cuda_end(c);
}

/* Both halves, behind max-pooling. */
template <class T>
lt_status run_pool(lt_cuda *c, const outputs_gradient<T> &dy, bool vectors,
                   const lt_batchnorm_fused_grad *norm)
{
    float *sums = (float *)norm->sums->data;
    const tensor4<T> dx = tensor_of<T>(norm->dx);
    pool_gradient<T> in;
    in.dy = dy;
    in.x = tensor_of<const T>(norm->x);
    in.coef = (const float *)norm->coef->data;
    in.channels = norm->x->shape.dim[1];
    LT_TRY(run_stats(c, in, vectors, tensor4<T>(), sums));
    if (vectors)
        run_grad_x<LT_VECTOR_WIDTH>(c, in, affine_of(sums, norm->affine), norm->count, dx);
    else
        run_grad_x<1>(c, in, affine_of(sums, norm->affine), norm->count, dx);
    return LT_OK;
}

/* Of what a batch norm whose backward is done along reads and writes. */
lt_status want_along(const lt_cuda *c, const lt_batchnorm_fused_grad *norm, lt_dtype dtype)
{
    LT_TRY(want_dtype(c, norm->x, dtype));
    LT_TRY(want_dtype(c, norm->dx, dtype));
    LT_TRY(want_dtype(c, norm->coef, LT_F32));
    return want_dtype(c, norm->sums, LT_F32);
}

bool along_has_vectors(const lt_batchnorm_fused_grad *norm)
{
    return has_vectors(norm->x) && has_vectors(norm->dx) && is_aligned(norm->coef->data)
           && is_aligned(norm->sums->data);
}

lt_status maxpool2d_norm_grad(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                              const lt_view *index, const lt_batchnorm_fused_grad *norm)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_dtype dtype = norm->x->dtype;
    const pool_shape s = pool_shape_of(config, norm->x, &dy[0]);
    const bool vectors = outputs_gradient_has_vectors(dy, index) && along_has_vectors(norm);
    LT_TRY(lt_cuda_begin(c, "maxpool2d_norm_grad"));
    LT_TRY(want_along(c, norm, dtype));
    for (int i = 0; i < 2; i++)
        LT_TRY(want_dtype(c, &dy[i], dtype));
    WITH_TYPE(c, dtype, LT_TRY(run_pool(c, outputs_gradient_of<T>(s, dy, index), vectors, norm)))
    return lt_cuda_end(c);
}

/* --- A batch norm and the one that made its residual: the same masked gradient. --- */

/* Of one channel: sum of g, and of g * (x - mean) of both. */
struct both_sums {
    double g, gx[2];
};

__device__ both_sums merged(const both_sums &a, const both_sums &b)
{
    const both_sums both = {a.g + b.g, {a.gx[0] + b.gx[0], a.gx[1] + b.gx[1]}};
    return both;
}

/* in: the gradient, with a mask where there is a relu, and the first one's x. */
template <class T> struct both_gradient {
    norm_gradient<const T> in;
    tensor4<const T> other;
    const float *coef; /* of the other */

    template <int WIDTH> struct pieces {
        typename norm_gradient<const T>::template pieces<WIDTH> in;
        vector<T, WIDTH> other;
    };
    template <int WIDTH> __device__ void fetch(int64_t row, int64_t channel, pieces<WIDTH> *p) const
    {
        in.fetch(row, channel, &p->in);
        p->other.fetch(other.template at<WIDTH>(row, channel));
    }
    template <int WIDTH>
    __device__ void read(const pieces<WIDTH> &p, float (&g)[WIDTH], float (&x)[WIDTH],
                         float (&y)[WIDTH]) const
    {
        const float none[WIDTH] = {};
        in.read(p.in, none, none, g, x);
        p.other.read(y);
    }
};

/* Rows that a thread asks for together, of four tensors. */
template <class T> __host__ __device__ constexpr int rows_of_both()
{
    return sizeof(T) == 2 ? 2 : 1;
}

/* partial: [chunk][channel]. */
template <class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    sums_of_both(both_gradient<T> from, lt_row_cut cut, both_sums *partial)
{
    constexpr int together = rows_of_both<T>();
    const int64_t channels = from.in.channels;
    const place_in_cut p = place_of<WIDTH>(cut, from.in.x.rows.count);
    float sum[WIDTH] = {}, product[2][WIDTH] = {}, mean[2][WIDTH];
    const bool there = p.channel < channels;
    if (there) {
        load_channels(from.in.coef, p.channel, mean[0]);
        load_channels(from.coef, p.channel, mean[1]);
    }
    for (int64_t row = p.begin + p.line; row < p.end && there; row += together * cut.lines) {
        typename both_gradient<T>::template pieces<WIDTH> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            from.fetch(min(row + d * cut.lines, p.end - 1), p.channel, &next[d]);
#pragma unroll
        for (int d = 0; d < together; d++) {
            const bool mine = row + d * cut.lines < p.end;
            float g[WIDTH], x[WIDTH], y[WIDTH];
            from.read(next[d], g, x, y);
#pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                g[k] = mine ? g[k] : 0;
                sum[k] += g[k];
                product[0][k] = fmaf(g[k], mine ? x[k] - mean[0][k] : 0, product[0][k]);
                product[1][k] = fmaf(g[k], mine ? y[k] - mean[1][k] : 0, product[1][k]);
            }
        }
    }
    both_sums all;
    double again;
    add_lines(cut, sum, product[0], &all.g, &all.gx[0]);
    __syncthreads(); /* sums of lines before these were read */
    add_lines(cut, sum, product[1], &again, &all.gx[1]);
    const int64_t channel = channel_of_sums<WIDTH>(cut, channels);
    if (channel >= 0)
        partial[blockIdx.y * channels + channel] = all;
}

/* What both need of their coefficients and sums. */
struct both_outputs {
    const float *coef[2];
    float *sums[2];
};

__global__ void add_both(const both_sums *partial, int64_t chunks, int64_t channels,
                         both_outputs out)
{
    const int64_t channel = (int64_t)blockIdx.x * MERGED + threadIdx.x % MERGED;
    const both_sums all = merge_chunks_of(partial, chunks, channels, channel);
    if (threadIdx.x >= MERGED || channel >= channels)
        return;
    for (int i = 0; i < 2; i++) {
        out.sums[i][channel] = (float)all.g;
        out.sums[i][channels + channel] =
            (float)(all.gx[i] * (double)out.coef[i][channels + channel]);
    }
}

/* What dx is made of in a thread's channels: lt_norm_dx(). */
template <int WIDTH> struct dx_terms {
    float mean[WIDTH], scale[WIDTH], slope[WIDTH];
    /* share 0: the statistics were not this batch's. */
    __device__ void load(const float *coef, const float *sums, float share, int64_t channel,
                         int64_t channels)
    {
        float rstd[WIDTH];
        load_channels(coef, channel, mean);
        load_channels(coef + channels, channel, rstd);
        load_channels(coef + 2 * channels, channel, scale);
        load_channels(sums + channels, channel, slope);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            slope[k] *= share * rstd[k];
    }
    /* x becomes dx; g: without its mean. */
    __device__ void make(const float (&g)[WIDTH], float (&x)[WIDTH]) const
    {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            x[k] = lt_norm_dx(g[k], x[k], mean[k], scale[k], 0, slope[k]);
    }
};

template <class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    grad_both_kernel(both_gradient<T> from, tensor4<T> dx, tensor4<T> other_dx, float share,
                     int lanes, affine_outputs affine, affine_outputs other)
{
    constexpr int together = rows_of_both<T>();
    const int64_t channels = from.in.channels, rows = from.in.x.rows.count;
    const int lines = LT_ROW_THREADS / lanes;
    const int64_t channel = ((int64_t)blockIdx.y * lanes + threadIdx.x % lanes) * WIDTH;
    const int64_t first = (int64_t)blockIdx.x * lines * GRAD_DEPTH + threadIdx.x / lanes;
    dx_terms<WIDTH> own, its;
    float mean_g[WIDTH];
    if (channel >= channels)
        return;
    if (blockIdx.x == 0 && (int)threadIdx.x < lanes) {
        affine.template put<WIDTH>(channel, channels);
        other.template put<WIDTH>(channel, channels);
    }
    own.load(from.in.coef, affine.sums, share, channel, channels);
    its.load(from.coef, other.sums, share, channel, channels);
    load_channels(affine.sums, channel, mean_g);
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        mean_g[k] *= share;
#pragma unroll
    for (int begin = 0; begin < GRAD_DEPTH; begin += together) {
        typename both_gradient<T>::template pieces<WIDTH> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            from.fetch(min(first + (int64_t)(begin + d) * lines, rows - 1), channel, &next[d]);
#pragma unroll
        for (int d = 0; d < together; d++) {
            const int64_t row = first + (int64_t)(begin + d) * lines;
            float g[WIDTH], x[WIDTH], y[WIDTH];
            if (row >= rows)
                return;
            from.read(next[d], g, x, y);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                g[k] -= mean_g[k];
            own.make(g, x);
            dx.store(row, channel, x);
            its.make(g, y);
            other_dx.store(row, channel, y);
        }
    }
}

template <class T, int WIDTH>
lt_status run_both(lt_cuda *c, const lt_batchnorm_grad *gradient,
                   const lt_batchnorm_fused_grad norm[2])
{
    both_gradient<T> from;
    from.in = gradient_of<const T>(gradient);
    from.other = tensor_of<const T>(norm[1].x);
    from.coef = (const float *)norm[1].coef->data;
    const int64_t channels = from.in.channels, rows = from.in.x.rows.count;
    const lt_row_cut cut = lt_cut_rows(rows, channels, WIDTH);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, (size_t)(cut.chunks * channels) * sizeof(both_sums),
                             &memory));
    both_sums *partial = (both_sums *)memory;
    both_outputs out;
    for (int i = 0; i < 2; i++) {
        out.coef[i] = (const float *)norm[i].coef->data;
        out.sums[i] = (float *)norm[i].sums->data;
    }
    sums_of_both<T, WIDTH><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(from, cut, partial);
    add_both<<<merge_blocks(channels), THREADS, 0, main_stream(c)>>>(partial, cut.chunks, channels,
                                                                     out);
    const int lanes = lt_row_lanes(channels, WIDTH);
    const int64_t lines = (int64_t)(LT_ROW_THREADS / lanes) * GRAD_DEPTH;
    const dim3 blocks(blocks_for(rows, lines), blocks_for(channels, (int64_t)lanes * WIDTH));
    const float share = norm->count > 0 ? (float)(1 / norm->count) : 0;
    grad_both_kernel<T, WIDTH><<<blocks, LT_ROW_THREADS, 0, main_stream(c)>>>(
        from, tensor_of<T>(norm[0].dx), tensor_of<T>(norm[1].dx), share, lanes,
        affine_of(out.sums[0], norm[0].affine), affine_of(out.sums[1], norm[1].affine));
    return LT_OK;
}

lt_status batchnorm_add_grad(void *ctx, const lt_batchnorm_grad *in,
                             const lt_batchnorm_fused_grad norm[2])
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_dtype dtype = in->x->dtype;
    const bool vectors =
        gradient_has_vectors(in) && along_has_vectors(&norm[0]) && along_has_vectors(&norm[1]);
    LT_TRY(lt_cuda_begin(c, "batchnorm_add_grad"));
    for (int i = 0; i < 2; i++) {
        LT_TRY(want_dtype(c, &in->dy[i], dtype));
        LT_TRY(want_along(c, &norm[i], dtype));
    }
    if (vectors) {
        WITH_TYPE(c, dtype, LT_TRY((run_both<T, LT_VECTOR_WIDTH>(c, in, norm))))
    } else {
        WITH_TYPE(c, dtype, LT_TRY((run_both<T, 1>(c, in, norm))))
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_norm_grad(lt_backend *be)
{
    be->batchnorm_grad_stats = batchnorm_grad_stats;
    be->batchnorm_grad_x = batchnorm_grad_x;
    be->batchnorm_add_grad = batchnorm_add_grad;
    be->maxpool2d_norm_grad = maxpool2d_norm_grad;
}
