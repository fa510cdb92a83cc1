/* Builder of operation graphs in cuDNN 9's backend API: from tensors and operations to a finalized graph and a text
 * that identifies it. All tensors have four dimensions: of convolutions (N, C, H, W), channels-last; of matrix
 * products (batch, head, row, column), any strides. */
#ifndef LT_BACKEND_CUDA_DNN_GRAPH_H
#define LT_BACKEND_CUDA_DNN_GRAPH_H

#include "lather/ext/fail.h"
#include "lather/ops/conv.h"

#include <cudnn.h>

enum { LT_DNN_TENSORS = 64, LT_DNN_OPS = 32, LT_DNN_TEXT = 4096 };

typedef struct lt_dnn_graph {
    cudnnBackendDescriptor_t tensor[LT_DNN_TENSORS]; /* number i has the unique id i + 1 */
    cudnnBackendDescriptor_t op[LT_DNN_OPS];
    cudnnBackendDescriptor_t mode[LT_DNN_OPS]; /* descriptor that the operation refers to */
    cudnnBackendDescriptor_t graph;
    int tensors, ops;
    lt_status status; /* the first failure, after which all calls are no-ops */
    size_t length;
    char text[LT_DNN_TEXT]; /* differs for different graphs */
} lt_dnn_graph;

typedef enum lt_dnn_conv_kind { LT_DNN_FORWARD, LT_DNN_GRAD_X, LT_DNN_GRAD_W } lt_dnn_conv_kind;

/* Storage of a tensor: in memory, or only between operations of the graph. */
typedef enum lt_dnn_place { LT_DNN_MEMORY, LT_DNN_VIRTUAL } lt_dnn_place;

/* A graph begins as {0}. Each adds a tensor and returns its number, or 0 after a failure. */
int lt_dnn_tensor(lt_dnn_graph *g, lt_dtype dtype, const int64_t dim[4], lt_dnn_place place);
/* Adds a tensor with these strides, in elements. */
int lt_dnn_strided_tensor(lt_dnn_graph *g, lt_dtype dtype, const int64_t dim[4],
                          const int64_t stride[4], lt_dnn_place place);
/* Adds booleans, row-major, between two operations. */
int lt_dnn_bool_tensor(lt_dnn_graph *g, const int64_t dim[4]);
/* Adds a tensor [1,C,1,1]. */
int lt_dnn_vector(lt_dnn_graph *g, lt_dtype dtype, int64_t channels);
/* Adds a tensor [1,1,1,1] passed by value at each run. */
int lt_dnn_scalar(lt_dnn_graph *g, lt_dtype dtype);

/* y = conv(x, w), or, by kind, the gradient of x or of w. */
void lt_dnn_conv(lt_dnn_graph *g, lt_dnn_conv_kind kind, const lt_conv2d_config *config, int x,
                 int w, int y);
/* y = mode(x, b), or mode(x) if b < 0. Sizes of 1 are broadcast. */
void lt_dnn_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y);
/* dx = dy where x > 0, else 0. */
void lt_dnn_relu_grad(lt_dnn_graph *g, int dy, int x, int dx);
/* sum and sum of squares over n, h, w. */
void lt_dnn_statistics(lt_dnn_graph *g, int x, int sum, int squares);
/* y = sum or maximum of x over the dimensions where y's size is smaller. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
void lt_dnn_reduce(lt_dnn_graph *g, cudnnReduceTensorOp_t op, int x, int y);
/* y[..] = a[..] b[..], of matrices in the last two dimensions; heads of b are repeated for those of a. */
void lt_dnn_matmul(lt_dnn_graph *g, int a, int b, int y);
/* y = the index along a dimension of x. */
void lt_dnn_index(lt_dnn_graph *g, int dimension, int x, int y);
/* y = mode(x, b) of integers: an addition, a subtraction, or a comparison, whose y are booleans. */
void lt_dnn_integer_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y);
/* y = flags ? x : b. */
void lt_dnn_select(lt_dnn_graph *g, int flags, int x, int b, int y);
/* y: the elements of x in y's shape and strides. */
void lt_dnn_reshape(lt_dnn_graph *g, int x, int y);

/* Gradients of batch norm's weight and bias, and the coefficients of dx = a * dy + b * x + c. */
typedef struct lt_dnn_norm_grad {
    int mean, deviation, gain, x, dy; /* deviation: 1 / sqrt(var + eps) */
    int dgain, dbias, a, b, c;
} lt_dnn_norm_grad;
void lt_dnn_norm_weight_grads(lt_dnn_graph *g, const lt_dnn_norm_grad *n);

/* Finalizes the graph. Errors: the first failure of the calls above. */
LT_MUST_CHECK lt_status lt_dnn_finalize_graph(lt_dnn_graph *g);
/* Destroys its descriptors. May be called after a failure, and again. */
void lt_dnn_reset_graph(lt_dnn_graph *g);

/* Calls on a descriptor, no-ops after a failure, which *st keeps; `what` names them in its message. */
void lt_dnn_create(lt_status *st, cudnnBackendDescriptor_t *d, cudnnBackendDescriptorType_t type,
                   const char *what);
void lt_dnn_set(lt_status *st, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values);
void lt_dnn_finalize(lt_status *st, cudnnBackendDescriptor_t d, const char *what);
/* Destroys a descriptor, if there is one, and nulls it. */
void lt_dnn_destroy(cudnnBackendDescriptor_t *d);

/* Returns LT_OK, or LT_E_UNSUPPORTED (no engine), LT_E_NOMEM (device memory) or LT_E_DEVICE, with cuDNN's message. */
LT_MUST_CHECK lt_status lt_dnn_check(cudnnStatus_t status, const char *what);

#endif
