/* The shape rule of pooling. */

#include "tensor/ops/pool2d.h"

#include "tensor/tensor.h"

static int64_t extent(int64_t size, int kernel, int stride, int pad)
{
    int64_t room = size + 2 * (int64_t)pad - kernel;
    return room < 0 ? 0 : room / stride + 1;
}

lt_status lt_pool2d_infer(const lt_node *node, lt_desc *out)
{
    const lt_pool2d_config *c = node->config;
    const char *name = node->op->name;
    char text[LT_SHAPE_TEXT];
    lt_shape x = node->in[0]->shape;
    if (x.ndim != 4)
        return lt_fail(LT_E_SHAPE, "%s: x %s, want 4 dimensions", name, lt_shape_text(x, text));
    if (c->kernel_h < 1 || c->kernel_w < 1 || c->stride_h < 1 || c->stride_w < 1 || c->pad_h < 0
        || c->pad_w < 0 || 2 * c->pad_h > c->kernel_h || 2 * c->pad_w > c->kernel_w)
        return lt_fail(LT_E_ARG, "%s: kernel %dx%d, stride %dx%d, padding %dx%d (at most half)",
                       name, c->kernel_h, c->kernel_w, c->stride_h, c->stride_w, c->pad_h,
                       c->pad_w);
    int64_t p = extent(x.dim[2], c->kernel_h, c->stride_h, c->pad_h);
    int64_t q = extent(x.dim[3], c->kernel_w, c->stride_w, c->pad_w);
    if (p < 1 || q < 1)
        return lt_fail(LT_E_SHAPE, "%s: the kernel %dx%d is larger than x %s with padding", name,
                       c->kernel_h, c->kernel_w, lt_shape_text(x, text));
    *out = (lt_desc){.dtype = node->in[0]->dtype,
                     .shape = LT_SHAPE(x.dim[0], x.dim[1], p, q),
                     .format = LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}
