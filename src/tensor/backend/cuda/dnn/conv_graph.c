/* Graphs around one convolution. The sequences of operations for which cuDNN has engines were found by queries:
 * tests/cuda/planning.c. */

#include "conv_graph.h"

/* dtype between operations after a convolution: rounding to 16 bits there has no benefit. */
static const lt_dtype between = LT_F32;

const lt_conv_form_info lt_conv_forms[] = {
    [LT_CONV_FORWARD] = {"conv2d", LT_DNN_FORWARD, LT_CONV_Y + 1, LT_CONV_Y},
    [LT_CONV_GRAD_X] = {"conv2d_grad_x", LT_DNN_GRAD_X, LT_CONV_Y + 1, LT_CONV_X},
    [LT_CONV_GRAD_W] = {"conv2d_grad_w", LT_DNN_GRAD_W, LT_CONV_Y + 1, LT_CONV_W},
    [LT_CONV_STATS] = {"conv2d_stats", LT_DNN_FORWARD, LT_CONV_SQUARES + 1, LT_CONV_Y},
    [LT_CONV_NORM_STATS] = {"conv2d_norm_stats", LT_DNN_FORWARD, LT_CONV_NORM_SQUARES + 1,
                            LT_CONV_Y},
    [LT_CONV_NORM_GRAD_W] = {"conv2d_norm_grad_w", LT_DNN_GRAD_W, LT_CONV_SHIFT + 1, LT_CONV_W},
    [LT_CONV_SUMS] = {"conv2d_grad_x_sums", LT_DNN_GRAD_X, LT_CONV_SLOTS, LT_CONV_X}};

/* Recomputes relu's input from batch norm's, then relu's gradient and the sums. */
static void add_norm_grad_sums(lt_dnn_graph *g, const lt_conv_problem *p, int dx)
{
    static const cudnnPointwiseMode_t mode[] = {CUDNN_POINTWISE_SUB, CUDNN_POINTWISE_MUL,
                                                CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_ADD};
    const int by[] = {LT_CONV_MEAN, LT_CONV_RSTD, LT_CONV_GAMMA, LT_CONV_BETA};
    int at = LT_CONV_NORM_X;
    for (int i = 0; i < 4; i++) {
        const int next = lt_dnn_tensor(g, between, p->x, LT_DNN_VIRTUAL);
        lt_dnn_pointwise(g, mode[i], at, by[i], next);
        at = next;
    }
    lt_dnn_relu_grad(g, dx, at, LT_CONV_X);
    lt_dnn_norm_weight_grads(g, &(lt_dnn_norm_grad){.mean = LT_CONV_MEAN,
                                                    .deviation = LT_CONV_RSTD,
                                                    .gain = LT_CONV_GAMMA,
                                                    .x = LT_CONV_NORM_X,
                                                    .dy = LT_CONV_X,
                                                    .dgain = LT_CONV_DGAMMA,
                                                    .dbias = LT_CONV_DBETA,
                                                    .a = LT_CONV_A,
                                                    .b = LT_CONV_B,
                                                    .c = LT_CONV_C});
}

/* Adds relu(x * scale + shift) of the first tensor. */
static int add_input_norm(lt_dnn_graph *g, const lt_conv_problem *p)
{
    static const cudnnPointwiseMode_t mode[] = {CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_ADD,
                                                CUDNN_POINTWISE_RELU_FWD};
    const int by[] = {LT_CONV_SCALE, LT_CONV_SHIFT, -1};
    int at = LT_CONV_X;
    for (int i = 0; i < 3; i++) {
        const int next = lt_dnn_tensor(g, p->dtype, p->x, LT_DNN_VIRTUAL);
        lt_dnn_pointwise(g, mode[i], at, by[i], next);
        at = next;
    }
    return at;
}

/* Adds the tensors in memory, whose numbers are fixed. */
static void add_tensors(lt_dnn_graph *g, const lt_conv_problem *p)
{
    const int64_t *const dims[] = {p->x, p->w, p->y};
    const bool sums = p->form == LT_CONV_SUMS;
    const bool norm = p->form == LT_CONV_NORM_STATS || p->form == LT_CONV_NORM_GRAD_W;
    for (int i = 0; i < 3; i++)
        lt_dnn_tensor(g, p->dtype, dims[i], LT_DNN_MEMORY);
    if (sums)
        lt_dnn_tensor(g, p->dtype, p->x, LT_DNN_MEMORY);
    for (int i = 0; norm && i < 2; i++)
        lt_dnn_vector(g, p->dtype, p->x[1]);
    while (!g->status && g->tensors < lt_conv_forms[p->form].slots)
        lt_dnn_vector(g, LT_F32, sums ? p->x[1] : p->y[1]);
}

lt_status lt_conv_build_graph(lt_dnn_graph *g, const lt_conv_problem *p)
{
    int x = LT_CONV_X;
    add_tensors(g, p);
    if (p->form == LT_CONV_NORM_STATS || p->form == LT_CONV_NORM_GRAD_W)
        x = add_input_norm(g, p);
    if (p->form == LT_CONV_SUMS)
        x = lt_dnn_tensor(g, between, p->x, LT_DNN_VIRTUAL);
    lt_dnn_conv(g, lt_conv_forms[p->form].kind, &p->config, x, LT_CONV_W, LT_CONV_Y);
    if (p->form == LT_CONV_STATS)
        lt_dnn_statistics(g, LT_CONV_Y, LT_CONV_SUM, LT_CONV_SQUARES);
    if (p->form == LT_CONV_NORM_STATS)
        lt_dnn_statistics(g, LT_CONV_Y, LT_CONV_NORM_SUM, LT_CONV_NORM_SQUARES);
    if (p->form == LT_CONV_SUMS)
        add_norm_grad_sums(g, p, x);
    return lt_dnn_finalize_graph(g);
}
