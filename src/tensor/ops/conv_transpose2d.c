/* Transposed convolution by the kernels of conv2d. Its value is the gradient of a convolution by its input,
 * its gradient by x is that convolution, and the weight's gradient is shared. Dumoulin & Visin, "A guide to
 * convolution arithmetic", 2018, chapter 4. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/conv.h"
#include "lather/ops/math.h"
#include "lather/ops/shape.h"

enum { X, W };

static lt_status check_config(const lt_conv_transpose2d_config *t)
{
    const lt_conv2d_config *c = &t->conv;
    LT_TRY(lt_op_check_conv("conv_transpose2d", c));
    if (t->output_pad_h < 0 || t->output_pad_h >= c->stride_h || t->output_pad_w < 0
        || t->output_pad_w >= c->stride_w)
        return lt_fail(LT_E_ARG, "conv_transpose2d: output padding %dx%d, want below stride %dx%d",
                       t->output_pad_h, t->output_pad_w, c->stride_h, c->stride_w);
    return LT_OK;
}

static int64_t output_size(int64_t size, int64_t taps, int stride, int pad, int dilation)
{
    return (size - 1) * stride - 2 * (int64_t)pad + dilation * (taps - 1) + 1;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_conv_transpose2d_config *t = node->config;
    const lt_conv2d_config *c = &t->conv;
    char x[LT_SHAPE_TEXT], w[LT_SHAPE_TEXT];
    const lt_shape xs = node->in[X]->shape, ws = node->in[W] ? node->in[W]->shape : LT_SCALAR;
    LT_TRY(check_config(t));
    if (xs.ndim != 4 || ws.ndim != 4)
        return lt_fail(LT_E_SHAPE, "conv_transpose2d: x %s and w %s, want 4 dimensions each",
                       lt_shape_text(xs, x), lt_shape_text(ws, w));
    if (xs.dim[1] != ws.dim[0])
        return lt_fail(LT_E_SHAPE, "conv_transpose2d: x %s has %lld channels, w %s needs %lld",
                       lt_shape_text(xs, x), (long long)xs.dim[1], lt_shape_text(ws, w),
                       (long long)ws.dim[0]);
    if (xs.dim[1] % c->groups)
        return lt_fail(LT_E_SHAPE, "conv_transpose2d: %lld channels do not divide into %d groups",
                       (long long)xs.dim[1], c->groups);
    const int64_t p =
        output_size(xs.dim[2], ws.dim[2], c->stride_h, c->pad_h, c->dilation_h) + t->output_pad_h;
    const int64_t q =
        output_size(xs.dim[3], ws.dim[3], c->stride_w, c->pad_w, c->dilation_w) + t->output_pad_w;
    if (p < 1 || q < 1)
        return lt_fail(LT_E_SHAPE,
                       "conv_transpose2d: x %s and w %s with this padding give an empty output",
                       lt_shape_text(xs, x), lt_shape_text(ws, w));
    *out = (lt_desc){.dtype = node->in[X]->dtype,
                     .shape = LT_SHAPE(xs.dim[0], ws.dim[1] * c->groups, p, q),
                     .format = LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}

static const lt_conv2d_config *get_conv_config(const lt_node *node)
{
    return &((const lt_conv_transpose2d_config *)node->config)->conv;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, w, y;
    LT_TRY(LT_HAS_ENTRY(node, be, conv2d_grad_x));
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_in(node, W, &w));
    LT_TRY(lt_node_out(node, &y));
    return be->conv2d_grad_x(ctx, get_conv_config(node), &x, &w, &y);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, x, w, g;
    LT_TRY(lt_node_grad(node, &dy));
    if (lt_node_needs_grad(node, W)) {
        LT_TRY(LT_HAS_ENTRY(node, be, conv2d_grad_w));
        LT_TRY(lt_node_in(node, X, &x));
        LT_TRY(lt_node_grad_out(node, W, &g));
        LT_TRY(be->conv2d_grad_w(ctx, get_conv_config(node), &x, &dy, &g));
    }
    if (!lt_node_needs_grad(node, X))
        return LT_OK;
    LT_TRY(LT_HAS_ENTRY(node, be, conv2d));
    LT_TRY(lt_node_in(node, W, &w));
    LT_TRY(lt_node_grad_out(node, X, &g));
    return be->conv2d(ctx, get_conv_config(node), &dy, &w, NULL, &g);
}

const lt_op lt_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .config_bytes = sizeof(lt_conv_transpose2d_config),
    .backward_ignores = LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_conv_transpose2d(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                               lt_conv_transpose2d_config config)
{
    config.conv = lt_op_conv_defaults(config.conv);
    x = lt_op_to_channels_last(tape, x);
    lt_tensor *y = lt_op_run(tape, &lt_op_conv_transpose2d, (lt_tensor *[]){x, w}, 2, &config);
    if (!b || !y)
        return y;
    char text[LT_SHAPE_TEXT];
    if (!lt_shape_equal(b->shape, LT_SHAPE(y->shape.dim[1])))
        return lt_tape_fail(tape,
                            lt_fail(LT_E_SHAPE, "conv_transpose2d: b %s, want [%lld]",
                                    lt_shape_text(b->shape, text), (long long)y->shape.dim[1]));
    return lt_add(tape, y, lt_reshape(tape, b, LT_SHAPE(-1, 1, 1)));
}
