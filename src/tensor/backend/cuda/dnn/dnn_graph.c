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

void lt_dnn_create(lt_status *st, cudnnBackendDescriptor_t *d, cudnnBackendDescriptorType_t type,
                   const char *what)
{
    if (!*st)
        *st = lt_dnn_check(cudnnBackendCreateDescriptor(type, d), what);
}

void lt_dnn_set(lt_status *st, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    char what[WORDS / 8];
    snprintf(what, sizeof what, "attribute %d", (int)name);
    if (!*st)
        *st = lt_dnn_check(cudnnBackendSetAttribute(d, name, type, count, values), what);
}

void lt_dnn_finalize(lt_status *st, cudnnBackendDescriptor_t d, const char *what)
{
    if (!*st)
        *st = lt_dnn_check(cudnnBackendFinalize(d), what);
}

/* Without a default case, so that the compiler reports a dtype that is missing here. */
static cudnnDataType_t data_type(lt_dnn_graph *g, lt_dtype dtype)
{
    switch (dtype) {
    case LT_F32:
        return CUDNN_DATA_FLOAT;
    case LT_F64:
        return CUDNN_DATA_DOUBLE;
    case LT_F16:
        return CUDNN_DATA_HALF;
    case LT_BF16:
        return CUDNN_DATA_BFLOAT16;
    case LT_I32:
        return CUDNN_DATA_INT32;
    case LT_I64:
        return CUDNN_DATA_INT64;
    case LT_U8:
        return CUDNN_DATA_UINT8;
    }
    if (!g->status)
        g->status = lt_fail(LT_E_UNSUPPORTED, "cudnn: no data type for dtype %d", (int)dtype);
    return CUDNN_DATA_FLOAT;
}

/* Properties of a new tensor, except its shape. */
typedef struct element_kind {
    cudnnDataType_t type;
    const char *name;
    bool is_virtual, by_value;
} element_kind;

static element_kind make_element_kind(lt_dnn_graph *g, lt_dtype dtype)
{
    element_kind k = {.type = data_type(g, dtype)};
    k.name = g->status ? "" : lt_dtype_name(dtype);
    return k;
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
    lt_status *st = &g->status;
    if (!g->status && g->tensors == LT_DNN_TENSORS)
        g->status =
            lt_fail(LT_E_UNSUPPORTED, "cudnn: a graph of more than %d tensors", LT_DNN_TENSORS);
    if (g->status)
        return 0;
    cudnnBackendDescriptor_t *d = &g->tensor[g->tensors];
    lt_dnn_create(st, d, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    lt_dnn_set(st, *d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    lt_dnn_set(st, *d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &k->type);
    lt_dnn_set(st, *d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    lt_dnn_set(st, *d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    lt_dnn_set(st, *d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    if (k->is_virtual)
        lt_dnn_set(st, *d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &k->is_virtual);
    if (k->by_value)
        lt_dnn_set(st, *d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &k->by_value);
    lt_dnn_finalize(st, *d, "tensor");
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
    element_kind k = make_element_kind(g, dtype);
    k.is_virtual = place == LT_DNN_VIRTUAL;
    return add_image(g, &k, dim);
}

int lt_dnn_strided_tensor(lt_dnn_graph *g, lt_dtype dtype, const int64_t dim[4],
                          const int64_t stride[4], lt_dnn_place place)
{
    element_kind k = make_element_kind(g, dtype);
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
    element_kind k = make_element_kind(g, dtype);
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
        lt_dnn_create(&g->status, &g->mode[g->ops], mode, what);
    lt_dnn_create(&g->status, &g->op[g->ops], op, what);
    g->ops++;
    return !g->status;
}

static void set_tensor(lt_dnn_graph *g, cudnnBackendAttributeName_t name, int tensor)
{
    if (!g->status)
        lt_dnn_set(&g->status, g->op[g->ops - 1], name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                   &g->tensor[tensor]);
}

static void set_math(lt_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name)
{
    static const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    lt_dnn_set(&g->status, d, name, CUDNN_TYPE_DATA_TYPE, 1, &math);
}

static void set_geometry(lt_dnn_graph *g, const lt_conv2d_config *c)
{
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1];
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2, pad[] = {c->pad_h, c->pad_w}, stride[] = {c->stride_h, c->stride_w};
    const int64_t dilation[] = {c->dilation_h, c->dilation_w};
    set_math(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    lt_dnn_set(&g->status, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
               &mode);
    lt_dnn_set(&g->status, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    lt_dnn_set(&g->status, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, two, pad);
    lt_dnn_set(&g->status, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, two, pad);
    lt_dnn_set(&g->status, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, two, stride);
    lt_dnn_set(&g->status, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, two, dilation);
    lt_dnn_finalize(&g->status, d, "convolution");
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
    lt_dnn_set(&g->status, op, n->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->mode[g->ops - 1]);
    set_tensor(g, n->x, x);
    set_tensor(g, n->w, w);
    set_tensor(g, n->y, y);
    lt_dnn_set(&g->status, op, n->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    lt_dnn_set(&g->status, op, n->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    lt_dnn_finalize(&g->status, op, n->what);
    append_text(g, "%s(%d,%d,%d;%d,%d,%d,%d,%d,%d) ", n->what, x, w, y, config->stride_h,
                config->stride_w, config->pad_h, config->pad_w, config->dilation_h,
                config->dilation_w);
}

/* Tensors of a pointwise operation, in the order of their attributes below; -1: absent. */
typedef int operands[6];

/* math: compute type. dimension: of an index, else -1. */
static void add_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math,
                          int64_t dimension, const operands tensor)
{
    static const cudnnBackendAttributeName_t name[] = {
        CUDNN_ATTR_OPERATION_POINTWISE_XDESC,  CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_YDESC,  CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC};
    if (!add_op(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                "pointwise"))
        return;
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1], op = g->op[g->ops - 1];
    lt_dnn_set(&g->status, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    lt_dnn_set(&g->status, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (dimension >= 0)
        lt_dnn_set(&g->status, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &dimension);
    lt_dnn_finalize(&g->status, d, "pointwise");
    lt_dnn_set(&g->status, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d);
    append_text(g, "point%d along %d(", (int)mode, (int)dimension);
    for (size_t i = 0; i < sizeof(operands) / sizeof *tensor; i++) {
        if (tensor[i] >= 0)
            set_tensor(g, name[i], tensor[i]);
        append_text(g, "%d,", tensor[i]);
    }
    lt_dnn_finalize(&g->status, op, "pointwise");
    append_text(g, ") ");
}

void lt_dnn_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    add_pointwise(g, mode, CUDNN_DATA_FLOAT, -1, (operands){x, b, y, -1, -1, -1});
}

void lt_dnn_integer_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    const bool compares = mode != CUDNN_POINTWISE_ADD && mode != CUDNN_POINTWISE_SUB;
    add_pointwise(g, mode, compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_INT32, -1,
                  (operands){x, b, y, -1, -1, -1});
}

void lt_dnn_index(lt_dnn_graph *g, int dimension, int x, int y)
{
    add_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, dimension,
                  (operands){x, -1, y, -1, -1, -1});
}

void lt_dnn_select(lt_dnn_graph *g, int flags, int x, int b, int y)
{
    add_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1,
                  (operands){x, b, y, flags, -1, -1});
}

void lt_dnn_relu_grad(lt_dnn_graph *g, int dy, int x, int dx)
{
    add_pointwise(g, CUDNN_POINTWISE_RELU_BWD, CUDNN_DATA_FLOAT, -1,
                  (operands){x, -1, -1, -1, dy, dx});
}

void lt_dnn_statistics(lt_dnn_graph *g, int x, int sum, int squares)
{
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnBackendDescriptorType_t type = CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
    if (!add_op(g, type, type, "statistics"))
        return;
    const cudnnBackendDescriptor_t op = g->op[g->ops - 1];
    lt_dnn_set(&g->status, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1,
               &mode);
    set_math(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC);
    set_tensor(g, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    set_tensor(g, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    set_tensor(g, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    lt_dnn_finalize(&g->status, op, "statistics");
    append_text(g, "statistics(%d,%d,%d) ", x, sum, squares);
}

void lt_dnn_reduce(lt_dnn_graph *g, cudnnReduceTensorOp_t mode, int x, int y)
{
    if (!add_op(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                "reduction"))
        return;
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1], op = g->op[g->ops - 1];
    lt_dnn_set(&g->status, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
               &mode);
    set_math(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE);
    lt_dnn_finalize(&g->status, d, "reduction");
    lt_dnn_set(&g->status, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               1, &d);
    set_tensor(g, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    lt_dnn_finalize(&g->status, op, "reduction");
    append_text(g, "reduce%d(%d,%d) ", (int)mode, x, y);
}

void lt_dnn_matmul(lt_dnn_graph *g, int a, int b, int y)
{
    if (!add_op(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                "matmul"))
        return;
    const cudnnBackendDescriptor_t d = g->mode[g->ops - 1], op = g->op[g->ops - 1];
    set_math(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE);
    lt_dnn_finalize(&g->status, d, "matmul");
    lt_dnn_set(&g->status, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &d);
    set_tensor(g, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    lt_dnn_finalize(&g->status, op, "matmul");
    append_text(g, "matmul(%d,%d,%d) ", a, b, y);
}

void lt_dnn_reshape(lt_dnn_graph *g, int x, int y)
{
    const cudnnBackendDescriptorType_t type = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
    if (!add_op(g, type, type, "reshape"))
        return;
    set_tensor(g, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    lt_dnn_finalize(&g->status, g->op[g->ops - 1], "reshape");
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
    lt_dnn_finalize(&g->status, g->op[g->ops - 1], "norm_weights");
    append_text(g, "norm_weights(%d,%d,%d,%d,%d;%d,%d,%d,%d,%d) ", n->mean, n->deviation, n->gain,
                n->x, n->dy, n->dgain, n->dbias, n->a, n->b, n->c);
}

lt_status lt_dnn_finalize_graph(lt_dnn_graph *g)
{
    lt_dnn_create(&g->status, &g->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    lt_dnn_set(&g->status, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               g->ops, g->op);
    lt_dnn_finalize(&g->status, g->graph, "graph");
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
