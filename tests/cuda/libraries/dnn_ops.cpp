/* Computes the operations of a graph in f32, with sums over pixels in double. Source: the cuDNN 9 backend API
 * reference, "Operation descriptors". */

#include "dnn.h"
#include "standin.h"
#include "tensor/backend/dtype.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace dnn
{
namespace
{

enum { N, C, H, W };

/* For each pixel of a: its n, h, w. */
void each_pixel(const array &a, const std::function<void(int64_t, int64_t, int64_t)> &f)
{
    for (int64_t n = 0; n < a.dim[N]; n++)
        for (int64_t h = 0; h < a.dim[H]; h++)
            for (int64_t w = 0; w < a.dim[W]; w++)
                f(n, h, w);
}

/* The row of a that belongs to that pixel of something larger: extents of 1 repeat. */
const float *repeated(const array &a, int64_t n, int64_t h, int64_t w)
{
    return a.row(a.dim[N] > 1 ? n : 0, a.dim[H] > 1 ? h : 0, a.dim[W] > 1 ? w : 0);
}

float point(cudnnPointwiseMode_t mode, float x, float b)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_MAX:
        return std::max(x, b);
    case CUDNN_POINTWISE_MIN:
        return std::min(x, b);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_SQRT:
        return std::sqrt(x);
    case CUDNN_POINTWISE_RSQRT:
        return 1 / std::sqrt(x);
    case CUDNN_POINTWISE_RELU_FWD:
        return x > 0 || (x != x && standin_lies(STANDIN_RELU_KEEPS_NAN)) ? x : 0;
    case CUDNN_POINTWISE_RELU_BWD: /* b is the gradient */
        return x > 0 ? b : 0;
    case CUDNN_POINTWISE_EXP:
        return std::exp(x);
    case CUDNN_POINTWISE_LOG:
        return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    default:
        standin_die("cudnn: pointwise mode %d", (int)mode);
    }
}

void indices(int64_t dimension, array &y)
{
    if (dimension < N || dimension > W)
        standin_die("cudnn: indices along dimension %d", (int)dimension);
    each_pixel(y, [&](int64_t n, int64_t h, int64_t w) {
        float *row = y.row(n, h, w);
        for (int64_t c = 0; c < y.dim[C]; c++) {
            const int64_t at[] = {n, c, h, w};
            row[c] = (float)at[dimension];
        }
    });
}

/* x where the flag holds, else b. */
void select(const operation &o, std::vector<array> &arrays)
{
    const array &flags = arrays[o.role.at(CUDNN_ATTR_OPERATION_POINTWISE_TDESC)];
    const array &x = arrays[o.role.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)];
    const array &b = arrays[o.role.at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)];
    array &y = arrays[o.out[0]];
    each_pixel(y, [&](int64_t n, int64_t h, int64_t w) {
        const float *f = flags.row(n, h, w), *xr = x.row(n, h, w), *br = repeated(b, n, h, w);
        float *yr = y.row(n, h, w);
        for (int64_t c = 0; c < y.dim[C]; c++)
            yr[c] = f[c] != 0 ? xr[c] : br[b.dim[C] > 1 ? c : 0];
    });
}

/* y[n,c,h,w] = sum over k of a[n,c,h,k] b[n,c,k,w]; the heads c of the one that has fewer repeat. */
void multiply(const operation &o, std::vector<array> &arrays, bool backwards)
{
    const array &a = arrays[o.role.at(CUDNN_ATTR_OPERATION_MATMUL_ADESC)];
    const array &b = arrays[o.role.at(CUDNN_ATTR_OPERATION_MATMUL_BDESC)];
    array &y = arrays[o.role.at(CUDNN_ATTR_OPERATION_MATMUL_CDESC)];
    const int64_t inner = a.dim[W];
    each_pixel(y, [&](int64_t n, int64_t h, int64_t w) {
        float *row = y.row(n, h, w);
        for (int64_t c = 0; c < y.dim[C]; c++) {
            const int64_t ca = c / (y.dim[C] / a.dim[C]), cb = c / (y.dim[C] / b.dim[C]);
            float sum = 0;
            for (int64_t i = 0; i < inner; i++) {
                const int64_t k = backwards ? inner - 1 - i : i;
                sum += a.row(n, h, k)[ca] * b.row(n, k, w)[cb];
            }
            row[c] = sum;
        }
    });
}

/* Calls f(number in the array, place in memory) for each element. */
void each_place(const tensor &t, const std::function<void(int64_t, int64_t)> &f)
{
    int64_t i = 0;
    for (int64_t n = 0; n < t.dim[N]; n++)
        for (int64_t h = 0; h < t.dim[H]; h++)
            for (int64_t w = 0; w < t.dim[W]; w++)
                for (int64_t c = 0; c < t.dim[C]; c++)
                    f(i++, n * t.stride[N] + c * t.stride[C] + h * t.stride[H] + w * t.stride[W]);
}

/* The same places in memory under other extents. */
void reshape(const operation &o, std::vector<array> &arrays)
{
    const tensor from = tensor_of(*refers(*o.what, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    const tensor to = tensor_of(*refers(*o.what, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    const array &x = arrays[o.in[0]];
    array &y = arrays[o.out[0]];
    std::map<int64_t, float> memory;
    each_place(from, [&](int64_t i, int64_t place) { memory[place] = x.x[i]; });
    each_place(to, [&](int64_t i, int64_t place) {
        if (!memory.count(place))
            standin_die("cudnn: a reshape to strides that are not those of the elements");
        y.x[i] = memory[place];
    });
}

void pointwise(const operation &o, std::vector<array> &arrays)
{
    const body &op = *o.what;
    const body &what = *refers(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode =
        get(what, CUDNN_ATTR_POINTWISE_MODE, cudnnPointwiseMode_t{CUDNN_POINTWISE_TAN});
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        return indices(get(what, CUDNN_ATTR_POINTWISE_AXIS, int64_t{-1}), arrays[o.out[0]]);
    if (mode == CUDNN_POINTWISE_BINARY_SELECT)
        return select(o, arrays);
    const int second = mode == CUDNN_POINTWISE_RELU_BWD ? (int)CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                                                        : (int)CUDNN_ATTR_OPERATION_POINTWISE_BDESC;
    const float alpha1 = get(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0F);
    const float alpha2 = get(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0F);
    const array &x = arrays[o.role.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)];
    const array &b = o.role.count(second) ? arrays[o.role.at(second)] : x;
    array &y = arrays[o.out[0]];
    const int64_t x_step = x.dim[C] > 1, b_step = b.dim[C] > 1;
    each_pixel(y, [&](int64_t n, int64_t h, int64_t w) {
        const float *xr = repeated(x, n, h, w), *br = repeated(b, n, h, w);
        float *yr = y.row(n, h, w);
        for (int64_t c = 0; c < y.dim[C]; c++)
            yr[c] = point(mode, alpha1 * xr[c * x_step], alpha2 * br[c * b_step]);
    });
}

void statistics(const operation &o, std::vector<array> &arrays)
{
    const array &x = arrays[o.role.at(CUDNN_ATTR_OPERATION_GENSTATS_XDESC)];
    array &sum = arrays[o.role.at(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC)];
    array &squares = arrays[o.role.at(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC)];
    std::vector<double> s(x.dim[C], 0), q(x.dim[C], 0);
    each_pixel(x, [&](int64_t n, int64_t h, int64_t w) {
        const float *row = x.row(n, h, w);
        for (int64_t c = 0; c < x.dim[C]; c++) {
            s[c] += row[c];
            q[c] += (double)row[c] * row[c];
        }
    });
    std::copy(s.begin(), s.end(), sum.x.begin());
    std::copy(q.begin(), q.end(), squares.x.begin());
}

void reduce(const operation &o, std::vector<array> &arrays)
{
    const body &what = *refers(*o.what, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const array &x = arrays[o.in[0]];
    array &y = arrays[o.out[0]];
    const auto mode = get(what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_MUL);
    const bool largest = mode == CUDNN_REDUCE_TENSOR_MAX;
    std::vector<double> sum(y.x.size(), largest ? -(double)INFINITY : 0);
    if (!largest && mode != CUDNN_REDUCE_TENSOR_ADD)
        standin_die("cudnn: a reduction that is no sum and no maximum");
    const int64_t runs[] = {x.dim[N] / y.dim[N], x.dim[C] / y.dim[C], x.dim[H] / y.dim[H],
                            x.dim[W] / y.dim[W]}; /* that become one element */
    each_pixel(x, [&](int64_t n, int64_t h, int64_t w) {
        const float *row = x.row(n, h, w);
        const int64_t at = y.row(n / runs[N], h / runs[H], w / runs[W]) - y.x.data();
        for (int64_t c = 0; c < x.dim[C]; c++) {
            double &to = sum[at + c / runs[C]];
            to = largest ? std::max(to, (double)row[c]) : to + row[c];
        }
    });
    std::copy(sum.begin(), sum.end(), y.x.begin());
}

/* Gradients of batch norm's gain and bias, and dx = a dy + b x + c. Ioffe & Szegedy, "Batch
 * normalization", ICML 2015. */
void norm_gradient(const operation &o, std::vector<array> &arrays)
{
    const auto of = [&](int name) -> array & { return arrays[o.role.at(name)]; };
    const array &x = of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC);
    const array &dy = of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC);
    const float *mean = of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC).x.data();
    const float *inverse = of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC).x.data();
    const float *gain = of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC).x.data();
    std::vector<double> dgain(x.dim[C], 0), dbias(x.dim[C], 0);
    each_pixel(x, [&](int64_t n, int64_t h, int64_t w) {
        const float *xr = x.row(n, h, w), *gr = dy.row(n, h, w);
        for (int64_t c = 0; c < x.dim[C]; c++) {
            dgain[c] += (double)gr[c] * ((double)xr[c] - mean[c]) * inverse[c];
            dbias[c] += gr[c];
        }
    });
    const double count = (double)(x.dim[N] * x.dim[H] * x.dim[W]);
    for (int64_t c = 0; c < x.dim[C]; c++) {
        const double a = (double)gain[c] * inverse[c];
        const double b = -a * inverse[c] * dgain[c] / count;
        of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC).x[c] = (float)dgain[c];
        of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC).x[c] = (float)dbias[c];
        of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC).x[c] = (float)a;
        of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC).x[c] = (float)b;
        of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS).x[c] =
            (float)(-a * dbias[c] / count - b * mean[c]);
    }
}

/* Mean and variance from sums, running statistics, and y * scale + bias as one multiplication. */
void finalize_statistics(const operation &o, std::vector<array> &arrays)
{
    const auto has = [&](int name) { return o.role.count(name) != 0; };
    const auto of = [&](int name) { return arrays[o.role.at(name)].x.data(); };
    const auto give = [&](int name, int64_t c, double x) {
        if (has(name))
            of(name)[c] = (float)x;
    };
    const double count = of(CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC)[0];
    const double epsilon = of(CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC)[0];
    const int factor_name = CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC;
    const double factor = has(factor_name) ? of(factor_name)[0] : 0;
    const int64_t channels = arrays[o.role.at(CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC)].dim[C];
    for (int64_t c = 0; c < channels; c++) {
        const double mean = of(CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC)[c] / count;
        const double square = of(CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC)[c] / count;
        const double var = std::max(0.0, square - mean * mean),
                     inverse = 1 / std::sqrt(var + epsilon);
        const double scale = of(CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC)[c] * inverse;
        give(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC, c, mean);
        give(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC, c, inverse);
        give(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC, c, scale);
        give(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC, c,
             of(CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC)[c] - mean * scale);
        if (!has(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC))
            continue;
        const double old_mean = of(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC)[c];
        const double old_var = of(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC)[c];
        give(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC, c,
             (1 - factor) * old_mean + factor * mean);
        give(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC, c,
             (1 - factor) * old_var + factor * var * count / (count > 1 ? count - 1 : 1));
    }
}

/* Others read the factors as they are. */
void convolve_as(const operation &o, std::vector<array> &arrays, arithmetic how, bool backwards)
{
    if (how != TF32 && how != COARSE)
        return convolve(o, arrays, backwards);
    std::map<int, std::vector<float>> kept;
    for (int i : o.in)
        kept[i] = arrays[i].x;
    for (const auto &k : kept)
        for (float &x : arrays[k.first].x)
            x = how == TF32 ? standin_tf32(x) : rounded(x, CUDNN_DATA_BFLOAT16);
    convolve(o, arrays, backwards);
    for (auto &k : kept)
        arrays[k.first].x = std::move(k.second);
    if (how == COARSE)
        for (float &x : arrays[o.out[0]].x)
            x = rounded(x, CUDNN_DATA_BFLOAT16);
}

} /* namespace */

float rounded(float x, cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_HALF:
        return lt_f32_from_f16(lt_f16_from_f32(x));
    case CUDNN_DATA_BFLOAT16:
        return lt_f32_from_bf16(lt_bf16_from_f32(x));
    default:
        return x;
    }
}

void run(const operation &o, std::vector<array> &arrays, arithmetic how, bool backwards)
{
    if (is_convolution(o.what->type))
        return convolve_as(o, arrays, how, backwards);
    switch (o.what->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise(o, arrays);
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return statistics(o, arrays);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduce(o, arrays);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return multiply(o, arrays, backwards);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return reshape(o, arrays);
    case CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR:
        return norm_gradient(o, arrays);
    default:
        return finalize_statistics(o, arrays);
    }
}

} /* namespace dnn */
