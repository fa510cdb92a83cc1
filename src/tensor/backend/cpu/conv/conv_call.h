/* Calls of the convolution entries, which conv.c runs by built-in kernels or by oneDNN. */
#ifndef LT_BACKEND_CPU_CONV_CALL_H
#define LT_BACKEND_CPU_CONV_CALL_H

#include "tensor/backend/cpu/internal.h"

typedef enum lt_conv_kind { LT_CONV, LT_CONV_GRAD_X, LT_CONV_GRAD_W } lt_conv_kind;

typedef struct lt_conv_call {
    lt_conv_kind kind;
    const lt_conv2d_config *config;
    const lt_view *x, *w, *b, *y; /* or the gradients of x, w, y; b absent for gradients */
} lt_conv_call;

/* Returns the input index that an output's tap reads along one dimension, or -1. */
static inline int64_t lt_conv_input_index(bool backward, int64_t out, int64_t tap, int stride,
                                          int pad, int64_t in)
{
    const int64_t at = backward ? out + pad - tap : out * stride - pad + tap;
    if (!backward)
        return at >= 0 && at < in ? at : -1;
    return at >= 0 && at % stride == 0 && at / stride < in ? at / stride : -1;
}

/* Returns true for as many groups as channels read and written. */
static inline bool lt_conv_is_depthwise(const lt_conv2d_config *config, const lt_view *w)
{
    return config->groups > 1 && w->shape.dim[0] == config->groups && w->shape.dim[1] == 1;
}

/* Runs a convolution by oneDNN, computing in dtype. *done is false in a build or a device without it, and if it has no
 * correct primitive for this CPU. */
lt_status lt_onednn_conv(lt_cpu *cpu, const lt_conv_call *c, lt_dtype dtype, bool *done);

#endif
