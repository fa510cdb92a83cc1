/* Interpolation, padding and pixel shuffle. */

#include "lather/ops/image.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/conv.h"
#include "lather/ops/shape.h"

/* --- upsample --- */

static lt_status infer_upsample(const lt_node *node, lt_desc *out)
{
    const lt_upsample_config *c = node->config;
    char text[LT_SHAPE_TEXT];
    lt_shape shape = node->in[0]->shape;
    if (shape.ndim != 4)
        return lt_fail(LT_E_SHAPE, "upsample: x %s, want [N,C,H,W]", lt_shape_text(shape, text));
    if (c->h < 1 || c->w < 1)
        return lt_fail(LT_E_ARG, "upsample: to %lld x %lld pixels, want at least 1 x 1",
                       (long long)c->h, (long long)c->w);
    if ((unsigned)c->mode > LT_UPSAMPLE_BILINEAR
        || (c->align_corners && c->mode != LT_UPSAMPLE_BILINEAR))
        return lt_fail(LT_E_ARG, "upsample: mode %d%s, want nearest, or bilinear if align_corners",
                       (int)c->mode, c->align_corners ? " with align_corners" : "");
    shape.dim[2] = c->h;
    shape.dim[3] = c->w;
    *out = (lt_desc){node->in[0]->dtype, shape, LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}

static lt_status forward_upsample(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    return v.be->upsample(v.ctx, node->config, &v.in, &v.out);
}

static lt_status backward_upsample(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    return v.be->upsample_grad(v.ctx, node->config, &v.in, &v.out);
}

const lt_op lt_op_upsample = {
    .name = "upsample",
    .config_bytes = sizeof(lt_upsample_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_upsample,
    .forward = forward_upsample,
    .backward = backward_upsample,
};

lt_tensor *lt_upsample(lt_tape *tape, lt_tensor *x, lt_upsample_config config)
{
    x = lt_op_to_channels_last(tape, x);
    return lt_op_run(tape, &lt_op_upsample, &x, 1, &config);
}

/* --- pad: the image itself, then columns and rows around it, copied or filled --- */

/* Sides of one dimension. */
typedef struct sides {
    int dim;
    int64_t before, size, after; /* size: of x */
} sides;

static sides sides_of(const lt_node *node, int axis)
{
    const lt_pad_config *c = node->config;
    const lt_shape x = node->in[0]->shape;
    const int dim = x.ndim - 1 - axis;
    const int64_t size = dim < 0 ? 1 : x.dim[dim];
    return axis ? (sides){dim, c->top, size, c->bottom} : (sides){dim, c->left, size, c->right};
}

static lt_status check_sides(const lt_node *node, sides s, const char *what)
{
    const bool reflects = ((const lt_pad_config *)node->config)->mode == LT_PAD_REFLECT;
    const int64_t most = s.before > s.after ? s.before : s.after;
    char text[LT_SHAPE_TEXT];
    const bool fits = s.dim < 0 ? !most : !reflects || most < s.size;
    if (s.before < 0 || s.after < 0 || !fits)
        return lt_fail(
            LT_E_ARG, "pad: %lld and %lld at the %s of x %s, want %s", (long long)s.before,
            (long long)s.after, what, lt_shape_text(node->in[0]->shape, text),
            reflects ? "0 to its size less 1 to reflect" : "0 or more, of a dimension that it has");
    return LT_OK;
}

/* The output has the format of x: LT_FORMAT_PRESERVE has it only for an equal shape. */
static lt_status infer_pad(const lt_node *node, lt_desc *out)
{
    const lt_pad_config *c = node->config;
    const lt_view x = lt_tensor_view(node->in[0]);
    *out = (lt_desc){.dtype = x.dtype, .shape = x.shape};
    if ((unsigned)c->mode > LT_PAD_REPLICATE)
        return lt_fail(LT_E_ARG, "pad: mode %d, want 0 to %d", (int)c->mode, LT_PAD_REPLICATE);
    for (int axis = 0; axis < 2; axis++) {
        const sides s = sides_of(node, axis);
        LT_TRY(check_sides(node, s, axis ? "height" : "width"));
        if (s.dim >= 0)
            out->shape.dim[s.dim] += s.before + s.after;
    }
    if (x.shape.ndim == 4)
        out->format = lt_view_is_contiguous(&x) ? LT_FORMAT_CONTIGUOUS : LT_FORMAT_CHANNELS_LAST;
    return LT_OK;
}

/* Views `count` indices from `start` on along a dimension, which may not exist. */
static lt_view slab(const lt_view *x, int dim, int64_t start, int64_t count)
{
    lt_view v = *x;
    if (dim < 0)
        return v;
    v.data = (char *)x->data + start * x->stride[dim] * (int64_t)lt_dtype_size(x->dtype);
    v.shape.dim[dim] = count;
    return v;
}

/* Views the image within y; along the first axis only if `columns`. */
static lt_view interior(const lt_node *node, const lt_view *y, bool columns)
{
    const sides w = sides_of(node, 0), h = sides_of(node, 1);
    const lt_view rows = slab(y, h.dim, h.before, h.size);
    return columns ? slab(&rows, w.dim, w.before, w.size) : rows;
}

/* Returns the place, along an axis of y, of the pixel that pixel i outside of the image repeats. */
static int64_t source_of(const lt_node *node, sides s, int64_t i)
{
    const lt_pad_config *c = node->config;
    const int64_t last = s.before + s.size - 1, edge = i < s.before ? s.before : last;
    return c->mode == LT_PAD_REFLECT ? 2 * edge - i : edge;
}

typedef lt_status edge_fn(lt_node *node, const lt_view *edge, const lt_view *source);

static lt_status copy_edge(lt_node *node, const lt_view *edge, const lt_view *source)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_pad_config *c = node->config;
    return c->mode == LT_PAD_CONSTANT ? be->fill(ctx, c->value, edge) : be->cast(ctx, source, edge);
}

/* Adds an edge's gradient to that of its source. */
static lt_status add_edge(lt_node *node, const lt_view *edge, const lt_view *source)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view sum;
    LT_TRY(lt_node_scratch(node, source->dtype, source->shape, &sum));
    LT_TRY(be->add(ctx, edge, source, &sum));
    return be->cast(ctx, &sum, source);
}

/* Calls fn for each row or column of y outside of the image along an axis; columns only within the image's rows. */
static lt_status for_edges(lt_node *node, int axis, const lt_view *y, edge_fn *fn)
{
    const sides s = sides_of(node, axis);
    const lt_view all = axis ? *y : interior(node, y, false);
    for (int64_t i = 0; i < s.before + s.size + s.after; i++) {
        if (i >= s.before && i < s.before + s.size)
            continue;
        const lt_view edge = slab(&all, s.dim, i, 1);
        const lt_view source = slab(&all, s.dim, source_of(node, s, i), 1);
        LT_TRY(fn(node, &edge, &source));
    }
    return LT_OK;
}

static lt_status forward_pad(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    const lt_view image = interior(node, &v.out, true);
    LT_TRY(v.be->cast(v.ctx, &v.in, &image));
    LT_TRY(for_edges(node, 0, &v.out, copy_edge));
    return for_edges(node, 1, &v.out, copy_edge);
}

static lt_status backward_pad(lt_node *node)
{
    const lt_pad_config *c = node->config;
    lt_view g;
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    g = v.in;
    if (c->mode != LT_PAD_CONSTANT) { /* rows first: they were copied last */
        LT_TRY(lt_node_scratch(node, v.in.dtype, v.in.shape, &g));
        LT_TRY(v.be->cast(v.ctx, &v.in, &g));
        LT_TRY(for_edges(node, 1, &g, add_edge));
        LT_TRY(for_edges(node, 0, &g, add_edge));
    }
    const lt_view image = interior(node, &g, true);
    return v.be->cast(v.ctx, &image, &v.out);
}

const lt_op lt_op_pad = {
    .name = "pad",
    .config_bytes = sizeof(lt_pad_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_pad,
    .forward = forward_pad,
    .backward = backward_pad,
};

lt_tensor *lt_pad(lt_tape *tape, lt_tensor *x, lt_pad_config config)
{
    return lt_op_run(tape, &lt_op_pad, &x, 1, &config);
}

/* --- compositions --- */

lt_tensor *lt_pixel_shuffle(lt_tape *tape, lt_tensor *x, int64_t factor)
{
    char text[LT_SHAPE_TEXT];
    const lt_shape s = x ? x->shape : LT_SCALAR;
    const int64_t r = factor;
    if (x && (s.ndim != 4 || r < 1 || s.dim[1] % (r * r)))
        return lt_tape_fail(tape,
                            lt_fail(LT_E_SHAPE,
                                    "pixel_shuffle: x %s by %lld, want [N,C,H,W] with a "
                                    "multiple of %lld channels",
                                    lt_shape_text(s, text), (long long)r, (long long)(r * r)));
    x = lt_reshape(tape, x, LT_SHAPE(-1, r, r, s.dim[2], s.dim[3]));
    x = lt_permute(tape, x, (int[]){0, 3, 1, 4, 2});
    return lt_reshape(tape, x, LT_SHAPE(s.dim[0], s.dim[1] / (r * r), s.dim[2] * r, s.dim[3] * r));
}

/* Views [A,B,L] as images of one row. */
static lt_tensor *as_rows_of_pixels(lt_tape *tape, lt_tensor *x)
{
    return lt_reshape(tape, x, LT_SHAPE(x->shape.dim[0], x->shape.dim[1], 1, x->shape.dim[2]));
}

lt_tensor *lt_conv1d(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b, lt_conv1d_config c)
{
    char a[LT_SHAPE_TEXT], v[LT_SHAPE_TEXT];
    const lt_shape xs = x ? x->shape : LT_SCALAR, ws = w ? w->shape : LT_SCALAR;
    if (x && (xs.ndim != 3 || ws.ndim != 3))
        return lt_tape_fail(tape,
                            lt_fail(LT_E_SHAPE, "conv1d: x %s and w %s, want [N,C,L] and [K,C,R]",
                                    lt_shape_text(xs, a), lt_shape_text(ws, v)));
    if (!x)
        return lt_conv2d(tape, x, w, b, (lt_conv2d_config){0});
    const lt_conv2d_config image = {
        .stride_w = c.stride, .pad_w = c.pad, .dilation_w = c.dilation, .groups = c.groups};
    lt_tensor *y =
        lt_conv2d(tape, as_rows_of_pixels(tape, x), as_rows_of_pixels(tape, w), b, image);
    return y ? lt_reshape(tape, y, LT_SHAPE(y->shape.dim[0], y->shape.dim[1], y->shape.dim[3]))
             : NULL;
}
