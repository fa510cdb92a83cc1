/* Backward of batch normalization: sums over each channel in a fixed order, then the gradient. Ioffe & Szegedy,
 * "Batch Normalization", ICML 2015, section 3.
 *
 * The kernels are templates of a source, which says where the incoming gradient g comes from and which batch norms
 * have it: it is in memory; it is gathered from that of a max-pooling; or a second batch norm, whose output was the
 * residual, has it too. A source has
 *
 *   NORMS                          the number of batch norms
 *   AFFINE                         whether read() recomputes relu's mask from scale and shift of norm 0
 *   TOGETHER                       rows that a thread requests before it uses the first
 *   channels, x, coef_of(i)        those of norm 0; coefficients [4,C] of norm i
 *   fetch(row, channel, &pieces)   requests WIDTH channels of a row
 *   read(pieces, ..., g, x)        converts them to g and, for each norm, x */

#include "pool.cuh"

namespace
{

/* The source in memory. */
template <class T> struct norm_gradient {
    enum { NORMS = 1, AFFINE = true, TOGETHER = rows_together<T>() };
    tensor4<const T> dy, dy2, x;
    const float *coef;
    const uint8_t *mask;
    int64_t channels;
    bool relu;

    __device__ const float *coef_of(int) const
    {
        return coef;
    }
    template <int WIDTH> struct pieces {
        vector<T, WIDTH> dy, dy2, x;
        unsigned bits;
    };
    template <int WIDTH> __device__ void fetch(int64_t row, int64_t channel, pieces<WIDTH> *p) const
    {
        p->dy.fetch(dy.template at<WIDTH>(row, channel));
        p->x.fetch(x.template at<WIDTH>(row, channel));
        p->dy2 = vector<T, WIDTH>(); /* silences the host compiler of the emulator */
        if (dy2.data)
            p->dy2.fetch(dy2.template at<WIDTH>(row, channel));
        const int64_t bit = row * channels + channel;
        p->bits = mask ? (unsigned)mask[bit / 8] >> bit % 8 : 0;
    }
    template <int WIDTH>
    __device__ void read(const pieces<WIDTH> &p, const float (&scale)[WIDTH],
                         const float (&shift)[WIDTH], float (&g)[WIDTH], float (&v)[1][WIDTH]) const
    {
        p.dy.read(g);
        p.x.read(v[0]);
        if (dy2.data) {
            float more[WIDTH];
            p.dy2.read(more);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                g[k] += more[k];
        }
        if (!relu)
            return;
        unsigned passed = p.bits;
#pragma unroll
        for (int k = 0; k < WIDTH && !mask; k++)
            passed |= (unsigned)(lt_norm_affine(v[0][k], scale[k], shift[k]) > 0) << k;
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            g[k] = passed >> k & 1 ? g[k] : 0;
    }
};

template <class T> norm_gradient<T> make_norm_gradient(const lt_batchnorm_grad *in)
{
    norm_gradient<T> g;
    g.dy = make_tensor4<const T>(&in->dy[0]);
    g.dy2 = make_tensor4<const T>(&in->dy[1]);
    g.x = make_tensor4<const T>(in->x);
    g.coef = (const float *)in->coef->data;
    g.mask = in->mask && in->mask->data ? (const uint8_t *)in->mask->data : (const uint8_t *)NULL;
    g.channels = in->x->shape.dim[1];
    g.relu = in->relu;
    return g;
}

bool gradient_can_use_vectors(const lt_batchnorm_grad *in)
{
    return can_use_vectors(&in->dy[0]) && can_use_vectors(&in->dy[1]) && can_use_vectors(in->x)
           && is_aligned(in->coef->data);
}

/* The gradient of relu(batchnorm(x)), gathered from that of the max-pooling after it and never written. */
template <class T> struct pool_gradient {
    enum { NORMS = 1, AFFINE = true, TOGETHER = 2 };
    outputs_gradient<T> dy;
    tensor4<const T> x;
    const float *coef;
    int64_t channels;

    __device__ const float *coef_of(int) const
    {
        return coef;
    }
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
                         const float (&shift)[WIDTH], float (&g)[WIDTH], float (&v)[1][WIDTH]) const
    {
        lt_pixel at = lt_find_row(&dy.s.x, p.row);
        at.channel = p.channel;
        p.x.read(v[0]);
        dy.gather(at, g);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            g[k] = lt_norm_affine(v[0][k], scale[k], shift[k]) > 0 ? g[k] : 0;
    }
};

/* The same for the sums, without a gather: its rows are windows, x is their maxima. */
template <class T> struct pool_window_gradient {
    enum { NORMS = 1, AFFINE = true, TOGETHER = 2 };
    pool_gradient<T> in;
    int64_t channels;

    __device__ const float *coef_of(int) const
    {
        return in.coef;
    }
    template <int WIDTH> struct pieces {
        typename outputs_gradient<T>::template pieces<WIDTH> dy;
        T x[WIDTH];
    };
    template <int WIDTH> __device__ void fetch(int64_t row, int64_t channel, pieces<WIDTH> *p) const
    {
        const pool_shape &s = in.dy.s;
        const lt_pixel at = lt_find_row(&s.y, row);
        const int top = at.h * s.config.stride_h - s.config.pad_h;
        const int left = at.w * s.config.stride_w - s.config.pad_w;
        const int64_t corner = (at.image * s.x.height + top) * s.x.width + left;
        const int step = s.x.width - s.config.kernel_w;
        in.dy.fetch(row, channel, row * channels + channel, &p->dy);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            const unsigned tap = p->dy.index.tap(k);
            const int64_t pixel = corner + tap + (int64_t)lt_divide(tap, s.kernel_w) * step;
            p->x[k] = WIDTH == 1 ? *in.x.template at<1>(pixel, channel)
                                 : in.x.data[pixel * channels + channel + k];
        }
    }
    template <int WIDTH>
    __device__ void read(const pieces<WIDTH> &p, const float (&scale)[WIDTH],
                         const float (&shift)[WIDTH], float (&g)[WIDTH], float (&v)[1][WIDTH]) const
    {
        p.dy.read(g);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            v[0][k] = to_float(p.x[k]);
            g[k] = lt_norm_affine(v[0][k], scale[k], shift[k]) > 0 ? g[k] : 0;
        }
    }
};

/* The gradient of a batch norm, with a mask if it has a relu, and of the one that made its residual. */
template <class T> struct both_gradient {
    enum { NORMS = 2, AFFINE = false, TOGETHER = sizeof(T) == 2 ? 2 : 1 };
    norm_gradient<T> in;
    tensor4<const T> x, other; /* x: in's */
    const float *other_coef;
    int64_t channels;

    __device__ const float *coef_of(int i) const
    {
        return i ? other_coef : in.coef;
    }
    template <int WIDTH> struct pieces {
        typename norm_gradient<T>::template pieces<WIDTH> in;
        vector<T, WIDTH> other;
    };
    template <int WIDTH> __device__ void fetch(int64_t row, int64_t channel, pieces<WIDTH> *p) const
    {
        in.fetch(row, channel, &p->in);
        p->other.fetch(other.template at<WIDTH>(row, channel));
    }
    template <int WIDTH>
    __device__ void read(const pieces<WIDTH> &p, const float (&scale)[WIDTH],
                         const float (&shift)[WIDTH], float (&g)[WIDTH], float (&v)[2][WIDTH]) const
    {
        float own[1][WIDTH];
        in.read(p.in, scale, shift, g, own);
        p.other.read(v[1]);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            v[0][k] = own[0][k];
    }
};

template <class T>
both_gradient<T> make_both_gradient(const lt_batchnorm_grad *in,
                                    const lt_batchnorm_fused_grad *other)
{
    both_gradient<T> g;
    g.in = make_norm_gradient<T>(in);
    g.x = g.in.x;
    g.other = make_tensor4<const T>(other->x);
    g.other_coef = (const float *)other->coef->data;
    g.channels = g.in.channels;
    return g;
}

/* partial: [chunk][channel]. masked: receives the masked gradient, if it has data. */
template <class In, class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    chunk_grad_sums(In in, tensor4<T> masked, int64_t rows, lt_row_cut cut,
                    grad_sums<In::NORMS> *partial)
{
    constexpr int norms = In::NORMS, together = In::TOGETHER;
    const int64_t channels = in.channels;
    const place_in_cut p = find_place_in_cut<WIDTH>(cut, rows);
    float sum[WIDTH] = {}, product[norms][WIDTH] = {}, mean[norms][WIDTH];
    float scale[WIDTH] = {}, shift[WIDTH] = {};
    const bool there = p.channel < channels;
#pragma unroll
    for (int i = 0; i < norms; i++)
        if (there)
            load_channels(in.coef_of(i), p.channel, mean[i]);
    if (there && In::AFFINE) {
        load_channels(in.coef_of(0) + 2 * channels, p.channel, scale);
        load_channels(in.coef_of(0) + 3 * channels, p.channel, shift);
    }
    for (int64_t row = p.begin + p.line; row < p.end && there; row += together * cut.lines) {
        typename In::template pieces<WIDTH> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            in.fetch(min(row + d * cut.lines, p.end - 1), p.channel, &next[d]);
#pragma unroll
        for (int d = 0; d < together; d++) {
            const bool mine = row + d * cut.lines < p.end;
            float g[WIDTH], x[norms][WIDTH];
            in.read(next[d], scale, shift, g, x);
            if (masked.data && mine)
                masked.store(row + d * cut.lines, p.channel, g);
#pragma unroll
            for (int k = 0; k < WIDTH; k++) {
                g[k] = mine ? g[k] : 0;
                sum[k] += g[k];
#pragma unroll
                for (int i = 0; i < norms; i++)
                    product[i][k] = fmaf(g[k], mine ? x[i][k] - mean[i][k] : 0, product[i][k]);
            }
        }
    }
    grad_sums<norms> all;
#pragma unroll
    for (int i = 0; i < norms; i++) {
        if (i)
            __syncthreads(); /* the previous sums were read */
        sum_over_lines(cut, sum, product[i], &all.g, &all.gx[i]);
    }
    const int64_t channel = channel_of_sums<WIDTH>(cut, channels);
    if (channel >= 0)
        partial[blockIdx.y * channels + channel] = all;
}

/* For each norm: coefficients, and the result [2,C], sums of g and of g * xhat. */
template <int NORMS> struct sum_outputs {
    const float *coef[NORMS];
    float *sums[NORMS];
};

template <int NORMS>
__global__ void merge_grad_chunks(const grad_sums<NORMS> *partial, int64_t chunks, int64_t channels,
                                  sum_outputs<NORMS> out)
{
    const int64_t channel = (int64_t)blockIdx.x * MERGED + threadIdx.x % MERGED;
    const grad_sums<NORMS> all = merge_channel_chunks(partial, chunks, channels, channel);
    if (threadIdx.x >= MERGED || channel >= channels)
        return;
    for (int i = 0; i < NORMS; i++) {
        out.sums[i][channel] = (float)all.g;
        out.sums[i][channels + channel] =
            (float)(all.gx[i] * (double)out.coef[i][channels + channel]);
    }
}

template <class T, class In>
lt_status run_grad_sums(lt_cuda *c, const In &in, int64_t rows, bool vectors,
                        const tensor4<T> &masked, const sum_outputs<In::NORMS> &out)
{
    typedef grad_sums<In::NORMS> sums;
    const lt_row_cut cut = lt_partition_rows(rows, in.channels, vectors ? LT_VECTOR_WIDTH : 1);
    const dim3 grid((unsigned)cut.tiles, (unsigned)cut.chunks);
    void *memory;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, (size_t)(cut.chunks * in.channels) * sizeof(sums),
                             &memory));
    sums *partial = (sums *)memory;
    WITH_WIDTH(vectors, chunk_grad_sums<In, T, WIDTH>
               <<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, masked, rows, cut, partial))
    merge_grad_chunks<In::NORMS><<<blocks_for_merge(in.channels), THREADS, 0, main_stream(c)>>>(
        partial, cut.chunks, in.channels, out);
    return LT_OK;
}

enum { GRAD_DEPTH = 4 }; /* rows of a thread */

/* The sums again, as gradients of the affine parameters; row: NULL if not wanted. */
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

affine_outputs make_affine_outputs(const float *sums, const lt_view row[2])
{
    affine_outputs affine = {sums, {NULL, NULL}};
    for (int i = 0; i < 2 && sums; i++)
        affine.row[i] = (float *)row[i].data;
    return affine;
}

/* For each norm. sums: NULL if the statistics were not this batch's, and so have no gradient. */
template <class T, int NORMS> struct grad_outputs {
    tensor4<T> dx[NORMS];
    const float *sums[NORMS];
    affine_outputs affine[NORMS];
};

/* Terms of dx in a thread's channels: lt_norm_dx(). */
template <int WIDTH> struct dx_terms {
    float mean[WIDTH], scale[WIDTH], slope[WIDTH];
    __device__ void load(const float *coef, const float *sums, float share, int64_t channel,
                         int64_t channels)
    {
        float rstd[WIDTH];
        load_channels(coef, channel, mean);
        load_channels(coef + 2 * channels, channel, scale);
        if (sums) {
            load_channels(coef + channels, channel, rstd);
            load_channels(sums + channels, channel, slope);
        }
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            slope[k] = sums ? slope[k] * share * rstd[k] : 0;
    }
    /* Replaces x by dx. g: without its mean. */
    __device__ void make(const float (&g)[WIDTH], float (&x)[WIDTH]) const
    {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            x[k] = lt_norm_dx(g[k], x[k], mean[k], scale[k], slope[k]);
    }
};

template <class In, class T, int WIDTH>
__global__ void __launch_bounds__(LT_ROW_THREADS, 2)
    grad_x_kernel(In in, grad_outputs<T, In::NORMS> to, float share, int lanes)
{
    constexpr int norms = In::NORMS, together = In::TOGETHER;
    const int64_t channels = in.channels, rows = in.x.rows.count;
    const int lines = LT_ROW_THREADS / lanes;
    const int64_t channel = ((int64_t)blockIdx.y * lanes + threadIdx.x % lanes) * WIDTH;
    const int64_t first = (int64_t)blockIdx.x * lines * GRAD_DEPTH + threadIdx.x / lanes;
    dx_terms<WIDTH> term[norms];
    float mean_g[WIDTH] = {}, shift[WIDTH] = {};
    if (channel >= channels)
        return;
#pragma unroll
    for (int i = 0; i < norms; i++) {
        if (blockIdx.x == 0 && (int)threadIdx.x < lanes)
            to.affine[i].template put<WIDTH>(channel, channels);
        term[i].load(in.coef_of(i), to.sums[i], share, channel, channels);
    }
    if (In::AFFINE)
        load_channels(in.coef_of(0) + 3 * channels, channel, shift);
    if (to.sums[0])
        load_channels(to.sums[0], channel, mean_g);
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        mean_g[k] *= share;
#pragma unroll
    for (int begin = 0; begin < GRAD_DEPTH; begin += together) {
        typename In::template pieces<WIDTH> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            in.fetch(min(first + (int64_t)(begin + d) * lines, rows - 1), channel, &next[d]);
#pragma unroll
        for (int d = 0; d < together; d++) {
            const int64_t row = first + (int64_t)(begin + d) * lines;
            float g[WIDTH], x[norms][WIDTH];
            if (row >= rows)
                return;
            in.read(next[d], term[0].scale, shift, g, x);
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                g[k] -= mean_g[k];
#pragma unroll
            for (int i = 0; i < norms; i++) {
                term[i].make(g, x[i]);
                to.dx[i].store(row, channel, x[i]);
            }
        }
    }
}

template <int WIDTH, class T, class In>
void launch_grad_x(lt_cuda *c, const In &in, const grad_outputs<T, In::NORMS> &to, float share)
{
    const int lanes = lt_row_lanes(in.channels, WIDTH);
    const int64_t lines = (int64_t)(LT_ROW_THREADS / lanes) * GRAD_DEPTH;
    const dim3 grid(blocks_for(in.x.rows.count, lines),
                    blocks_for(in.channels, (int64_t)lanes * WIDTH));
    grad_x_kernel<In, T, WIDTH><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(in, to, share, lanes);
}

/* count: as batchnorm_grad_x has it. */
template <class T, class In>
void run_grad_x(lt_cuda *c, const In &in, bool vectors, double count, grad_outputs<T, In::NORMS> to)
{
    for (int i = 0; i < In::NORMS; i++)
        to.sums[i] = count > 0 ? to.affine[i].sums : NULL;
    const float share = count > 0 && to.sums[0] ? (float)(1 / count) : 0;
    WITH_WIDTH(vectors, launch_grad_x<WIDTH>(c, in, to, share))
}

lt_status check_grad_dtypes(const lt_cuda *c, const lt_batchnorm_grad *in, const lt_view *out,
                            const lt_view *sums)
{
    LT_TRY(check_dtype(c, in->x->dtype, {&in->dy[0], &in->dy[1], out}));
    return check_dtype(c, LT_F32, {in->coef, sums});
}

lt_status batchnorm_grad_stats(void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
                               const lt_view *sums)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "batchnorm_grad_stats"));
    LT_TRY(check_grad_dtypes(c, in, g, sums));
    const sum_outputs<1> out = {{(const float *)in->coef->data}, {(float *)sums->data}};
    const bool vectors = gradient_can_use_vectors(in) && can_use_vectors(g);
    WITH_TYPE(c, in->x->dtype,
              LT_TRY(run_grad_sums(c, make_norm_gradient<T>(in), make_rows(in->x).count, vectors,
                                   make_tensor4<T>(g), out)))
    return lt_cuda_end(c);
}

lt_status batchnorm_grad_x(void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
                           double count, const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const float *s = float_data(sums);
    LT_TRY(lt_cuda_begin(c, "batchnorm_grad_x"));
    LT_TRY(check_grad_dtypes(c, in, dx, sums));
    const bool vectors = gradient_can_use_vectors(in) && can_use_vectors(dx) && is_aligned(s);
    WITH_TYPE(c, in->x->dtype, grad_outputs<T, 1> to; to.dx[0] = make_tensor4<T>(dx);
              to.affine[0] = make_affine_outputs(s, in->affine);
              run_grad_x(c, make_norm_gradient<T>(in), vectors, count, to))
    return lt_cuda_end(c);
}

/* --- Sums and gradient at once, for the batch norms whose backward another operation runs --- */

lt_status check_fused_norm(const lt_cuda *c, const lt_batchnorm_fused_grad *norm, lt_dtype dtype)
{
    LT_TRY(check_dtype(c, dtype, {norm->x, norm->dx}));
    return check_dtype(c, LT_F32, {norm->coef, norm->sums});
}

bool fused_norm_can_use_vectors(const lt_batchnorm_fused_grad *norm)
{
    return can_use_vectors(norm->x) && can_use_vectors(norm->dx) && is_aligned(norm->coef->data)
           && is_aligned(norm->sums->data);
}

/* summed: the source of the sums; rows: its rows. */
template <class T, class Summed, class In>
lt_status run_fused_grad(lt_cuda *c, const Summed &summed, int64_t rows, const In &in, bool vectors,
                         const lt_batchnorm_fused_grad *norm)
{
    sum_outputs<In::NORMS> out;
    grad_outputs<T, In::NORMS> to;
    for (int i = 0; i < In::NORMS; i++) {
        out.coef[i] = (const float *)norm[i].coef->data;
        out.sums[i] = (float *)norm[i].sums->data;
        to.dx[i] = make_tensor4<T>(norm[i].dx);
        to.affine[i] = make_affine_outputs(out.sums[i], norm[i].affine);
    }
    LT_TRY(run_grad_sums(c, summed, rows, vectors, tensor4<T>(), out));
    run_grad_x(c, in, vectors, norm->count, to);
    return LT_OK;
}

lt_status maxpool2d_norm_grad(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                              const lt_view *index, const lt_batchnorm_fused_grad *norm)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_dtype dtype = norm->x->dtype;
    const float *coef = (const float *)norm->coef->data;
    const pool_shape s = make_pool_shape(config, norm->x, &dy[0]);
    const bool vectors = pool_grad_can_use_vectors(dy, index) && fused_norm_can_use_vectors(norm);
    LT_TRY(lt_cuda_begin(c, "maxpool2d_norm_grad"));
    LT_TRY(check_fused_norm(c, norm, dtype));
    LT_TRY(check_dtype(c, dtype, {&dy[0], &dy[1]}));
    WITH_TYPE(c, dtype,
              const pool_gradient<T> in = {make_outputs_gradient<T>(s, dy, index),
                                           make_tensor4<const T>(norm->x), coef, s.channels};
              const pool_window_gradient<T> windows = {in, s.channels};
              LT_TRY(run_fused_grad<T>(c, windows, in.dy.dy.rows.count, in, vectors, norm)))
    return lt_cuda_end(c);
}

lt_status batchnorm_add_grad(void *ctx, const lt_batchnorm_grad *in,
                             const lt_batchnorm_fused_grad norm[2])
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_dtype dtype = in->x->dtype;
    const bool vectors = gradient_can_use_vectors(in) && fused_norm_can_use_vectors(&norm[0])
                         && fused_norm_can_use_vectors(&norm[1]);
    LT_TRY(lt_cuda_begin(c, "batchnorm_add_grad"));
    LT_TRY(check_dtype(c, dtype, {&in->dy[0], &in->dy[1]}));
    for (int i = 0; i < 2; i++)
        LT_TRY(check_fused_norm(c, &norm[i], dtype));
    WITH_TYPE(c, dtype, const both_gradient<T> both = make_both_gradient<T>(in, &norm[1]);
              LT_TRY(run_fused_grad<T>(c, both, both.x.rows.count, both, vectors, norm)))
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
