/* cuDNN graphs that the backend runs: a convolution or one of its gradients, alone or with operations fused to it.
 * Works without a device, so that tests can query the available engines. */
#ifndef LT_CUDA_CONV_GRAPH_H
#define LT_CUDA_CONV_GRAPH_H

#include "dnn_graph.h"

typedef enum lt_conv_form {
    LT_CONV_FORWARD,
    LT_CONV_GRAD_X,
    LT_CONV_GRAD_W,
    LT_CONV_STATS,       /* forward, then sums of y and of y^2 */
    LT_CONV_NORM_STATS,  /* LT_CONV_STATS of relu(x * scale + shift), which is not written */
    LT_CONV_NORM_GRAD_W, /* grad_w for such an input */
    LT_CONV_SUMS         /* grad_x, then relu's recomputed mask, then batch norm's two sums */
} lt_conv_form;

/* Numbers of a graph's tensors in memory. Vectors are f32 [1,C,1,1]. */
enum {
    LT_CONV_X, /* or its gradient, in LT_CONV_SUMS masked by relu */
    LT_CONV_W,
    LT_CONV_Y,
    /* LT_CONV_STATS: */
    LT_CONV_SUM = 3,
    LT_CONV_SQUARES,
    /* LT_CONV_NORM_STATS and LT_CONV_NORM_GRAD_W; the first two in the dtype of x: */
    LT_CONV_SCALE = 3,
    LT_CONV_SHIFT,
    LT_CONV_NORM_SUM,
    LT_CONV_NORM_SQUARES,
    /* LT_CONV_SUMS: batch norm's input, its coefficients, and the results. */
    LT_CONV_NORM_X = 3,
    LT_CONV_MEAN,
    LT_CONV_RSTD,
    LT_CONV_GAMMA,
    LT_CONV_BETA,
    LT_CONV_DGAMMA,
    LT_CONV_DBETA,
    LT_CONV_A, /* unused results: batch norm's dx = a * g + b * x + c */
    LT_CONV_B,
    LT_CONV_C,
    LT_CONV_SLOTS
};

typedef struct lt_conv_problem {
    lt_conv_form form;
    lt_dtype dtype; /* type of the factors */
    lt_conv2d_config config;
    int64_t x[4], w[4], y[4];
} lt_conv_problem;

typedef struct lt_conv_form_info {
    const char *name; /* name of the backend's entry */
    lt_dnn_conv_kind kind;
    int slots;   /* tensors in memory */
    int written; /* which of x, w, y is the result */
} lt_conv_form_info;
extern const lt_conv_form_info lt_conv_forms[]; /* by lt_conv_form */

/* Builds and finalizes the graph, which the caller resets in any case. */
LT_MUST_CHECK lt_status lt_conv_build_graph(lt_dnn_graph *g, const lt_conv_problem *p);

#endif
