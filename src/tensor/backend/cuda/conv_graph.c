/* Graphs around one convolution. Which operations in which order cuDNN has kernels for is known by
 * asking (tests/cuda/planning.c). */

#include "conv_graph.h"

/* Sums of a 16-bit tensor between operations: rounding it there would be for nothing. */
static const lt_dtype between = LT_F32;

int lt_conv_slots(lt_conv_form form)
{
    if (form == LT_CONV_SUMS)
        return LT_CONV_SLOTS;
    return form == LT_CONV_STATS ? LT_CONV_SQUARES + 1 : LT_CONV_Y + 1;
}

const char *lt_conv_name(lt_conv_form form)
{
    static const char *const names[] = {"conv2d", "conv2d_grad_x", "conv2d_grad_w", "conv2d_stats",
                                        "conv2d_grad_x_sums"};
    return names[form];
}

/* relu's argument made again as batch norm made it, relu's gradient, the sums. */
static void add_sums(lt_dnn_graph *g, const lt_conv_problem *p, int dx)
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
    lt_dnn_norm_weights(g, &(lt_dnn_norm_grad){.mean = LT_CONV_MEAN,
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

lt_status lt_conv_graph(lt_dnn_graph *g, const lt_conv_problem *p)
{
    const int64_t *dims[] = {p->x, p->w, p->y};
    const bool sums = p->form == LT_CONV_SUMS;
    for (int i = 0; i < 3; i++)
        lt_dnn_tensor(g, p->dtype, dims[i], LT_DNN_MEMORY);
    if (sums)
        lt_dnn_tensor(g, p->dtype, p->x, LT_DNN_MEMORY);
    while (!g->status && g->tensors < lt_conv_slots(p->form))
        lt_dnn_vector(g, LT_F32, sums ? p->x[1] : p->y[1]);
    if (sums) {
        const int dx = lt_dnn_tensor(g, between, p->x, LT_DNN_VIRTUAL);
        lt_dnn_conv(g, LT_DNN_GRAD_X, &p->config, dx, LT_CONV_W, LT_CONV_Y);
        add_sums(g, p, dx);
    } else {
        const lt_dnn_conv_kind kind =
            p->form == LT_CONV_STATS ? LT_DNN_FORWARD : (lt_dnn_conv_kind)p->form;
        lt_dnn_conv(g, kind, &p->config, LT_CONV_X, LT_CONV_W, LT_CONV_Y);
        if (p->form == LT_CONV_STATS)
            lt_dnn_statistics(g, LT_CONV_Y, LT_CONV_SUM, LT_CONV_SQUARES);
    }
    return lt_dnn_finish(g);
}
