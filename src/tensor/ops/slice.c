/* Slicing, padding and concatenation along one dimension. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/shape.h"

/* --- slice --- */

typedef struct range {
    int dim;
    int64_t start, count;
} range;

int lt_op_resolve_dim(int dim, int ndim)
{
    const int d = dim < 0 ? dim + ndim : dim;
    return d >= 0 && d < ndim ? d : -1;
}

static lt_status infer_slice(const lt_node *node, lt_desc *out)
{
    const range *r = node->config;
    char text[LT_SHAPE_TEXT];
    lt_shape shape = node->in[0]->shape;
    const int d = lt_op_resolve_dim(r->dim, shape.ndim);
    if (d < 0)
        return lt_fail(LT_E_ARG, "slice: dimension %d of x %s, want one of its %d", r->dim,
                       lt_shape_text(shape, text), shape.ndim);
    if (r->start < 0 || r->count < 1 || r->start > shape.dim[d] - r->count)
        return lt_fail(LT_E_ARG,
                       "slice: %lld elements from %lld exceed x %s, of size %lld in dimension %d",
                       (long long)r->count, (long long)r->start, lt_shape_text(shape, text),
                       (long long)shape.dim[d], d);
    shape.dim[d] = r->count;
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = shape, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Views `count` indices from `start` along a dimension. */
static lt_view slice_view(const lt_view *x, int dim, int64_t start, int64_t count)
{
    lt_view v = *x;
    v.data = (char *)x->data + start * x->stride[dim] * (int64_t)lt_dtype_size(x->dtype);
    v.shape.dim[dim] = count;
    return v;
}

static lt_view slice_by_config(const lt_node *node, const lt_view *x)
{
    const range *r = node->config;
    return slice_view(x, lt_op_resolve_dim(r->dim, x->shape.ndim), r->start, r->count);
}

static lt_status forward_slice(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    v.in = slice_by_config(node, &v.in);
    return v.be->cast(v.ctx, &v.in, &v.out);
}

/* dx is 0 outside of the slice. */
static lt_status backward_slice(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    LT_TRY(v.be->fill(v.ctx, 0, &v.out));
    v.out = slice_by_config(node, &v.out);
    return v.be->cast(v.ctx, &v.in, &v.out);
}

const lt_op lt_op_slice = {
    .name = "slice",
    .config_bytes = sizeof(range),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_slice,
    .forward = forward_slice,
    .backward = backward_slice,
};

lt_tensor *lt_slice(lt_tape *tape, lt_tensor *x, int dim, int64_t start, int64_t count)
{
    return lt_op_run(tape, &lt_op_slice, &x, 1, &(range){dim, start, count});
}

/* --- pad_rows --- */

typedef struct padding {
    int64_t first, rows;
    double fill;
} padding;

static lt_status infer_pad(const lt_node *node, lt_desc *out)
{
    const padding *p = node->config;
    char text[LT_SHAPE_TEXT];
    lt_shape shape = node->in[0]->shape;
    if (shape.ndim < 1 || p->first < 0 || p->first > p->rows - shape.dim[0])
        return lt_fail(LT_E_SHAPE, "pad_rows: x %s at row %lld exceeds %lld rows",
                       lt_shape_text(shape, text), (long long)p->first, (long long)p->rows);
    shape.dim[0] = p->rows;
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = shape, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status forward_pad(lt_node *node)
{
    const padding *p = node->config;
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    if (v.in.shape.dim[0] < p->rows)
        LT_TRY(v.be->fill(v.ctx, p->fill, &v.out));
    const lt_view to = slice_view(&v.out, 0, p->first, v.in.shape.dim[0]);
    return v.be->cast(v.ctx, &v.in, &to);
}

static lt_status backward_pad(lt_node *node)
{
    const padding *p = node->config;
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    v.in = slice_view(&v.in, 0, p->first, v.out.shape.dim[0]);
    return v.be->cast(v.ctx, &v.in, &v.out);
}

const lt_op lt_op_pad_rows = {
    .name = "pad_rows",
    .config_bytes = sizeof(padding),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_pad,
    .forward = forward_pad,
    .backward = backward_pad,
};

lt_tensor *lt_pad_rows(lt_tape *tape, lt_tensor *x, int64_t first, int64_t rows, double fill)
{
    return lt_op_run(tape, &lt_op_pad_rows, &x, 1, &(padding){first, rows, fill});
}

/* --- concat --- */

typedef struct joint {
    int dim, count; /* count: number of inputs */
} joint;

static bool same_other_dims(lt_shape a, lt_shape b, int dim)
{
    bool same = a.ndim == b.ndim;
    for (int d = 0; d < a.ndim && same; d++)
        same = d == dim || a.dim[d] == b.dim[d];
    return same;
}

static lt_status infer_concat(const lt_node *node, lt_desc *out)
{
    const joint *c = node->config;
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    lt_shape shape = node->in[0]->shape;
    const int dim = lt_op_resolve_dim(c->dim, shape.ndim);
    if (dim < 0)
        return lt_fail(LT_E_ARG, "concat: dimension %d of x[0] %s, want one of its %d", c->dim,
                       lt_shape_text(shape, a), shape.ndim);
    for (int i = 1; i < c->count; i++) {
        if (!node->in[i])
            return lt_fail(LT_E_ARG, "concat: x[%d] of %d is NULL", i, c->count);
        const lt_shape other = node->in[i]->shape;
        if (!same_other_dims(node->in[0]->shape, other, dim))
            return lt_fail(
                LT_E_SHAPE,
                "concat: x[0] %s and x[%d] %s must have equal sizes except in dimension %d",
                lt_shape_text(node->in[0]->shape, a), i, lt_shape_text(other, b), dim);
        shape.dim[dim] += other.dim[dim];
    }
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = shape, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Views the slice of y that input i fills. */
static lt_view slice_filled_by_input(const lt_node *node, const lt_view *y, int i)
{
    const joint *c = node->config;
    const int dim = lt_op_resolve_dim(c->dim, y->shape.ndim);
    int64_t start = 0;
    for (int k = 0; k < i; k++)
        start += node->in[k]->shape.dim[dim];
    return slice_view(y, dim, start, node->in[i]->shape.dim[dim]);
}

static lt_status forward_concat(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const joint *c = node->config;
    lt_view x, y;
    LT_TRY(lt_node_out(node, &y));
    for (int i = 0; i < c->count; i++) {
        const lt_view to = slice_filled_by_input(node, &y, i);
        LT_TRY(lt_node_in(node, i, &x));
        LT_TRY(be->cast(ctx, &x, &to));
    }
    return LT_OK;
}

static lt_status backward_concat(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const joint *c = node->config;
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    for (int i = 0; i < c->count; i++) {
        if (!lt_node_needs_grad(node, i))
            continue;
        const lt_view from = slice_filled_by_input(node, &dy, i);
        LT_TRY(lt_node_grad_out(node, i, &dx));
        LT_TRY(be->cast(ctx, &from, &dx));
    }
    return LT_OK;
}

const lt_op lt_op_concat = {
    .name = "concat",
    .config_bytes = sizeof(joint),
    .backward_ignores = (LT_IGNORES_IN(LT_MAX_INPUTS) - 1) | LT_IGNORES_OUT,
    .infer = infer_concat,
    .forward = forward_concat,
    .backward = backward_concat,
};

lt_tensor *lt_concat(lt_tape *tape, lt_tensor *const *x, int count, int dim)
{
    if (count < 1 || count > LT_MAX_INPUTS)
        return lt_tape_fail(
            tape, lt_fail(LT_E_ARG, "concat: got %d tensors, want 1 to %d", count, LT_MAX_INPUTS));
    return lt_op_run(tape, &lt_op_concat, x, count, &(joint){dim, count});
}
