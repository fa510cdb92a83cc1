/* Convolution and its gradients by cuDNN. Activations and weights are channels-last. Formula: lt_conv2d().
 *
 * cuDNN's fast kernels write a weight's gradient in the factors' dtype: in a 16-bit pass it is rounded once, and then
 * cast to f32 if dw is f32. */

#include "conv_plan.h"
#include "tensor/backend/cuda/kernels.h"

#include <string.h>

/* y += b, one value per channel. */
static lt_status add_bias(lt_cuda *c, const lt_view *b, const lt_view *y)
{
    lt_view wide = *b;
    wide.shape = y->shape;
    memset(wide.stride, 0, sizeof wide.stride);
    wide.stride[1] = b->stride[0];
    return lt_cuda_table()->add(c, y, &wide, y);
}

static lt_status conv2d(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                        const lt_view *w, const lt_view *b, const lt_view *y)
{
    lt_cuda *c = ctx;
    lt_conv_call call = lt_conv_make_call(LT_CONV_FORWARD, config, x, w, y);
    lt_conv_use_space_to_depth(&call);
    LT_TRY(lt_cuda_begin(c, "conv2d"));
    LT_TRY(lt_conv_run(c, &call));
    if (b && b->data)
        LT_TRY(add_bias(c, b, y));
    return lt_cuda_end(c);
}

static lt_status conv2d_grad_x(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *w, const lt_view *dx)
{
    lt_cuda *c = ctx;
    lt_conv_call call = lt_conv_make_call(LT_CONV_GRAD_X, config, dx, w, dy);
    LT_TRY(lt_cuda_begin(c, "conv2d_grad_x"));
    LT_TRY(lt_conv_run(c, &call));
    return lt_cuda_end(c);
}

static lt_status conv2d_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *x, const lt_view *dw)
{
    lt_cuda *c = ctx;
    lt_conv_call call = lt_conv_make_call(LT_CONV_GRAD_W, config, x, dw, dy);
    lt_conv_use_space_to_depth(&call);
    LT_TRY(lt_cuda_begin(c, "conv2d_grad_w"));
    LT_TRY(lt_conv_run(c, &call));
    return lt_cuda_end(c);
}

void lt_cuda_install_convs(lt_backend *be)
{
    be->conv2d = conv2d;
    be->conv2d_grad_x = conv2d_grad_x;
    be->conv2d_grad_w = conv2d_grad_w;
}
