/* The graphs that ResNet-50 asks of cuDNN. */
#ifndef LT_TESTS_CUDA_GRAPHS_H
#define LT_TESTS_CUDA_GRAPHS_H

#include "tensor/backend/cuda/dnn/conv_graph.h"
#include "tensor/backend/cuda/dnn/dnn_plan.h"

/* An H200, as its driver describes it to cuDNN: for lt_dnn_device_properties(). */
extern const char h200_text[];

/* One convolution, without the batch. */
typedef struct conv_shape {
    int channels, filters, side, size, stride; /* input side; filter size */
} conv_shape;

enum { CONV_SHAPES = 23 }; /* distinct shapes of ResNet-50; the first is the stem */
extern const conv_shape conv_shapes[CONV_SHAPES];

typedef enum conv_graph {
    PLAIN_FORWARD,
    PLAIN_GRAD_X,
    PLAIN_GRAD_W,
    WITH_STATISTICS,       /* y, and sums over y and its squares */
    APPLY_WITH_STATISTICS, /* a convolution of relu(x * scale + shift) */
    APPLY_GRAD_W,          /* dw for such an input */
    GRAD_X_NORM,           /* dx, masked by relu, and the sums of batch norm's gradients */
    BLOCKS_FORWARD,        /* the first convolution on blocks of pixels, whatever the shape */
    BLOCKS_WITH_STATISTICS,
    BLOCKS_GRAD_W,
    ADD_WITH_STATISTICS, /* a convolution of relu(x * scale + shift + residual); the sum, a block's output, is stored */
    NORM_GRAD_X, /* dx of the gradient a * g + b * y + c: no engine supports it */
} conv_graph;

/* Builds it; the graph must be freed in any case. */
lt_status build_graph(lt_dnn_graph *g, conv_graph kind, const conv_shape *shape, int batch,
                      lt_dtype dtype);

#endif
