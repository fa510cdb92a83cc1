/* Checks sizes, strides and types of tensors, convolutions and operations. */

#include "dnn.h"

#include <algorithm>

namespace dnn
{
namespace
{

enum { N, C, H, W, DIMS };

bool divides(int64_t of, int64_t by)
{
    return by > 0 && of % by == 0;
}

tensor named(const body &b, int name)
{
    return tensor_of(*refers(b, name));
}

bool has(const body &b, int name)
{
    return b.values.count(name) != 0;
}

bool same_dims(const tensor &a, const tensor &b)
{
    return std::equal(a.dim, a.dim + DIMS, b.dim);
}

/* [1,C,1,1] */
bool is_vector(const tensor &t, int64_t channels)
{
    return t.dim[N] == 1 && t.dim[C] == channels && t.dim[H] == 1 && t.dim[W] == 1;
}

bool is_float(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

cudnnStatus_t check_conv_op(const body &b)
{
    const conv_names &names = names_of(b.type);
    const tensor x = named(b, names.x), w = named(b, names.w), y = named(b, names.y);
    const body &c = *refers(b, names.conv);
    const auto pad = numbers(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const auto post = numbers(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    const auto stride = numbers(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const auto dilation = numbers(c, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    if (pad.size() != 2)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%zu spatial dimensions", pad.size());
    for (const tensor *t : {&x, &w, &y})
        if (!is_float(t->type) || t->by_value)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a convolution of type %d", (int)t->type);
    if (!divides(x.dim[C], w.dim[C]) || !divides(w.dim[N], x.dim[C] / w.dim[C]))
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                      "%d channels, filters for %d, %d of them", (int)x.dim[C], (int)w.dim[C],
                      (int)w.dim[N]);
    if (x.dim[N] != y.dim[N] || y.dim[C] != w.dim[N])
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "batches or filters do not fit");
    for (int i = 0; i < 2; i++) {
        const int64_t padded = x.dim[H + i] + pad[i] + post[i];
        const int64_t taps = (w.dim[H + i] - 1) * dilation[i] + 1;
        if (padded < taps || (padded - taps) / stride[i] + 1 != y.dim[H + i])
            return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                          "extent %d of the result is %d, wanted %d", H + i, (int)y.dim[H + i],
                          padded < taps ? 0 : (int)((padded - taps) / stride[i] + 1));
    }
    return CUDNN_STATUS_SUCCESS;
}

bool is_unary(cudnnPointwiseMode_t mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_RELU_FWD:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_RSQRT:
    case CUDNN_POINTWISE_SQRT:
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX:
        return true;
    default:
        return false;
    }
}

cudnnStatus_t check_pointwise_op(const body &b)
{
    const body &mode = *refers(b, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto what =
        get(mode, CUDNN_ATTR_POINTWISE_MODE, cudnnPointwiseMode_t{CUDNN_POINTWISE_ADD});
    const bool backward = what == CUDNN_POINTWISE_RELU_BWD;
    const bool unary = is_unary(what), selects = what == CUDNN_POINTWISE_BINARY_SELECT;
    const int other = backward ? (int)CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                               : (int)CUDNN_ATTR_OPERATION_POINTWISE_BDESC;
    const int out = backward ? (int)CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                             : (int)CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
    const int never = backward ? (int)CUDNN_ATTR_OPERATION_POINTWISE_YDESC
                               : (int)CUDNN_ATTR_OPERATION_POINTWISE_DXDESC;
    if (!has(b, out) || has(b, other) == unary || has(b, never)
        || has(b, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) != selects)
        return refuse(CUDNN_STATUS_BAD_PARAM, "operands of pointwise mode %d", (int)what);
    const tensor x = named(b, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), y = named(b, out);
    for (int i = 0; i < DIMS; i++) {
        const int64_t more = unary ? 1 : named(b, other).dim[i];
        const int64_t most = std::max(more, x.dim[i]);
        if ((more != most && more != 1) || (x.dim[i] != most && x.dim[i] != 1) || y.dim[i] != most)
            return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "extents %d of a pointwise", i);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* [batch, head, row, column]; heads of b repeat for a's. */
cudnnStatus_t check_matmul_op(const body &op)
{
    const tensor a = named(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    const tensor b = named(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    const tensor c = named(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    if (!divides(a.dim[C], b.dim[C]) && !divides(b.dim[C], a.dim[C]))
        return refuse(CUDNN_STATUS_BAD_PARAM, "%d heads and %d", (int)a.dim[C], (int)b.dim[C]);
    if (a.dim[W] != b.dim[H] || c.dim[H] != a.dim[H] || c.dim[W] != b.dim[W]
        || c.dim[C] != std::max(a.dim[C], b.dim[C]) || a.dim[N] != b.dim[N] || a.dim[N] != c.dim[N])
        return refuse(CUDNN_STATUS_BAD_PARAM, "extents of a matrix product");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_reshape_op(const body &b)
{
    const tensor x = named(b, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    const tensor y = named(b, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    int64_t before = 1, after = 1;
    for (int i = 0; i < DIMS; i++) {
        before *= x.dim[i];
        after *= y.dim[i];
    }
    return before == after ? CUDNN_STATUS_SUCCESS
                           : refuse(CUDNN_STATUS_BAD_PARAM, "%d elements reshaped to %d",
                                    (int)before, (int)after);
}

cudnnStatus_t check_reduction_op(const body &b)
{
    const tensor x = named(b, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const tensor y = named(b, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    for (int i = 0; i < DIMS; i++)
        if (!divides(x.dim[i], y.dim[i]))
            return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "extent %d of a sum", i);
    return CUDNN_STATUS_SUCCESS;
}

/* Every operand but those is a vector of the channels of the first. */
cudnnStatus_t check_vectors(const body &b, const std::vector<int> &whole, int64_t channels)
{
    for (const auto &v : b.values) {
        const rule *r = find_rule(b.type, v.first);
        if (!(r->flags & (READ | WRITTEN)) || std::count(whole.begin(), whole.end(), v.first))
            continue;
        if (!is_vector(named(b, v.first), channels))
            return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "attribute %d is no [1,%d,1,1]",
                          v.first, (int)channels);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_norm_op(const body &b)
{
    const int x = CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC;
    const int dy = CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC;
    if (!same_dims(named(b, x), named(b, dy)))
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "dy is not like x");
    return check_vectors(b, {x, dy}, named(b, x).dim[C]);
}

cudnnStatus_t check_finalize_op(const body &b)
{
    const int scalars[] = {CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC,
                           CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC,
                           CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC};
    for (int name : scalars)
        if (has(b, name) && !is_vector(named(b, name), 1))
            return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "attribute %d is no scalar", name);
    return check_vectors(b, {scalars[0], scalars[1], scalars[2]},
                         named(b, CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC).dim[C]);
}

} /* namespace */

tensor tensor_of(const body &b)
{
    tensor t = {};
    const auto dim = numbers(b, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto stride = numbers(b, CUDNN_ATTR_TENSOR_STRIDES);
    std::copy(dim.begin(), dim.end(), t.dim);
    std::copy(stride.begin(), stride.end(), t.stride);
    t.uid = get(b, CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{0});
    t.type = get(b, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
    t.alignment = get(b, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{0});
    t.is_virtual = get(b, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
    t.by_value = get(b, CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
    return t;
}

cudnnStatus_t check_tensor(const body &b)
{
    const auto dim = numbers(b, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto stride = numbers(b, CUDNN_ATTR_TENSOR_STRIDES);
    if (dim.size() != stride.size())
        return refuse(CUDNN_STATUS_BAD_PARAM, "%zu extents, %zu strides", dim.size(),
                      stride.size());
    if (dim.size() != DIMS)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "%zu dimensions; here there are 4", dim.size());
    for (int i = 0; i < DIMS; i++)
        if (dim[i] < 1 || (stride[i] < 1 && dim[i] > 1))
            return refuse(CUDNN_STATUS_BAD_PARAM, "dimension %d: extent %d, stride %d", i,
                          (int)dim[i], (int)stride[i]);
    const tensor t = tensor_of(b);
    if (!divides(t.alignment, data_bytes(t.type)))
        return refuse(CUDNN_STATUS_BAD_PARAM, "an alignment of %d bytes", (int)t.alignment);
    if (t.is_virtual && t.by_value)
        return refuse(CUDNN_STATUS_BAD_PARAM, "both virtual and by value");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_convolution(const body &b)
{
    const size_t dims = get(b, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{0});
    static const struct {
        int name;
        int64_t least;
    } lists[] = {{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
                 {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0},
                 {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
                 {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1}};
    for (const auto &l : lists) {
        const auto all = numbers(b, l.name);
        if (all.size() != dims)
            return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: %zu numbers for %zu dimensions",
                          l.name, all.size(), dims);
        for (int64_t x : all)
            if (x < l.least)
                return refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: %d", l.name, (int)x);
    }
    if (get(b, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_INT8) != CUDNN_DATA_FLOAT)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "sums in another type than f32");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_operation(const body &b)
{
    if (is_convolution(b.type))
        return check_conv_op(b);
    switch (b.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_pointwise_op(b);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return check_reduction_op(b);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return check_matmul_op(b);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return check_reshape_op(b);
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return check_vectors(b, {CUDNN_ATTR_OPERATION_GENSTATS_XDESC},
                             named(b, CUDNN_ATTR_OPERATION_GENSTATS_XDESC).dim[C]);
    case CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR:
        return check_norm_op(b);
    default:
        return check_finalize_op(b);
    }
}

} /* namespace dnn */
