/* Batch norm's output y = act(x * scale + shift + residual), and a mask with a bit for each y > 0. */

#include "norm.cuh"

namespace
{

enum { DEPTH = 4 }; /* rows of a thread */

template <class T> struct application {
    tensor4<const T> x, residual;
    tensor4<T> y;
    const float *coef, *residual_coef; /* residual_coef NULL: the residual is added as it is */
    uint8_t *mask;
    bool relu;
};

/* Coefficients of a vector of channels. */
struct row_affine {
    float scale[LT_VECTOR_WIDTH], shift[LT_VECTOR_WIDTH];
    __device__ void load(const float *coef, int64_t channel, int64_t channels)
    {
        load_channels(coef + 2 * channels, channel, scale);
        load_channels(coef + 3 * channels, channel, shift);
    }
};

__device__ float apply_one(float x, float scale, float shift, float residual, bool relu)
{
    const float y = lt_norm_affine(x, scale, shift) + residual;
    return relu ? lt_norm_relu(y) : y;
}

/* A thread's loads of a row. */
template <class T> struct pieces {
    vector<T, LT_VECTOR_WIDTH> x, residual;
};

template <class T>
__device__ void load_x_and_residual(const application<T> &a, int64_t row, int64_t channel,
                                    pieces<T> *p)
{
    p->x.fetch(a.x.template at<LT_VECTOR_WIDTH>(row, channel));
    if (a.residual.data)
        p->residual.fetch(a.residual.template at<LT_VECTOR_WIDTH>(row, channel));
}

/* Writes a vector and its byte of the mask. TWO: the residual has coefficients. */
template <class T, bool TWO>
__device__ void apply_vector(const application<T> &a, const pieces<T> &p, const row_affine &own,
                             const row_affine &residual, int64_t row, int64_t channel)
{
    float v[LT_VECTOR_WIDTH], more[LT_VECTOR_WIDTH] = {};
    unsigned bits = 0;
    p.x.read(v);
    if (a.residual.data)
        p.residual.read(more);
#pragma unroll
    for (int k = 0; k < LT_VECTOR_WIDTH; k++) {
        if (TWO)
            more[k] = lt_norm_affine(more[k], residual.scale[k], residual.shift[k]);
        v[k] = apply_one(v[k], own.scale[k], own.shift[k], more[k], a.relu);
        bits |= (unsigned)(v[k] > 0) << k;
    }
    a.y.store(row, channel, v);
    if (a.mask)
        a.mask[(row * a.x.rows.channels + channel) / 8] = (uint8_t)bits;
}

/* Vectors: a thread keeps its channels' coefficients for DEPTH rows. */
template <class T, bool TWO>
__global__ void __launch_bounds__(LT_ROW_THREADS) apply_vectors(application<T> a, int lanes)
{
    constexpr int together = rows_together<T>();
    const int64_t channels = a.x.rows.channels, rows = a.x.rows.count;
    const int lines = LT_ROW_THREADS / lanes;
    const int64_t channel = ((int64_t)blockIdx.y * lanes + threadIdx.x % lanes) * LT_VECTOR_WIDTH;
    const int64_t first = (int64_t)blockIdx.x * lines * DEPTH + threadIdx.x / lanes;
    row_affine own, residual;
    if (channel >= channels)
        return;
    own.load(a.coef, channel, channels);
    if (TWO)
        residual.load(a.residual_coef, channel, channels);
#pragma unroll
    for (int begin = 0; begin < DEPTH; begin += together) {
        pieces<T> next[together];
#pragma unroll
        for (int d = 0; d < together; d++)
            load_x_and_residual(a, min(first + (int64_t)(begin + d) * lines, rows - 1), channel,
                                &next[d]);
#pragma unroll
        for (int d = 0; d < together; d++) {
            const int64_t row = first + (int64_t)(begin + d) * lines;
            if (row >= rows)
                return;
            apply_vector<T, TWO>(a, next[d], own, residual, row, channel);
        }
    }
}

/* Any strides and number of channels: a thread writes one byte of the mask, eight adjacent elements. */
template <class T> __global__ void apply_strided(application<T> a)
{
    const int64_t channels = a.x.rows.channels, count = a.x.rows.count * channels;
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    unsigned bits = 0;
    if (first >= count)
        return;
    for (int64_t e = first; e < min(first + 8, count); e++) {
        const int64_t row = e / channels, c = e % channels;
        float v[1], more[1] = {0};
        a.x.load(row, c, v);
        if (a.residual.data)
            a.residual.load(row, c, more);
        if (a.residual_coef)
            more[0] = lt_norm_affine(more[0], a.residual_coef[2 * channels + c],
                                     a.residual_coef[3 * channels + c]);
        v[0] = apply_one(v[0], a.coef[2 * channels + c], a.coef[3 * channels + c], more[0], a.relu);
        a.y.store(row, c, v);
        bits |= (unsigned)(v[0] > 0) << e % 8;
    }
    if (a.mask)
        a.mask[first / 8] = (uint8_t)bits;
}

template <class T> void launch_apply(lt_cuda *c, const application<T> &a, bool vectors)
{
    const int64_t channels = a.x.rows.channels, rows = a.x.rows.count;
    if (vectors) {
        const int lanes = lt_row_lanes(channels, LT_VECTOR_WIDTH);
        const int64_t lines = (int64_t)(LT_ROW_THREADS / lanes) * DEPTH;
        const dim3 grid(blocks_for(rows, lines),
                        blocks_for(channels, (int64_t)lanes * LT_VECTOR_WIDTH));
        if (a.residual_coef)
            apply_vectors<T, true><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(a, lanes);
        else
            apply_vectors<T, false><<<grid, LT_ROW_THREADS, 0, main_stream(c)>>>(a, lanes);
    } else {
        apply_strided<T>
            <<<blocks_for(rows * channels, THREADS * 8), THREADS, 0, main_stream(c)>>>(a);
    }
}

/* The second term has no coefficients if it is in memory. */
lt_status apply_norm_terms(lt_cuda *c, const char *name, const lt_batchnorm2d_config *config,
                           const lt_batchnorm_addend *term, const lt_view *y, const lt_view *mask)
{
    const lt_view *const x = term[0].x, *const residual = term[1].x;
    const float *coef = float_data(term[0].coef), *more = float_data(term[1].coef);
    LT_TRY(lt_cuda_begin(c, name));
    LT_TRY(check_dtype(c, LT_F32, {term[0].coef, term[1].coef}));
    LT_TRY(check_dtype(c, x->dtype, {residual, y}));
    WITH_TYPE(c, x->dtype, application<T> a; a.x = make_tensor4<const T>(x);
              a.residual = make_tensor4<const T>(residual); a.y = make_tensor4<T>(y); a.coef = coef;
              a.residual_coef = more; a.mask = mask ? (uint8_t *)mask->data : NULL;
              a.relu = config->relu;
              launch_apply<T>(c, a,
                              can_use_vectors(x) && can_use_vectors(residual) && can_use_vectors(y)
                                  && is_aligned(coef) && is_aligned(more)))
    return lt_cuda_end(c);
}

lt_status batchnorm_apply(void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
                          const lt_view *coef, const lt_view *residual, const lt_view *y,
                          const lt_view *mask)
{
    const lt_batchnorm_addend term[] = {{x, coef}, {residual, NULL}};
    return apply_norm_terms((lt_cuda *)ctx, "batchnorm_apply", config, term, y, mask);
}

lt_status batchnorm_add(void *ctx, const lt_batchnorm2d_config *config,
                        const lt_batchnorm_addend term[2], const lt_view *y, const lt_view *mask)
{
    return apply_norm_terms((lt_cuda *)ctx, "batchnorm_add", config, term, y, mask);
}

} /* namespace */

extern "C" void lt_cuda_install_norm_apply(lt_backend *be)
{
    be->batchnorm_apply = batchnorm_apply;
    be->batchnorm_add = batchnorm_add;
}
