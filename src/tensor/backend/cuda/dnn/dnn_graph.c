/* Operation graphs of cuDNN 9. Source: the cuDNN 9 backend API reference, "Operation descriptors". */

#include "dnn_graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WORDS = 512, ALIGNMENT = 16 };

lt_status lt_dnn_check(cudnnStatus_t status, const char *what)
{
    char words[WORDS] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return LT_OK;
    cudnnGetLastErrorString(words, sizeof words);
    const lt_status st =
        CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED      ? LT_E_UNSUPPORTED
        : status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? LT_E_NOMEM
                                                                         : LT_E_DEVICE;
    return lt_fail(st, "cudnn: %s: %s (%d)%s%s", what, cudnnGetErrorString(status), (int)status,
                   *words ? ": " : "", words);
}

static void record_status(lt_dnn_graph *g, cudnnStatus_t status, const char *what)
{
    if (!g->status)
        g->status = lt_dnn_check(status, what);
}

static void append_text(lt_dnn_graph *g, const char *format, ...) LT_PRINTF(2, 3);
static void append_text(lt_dnn_graph *g, const char *format, ...)
{
    va_list args;
    if (g->status)
        return;
    va_start(args, format);
    int length = vsnprintf(g->text + g->length, sizeof g->text - g->length, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof g->text - g->length)
        g->status = lt_fail(LT_E_UNSUPPORTED, "cudnn: a graph of more than %d characters",
                            (int)sizeof g->text);
    else
        g->length += (size_t)length;
}

static void create_descriptor(lt_dnn_graph *g, cudnnBackendDescriptorType_t type,
                              cudnnBackendDescriptor_t *d, const char *what)
{
    if (!g->status)
        record_status(g, cudnnBackendCreateDescriptor(type, d), what);
}

static void set_attribute(lt_dnn_graph *g, cudnnBackendDescriptor_t d,
                          cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t count, const void *values)
{
    char what[WORDS / 8];
    snprintf(what, sizeof what, "attribute %d", (int)name);
    if (!g->status)
        record_status(g, cudnnBackendSetAttribute(d, name, type, count, values), what);
}

static void finalize_descriptor(lt_dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (!g->status)
        record_status(g, cudnnBackendFinalize(d), what);
}

static const cudnnDataType_t data_types[] = {
    [LT_F32] = CUDNN_DATA_FLOAT,     [LT_F64] = CUDNN_DATA_DOUBLE, [LT_F16] = CUDNN_DATA_HALF,
    [LT_BF16] = CUDNN_DATA_BFLOAT16, [LT_I32] = CUDNN_DATA_INT32,  [LT_I64] = CUDNN_DATA_INT64,
    [LT_U8] = CUDNN_DATA_UINT8};

/* Properties of a new tensor, except its shape. */
typedef struct element_kind {
    cudnnDataType_t type;
    const char *name;
    bool is_virtual, by_value;
} element_kind;

static element_kind make_element_kind(lt_dtype dtype)
{
    return (element_kind){.type = data_types[dtype], .name = lt_dtype_name(dtype)};
}

static void append_extents(lt_dnn_graph *g, char begin, const int64_t n[4], char end)
{
    append_text(g, "%c%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "%c", begin, n[0], n[1], n[2],
                n[3], end);
}

static int add_tensor(lt_dnn_graph *g, const element_kind *k, const int64_t dim[4],
                      const int64_t stride[4])
{
    const int64_t uid = g->tensors + 1, alignment = ALIGNMENT;
    if (!g->status && g->tensors == LT_DNN_TENSORS)
        g->status =
            lt_fail(LT_E_UNSUPPORTED, "cudnn: a graph of more than %d tensors", LT_DNN_TENSORS);
    if (g->status)
        return 0;
    cudnnBackendDescriptor_t *d = &g->tensor[g->tensors];
    create_descriptor(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, d, "tensor");
    set_attribute(g, *d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set_attribute(g, *d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &k->type);
    set_attribute(g, *d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set_attribute(g, *d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set_attribute(g, *d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    if (k->is_virtual)
        set_attribute(g, *d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &k->is_virtual);
    if (k->by_value)
        set_attribute(g, *d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &k->by_value);
    finalize_descriptor(g, *d, "tensor");
    append_text(g, "%s%s", k->is_virtual ? "~" : "", k->name);
    append_extents(g, '[', dim, ']');
    return g->tensors++;
}

/* Channels-last. */
static int add_image(lt_dnn_graph *g, const element_kind *k, const int64_t dim[4])
{
    const int64_t stride[] = {dim[1] * dim[2] * dim[3], 1, dim[3] * dim[1], dim[1]};
    const int number = add_tensor(g, k, dim, stride);
    append_text(g, "%s ", k->by_value ? "=" : "");
    return number;
}

int lt_dnn_tensor(lt_dnn_graph *g, lt_dtype dtype, const int64_t dim[4], lt_dnn_place place)
{
    element_kind k = make_element_kind(dtype);
    k.is_virtual = place == LT_DNN_VIRTUAL;
    return add_image(g, &k, dim);
}

int lt_dnn_strided_tensor(lt_dnn_graph *g, lt_dtype dtype, const int64_t dim[4],
                          const int64_t stride[4], lt_dnn_place place)
{
    element_kind k = make_element_kind(dtype);
    k.is_virtual = place == LT_DNN_VIRTUAL;
    const int number = add_tensor(g, &k, dim, stride);
    append_extents(g, '(', stride, ')');
    return number;
}

int lt_dnn_bool_tensor(lt_dnn_graph *g, const int64_t dim[4])
{
    const element_kind k = {.type = CUDNN_DATA_BOOLEAN, .name = "flags", .is_virtual = true};
    const int64_t stride[] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    return add_tensor(g, &k, dim, stride);
}

int lt_dnn_vector(lt_dnn_graph *g, lt_dtype dtype, int64_t channels)
{
    const int64_t dim[] = {1, channels, 1, 1};
    return lt_dnn_tensor(g, dtype, dim, LT_DNN_MEMORY);
}

int lt_dnn_scalar(lt_dnn_graph *g, lt_dtype dtype)
{
    const int64_t dim[] = {1, 1, 1, 1};
    element_kind k = make_element_kind(dtype);
    k.by_value = true;
    return add_image(g, &k, dim);
}

/* Adds an operation and the descriptor of its mode, neither finalized. */
static bool add_op(lt_dnn_graph *g, cudnnBackendDescriptorType_t mode,
                   cudnnBackendDescriptorType_t op, const char *what)
{
    if (!g->status && g->ops == LT_DNN_OPS)
        g->status =
            lt_fail(LT_E_UNSUPPORTED, "cudnn: a graph of more than %d operations", LT_DNN_OPS);
    if (g->status)
        return false;
    if (mode != op)
        create_descriptor(g, mode, &g->mode[g->ops], what);
    create_descriptor(g, op, &g->op[g->ops], what);
    g->ops++;
    return !g->status;
}

static void set_tensor(lt_dnn_graph *g, cudnnBackendAttributeName_t name, int tensor)
{
    if (!g->status)
        set_attribute(g, g->op[g->ops - 1], name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                      &g->tensor[tensor]);
}

static void set_math(lt_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name)
{
    static const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    set_attribute(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &math);
}

static void set_geometry(lt_dnn_graph *g, const lt_conv2d_config *c)
{
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1];
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2, pad[] = {c->pad_h, c->pad_w}, stride[] = {c->stride_h, c->stride_w};
    const int64_t dilation[] = {c->dilation_h, c->dilation_w};
    set_math(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    set_attribute(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_attribute(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    set_attribute(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, two, pad);
    set_attribute(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, two, pad);
    set_attribute(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, two, stride);
    set_attribute(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, two, dilation);
    finalize_descriptor(g, d, "convolution");
}

/* Attribute names of one kind of convolution. */
typedef struct conv_names {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
    const char *what;
} conv_names;

static const conv_names conv_kinds[] = {
    [LT_DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, "conv2d"},
    [LT_DNN_GRAD_X] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, "conv2d_grad_x"},
    [LT_DNN_GRAD_W] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, "conv2d_grad_w"},
};

void lt_dnn_conv(lt_dnn_graph *g, lt_dnn_conv_kind kind, const lt_conv2d_config *config, int x,
                 int w, int y)
{
    const conv_names *n = &conv_kinds[kind];
    const float one = 1, zero = 0;
    if (!add_op(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, n->op, n->what))
        return;
    set_geometry(g, config);
    const cudnnBackendDescriptor_t op = g->op[g->ops - 1];
    set_attribute(g, op, n->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->mode[g->ops - 1]);
    set_tensor(g, n->x, x);
    set_tensor(g, n->w, w);
    set_tensor(g, n->y, y);
    set_attribute(g, op, n->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set_attribute(g, op, n->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finalize_descriptor(g, op, n->what);
    append_text(g, "%s(%d,%d,%d;%d,%d,%d,%d,%d,%d) ", n->what, x, w, y, config->stride_h,
                config->stride_w, config->pad_h, config->pad_w, config->dilation_h,
                config->dilation_w);
}

/* math: compute type. dimension: of an index, else -1. */
static bool add_pointwise_with_math(lt_dnn_graph *g, cudnnPointwiseMode_t mode,
                                    cudnnDataType_t math, int64_t dimension)
{
    if (!add_op(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                "pointwise"))
        return false;
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1];
    set_attribute(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_attribute(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (dimension >= 0)
        set_attribute(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &dimension);
    finalize_descriptor(g, d, "pointwise");
    set_attribute(g, g->op[g->ops - 1], CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d);
    return !g->status;
}

static bool add_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode)
{
    return add_pointwise_with_math(g, mode, CUDNN_DATA_FLOAT, -1);
}

/* Sets the operands of the current operation and finalizes it. */
static void end_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    set_tensor(g, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b >= 0)
        set_tensor(g, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_tensor(g, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finalize_descriptor(g, g->op[g->ops - 1], "pointwise");
    append_text(g, "point%d(%d,%d,%d) ", (int)mode, x, b, y);
}

void lt_dnn_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    if (add_pointwise(g, mode))
        end_pointwise(g, mode, x, b, y);
}

void lt_dnn_integer_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    const bool compares = mode != CUDNN_POINTWISE_ADD && mode != CUDNN_POINTWISE_SUB;
    if (add_pointwise_with_math(g, mode, compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_INT32, -1))
        end_pointwise(g, mode, x, b, y);
}

void lt_dnn_index(lt_dnn_graph *g, int dimension, int x, int y)
{
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
    if (!add_pointwise_with_math(g, mode, CUDNN_DATA_FLOAT, dimension))
        return;
    end_pointwise(g, mode, x, -1, y);
    append_text(g, "along %d ", dimension);
}

void lt_dnn_select(lt_dnn_graph *g, int flags, int x, int b, int y)
{
    if (!add_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT))
        return;
    set_tensor(g, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, flags);
    end_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, x, b, y);
    append_text(g, "by %d ", flags);
}

void lt_dnn_relu_grad(lt_dnn_graph *g, int dy, int x, int dx)
{
    if (!add_pointwise(g, CUDNN_POINTWISE_RELU_BWD))
        return;
    set_tensor(g, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    set_tensor(g, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    finalize_descriptor(g, g->op[g->ops - 1], "relu_grad");
    append_text(g, "relu_grad(%d,%d,%d) ", dy, x, dx);
}

void lt_dnn_statistics(lt_dnn_graph *g, int x, int sum, int squares)
{
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnBackendDescriptorType_t type = CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
    if (!add_op(g, type, type, "statistics"))
        return;
    const cudnnBackendDescriptor_t op = g->op[g->ops - 1];
    set_attribute(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set_math(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC);
    set_tensor(g, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    set_tensor(g, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    set_tensor(g, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    finalize_descriptor(g, op, "statistics");
    append_text(g, "statistics(%d,%d,%d) ", x, sum, squares);
}

void lt_dnn_reduce(lt_dnn_graph *g, cudnnReduceTensorOp_t mode, int x, int y)
{
    if (!add_op(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                "reduction"))
        return;
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1], op = g->op[g->ops - 1];
    set_attribute(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                  &mode);
    set_math(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE);
    finalize_descriptor(g, d, "reduction");
    set_attribute(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d);
    set_tensor(g, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finalize_descriptor(g, op, "reduction");
    append_text(g, "reduce%d(%d,%d) ", (int)mode, x, y);
}

void lt_dnn_matmul(lt_dnn_graph *g, int a, int b, int y)
{
    if (!add_op(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                "matmul"))
        return;
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1], op = g->op[g->ops - 1];
    set_math(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE);
    finalize_descriptor(g, d, "matmul");
    set_attribute(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d);
    set_tensor(g, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    finalize_descriptor(g, op, "matmul");
    append_text(g, "matmul(%d,%d,%d) ", a, b, y);
}

void lt_dnn_reshape(lt_dnn_graph *g, int x, int y)
{
    const cudnnBackendDescriptorType_t type = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
    if (!add_op(g, type, type, "reshape"))
        return;
    set_tensor(g, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finalize_descriptor(g, g->op[g->ops - 1], "reshape");
    append_text(g, "reshape(%d,%d) ", x, y);
}

void lt_dnn_norm_weight_grads(lt_dnn_graph *g, const lt_dnn_norm_grad *n)
{
    const cudnnBackendDescriptorType_t type = CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR;
    if (!add_op(g, type, type, "norm_weights"))
        return;
    set_math(g, g->op[g->ops - 1], CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, n->mean);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, n->deviation);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, n->gain);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, n->x);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, n->dy);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, n->dgain);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, n->dbias);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, n->a);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, n->b);
    set_tensor(g, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, n->c);
    finalize_descriptor(g, g->op[g->ops - 1], "norm_weights");
    append_text(g, "norm_weights(%d,%d,%d,%d,%d;%d,%d,%d,%d,%d) ", n->mean, n->deviation, n->gain,
                n->x, n->dy, n->dgain, n->dbias, n->a, n->b, n->c);
}

lt_status lt_dnn_finalize_graph(lt_dnn_graph *g)
{
    create_descriptor(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph, "graph");
    set_attribute(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->ops,
                  g->op);
    finalize_descriptor(g, g->graph, "graph");
    return g->status;
}

void lt_dnn_destroy(cudnnBackendDescriptor_t *d)
{
    if (*d)
        cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

void lt_dnn_reset_graph(lt_dnn_graph *g)
{
    lt_dnn_destroy(&g->graph);
    for (int i = 0; i < LT_DNN_OPS; i++) {
        lt_dnn_destroy(&g->op[i]);
        lt_dnn_destroy(&g->mode[i]);
    }
    for (int i = 0; i < LT_DNN_TENSORS; i++)
        lt_dnn_destroy(&g->tensor[i]);
}
