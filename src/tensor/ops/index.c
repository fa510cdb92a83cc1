/* Elements picked by indices along a dimension, and sums of elements by indices, which are each other's gradient. */

#include "lather/ops/index.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

enum { X, INDEX, SRC }; /* inputs */

typedef struct pick {
    int dim;
    bool select; /* index is one list for all other dimensions */
    bool ignore; /* LT_IGNORED_LABEL gives 0 */
} pick;

static int dim_of(const lt_node *node)
{
    const pick *p = node->config;
    return lt_op_resolve_dim(p->dim, node->in[X]->shape.ndim);
}

/* Returns the index's shape, with a list expanded to x's other dimensions. */
static lt_shape index_shape(const lt_node *node)
{
    const pick *p = node->config;
    lt_shape shape = node->in[X]->shape;
    if (!p->select)
        return node->in[INDEX]->shape;
    shape.dim[dim_of(node)] = node->in[INDEX]->shape.dim[0];
    return shape;
}

static lt_status check_index(const lt_node *node)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    const pick *p = node->config;
    const lt_tensor *x = node->in[X], *index = node->in[INDEX];
    const int dim = dim_of(node);
    if (!index || index->dtype != LT_I32)
        return lt_fail(LT_E_SHAPE, "%s: index is %s, want i32", node->op->name,
                       index ? lt_dtype_name(index->dtype) : "NULL");
    if (dim < 0)
        return lt_fail(LT_E_ARG, "%s: dimension %d of x %s, want one of its %d", node->op->name,
                       p->dim, lt_shape_text(x->shape, a), x->shape.ndim);
    bool fits = index->shape.ndim == (p->select ? 1 : x->shape.ndim);
    for (int d = 0; d < x->shape.ndim && fits && !p->select; d++)
        fits = d == dim || index->shape.dim[d] <= x->shape.dim[d];
    if (!fits)
        return lt_fail(LT_E_SHAPE, "%s: index %s for x %s, want %s", node->op->name,
                       lt_shape_text(index->shape, a), lt_shape_text(x->shape, b),
                       p->select ? "[n]" : "at most its sizes except in the dimension");
    return LT_OK;
}

static lt_status infer_gather(const lt_node *node, lt_desc *out)
{
    LT_TRY(check_index(node));
    *out = (lt_desc){node->in[X]->dtype, index_shape(node), LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status infer_scatter_add(const lt_node *node, lt_desc *out)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    LT_TRY(check_index(node));
    if (!node->in[SRC] || !lt_shape_equal(node->in[SRC]->shape, node->in[INDEX]->shape))
        return lt_fail(LT_E_SHAPE, "scatter_add: src %s, want index's shape %s",
                       node->in[SRC] ? lt_shape_text(node->in[SRC]->shape, a) : "NULL",
                       lt_shape_text(node->in[INDEX]->shape, b));
    *out = (lt_desc){node->in[X]->dtype, node->in[X]->shape, LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

lt_view lt_op_around_dim(const lt_view *dense, int dim)
{
    lt_view v = *dense;
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < dense->shape.ndim; d++) {
        outer *= d < dim ? dense->shape.dim[d] : 1;
        inner *= d > dim ? dense->shape.dim[d] : 1;
    }
    v.shape = LT_SHAPE(outer, dense->shape.dim[dim], inner);
    lt_row_major_strides(v.shape, v.stride);
    return v;
}

static lt_status get_index(lt_node *node, lt_index *out)
{
    const pick *p = node->config;
    lt_view index, dense;
    LT_TRY(lt_node_in(node, INDEX, &index));
    LT_TRY(lt_op_as_contiguous(node, &index, &dense));
    *out = (lt_index){node->op->name, dense, p->ignore};
    if (!p->select) {
        out->index = lt_op_around_dim(&dense, dim_of(node));
        return LT_OK;
    }
    dense.shape = index_shape(node);
    out->index = lt_op_around_dim(&dense, dim_of(node));
    out->index.stride[0] = out->index.stride[2] = 0;
    out->index.stride[1] = 1;
    return LT_OK;
}

/* Views the part of x that the index addresses. */
static lt_view addressed_part(const lt_node *node, const lt_view *x)
{
    lt_view v = *x;
    const int dim = dim_of(node);
    v.shape = index_shape(node);
    v.shape.dim[dim] = x->shape.dim[dim];
    return v;
}

/* y = elements of x; y is contiguous, or copied to from scratch memory. */
static lt_status pick_elements(lt_node *node, const lt_view *x, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_view part = addressed_part(node, x);
    lt_view from, to = *y;
    lt_index index;
    LT_TRY(get_index(node, &index));
    LT_TRY(lt_op_as_contiguous(node, &part, &from));
    if (!lt_view_is_contiguous(y))
        LT_TRY(lt_node_scratch(node, y->dtype, y->shape, &to));
    const lt_view rows = lt_op_around_dim(&from, dim_of(node)),
                  out = lt_op_around_dim(&to, dim_of(node));
    LT_TRY(be->gather_by_index(ctx, &index, &rows, &out));
    return to.data == y->data ? LT_OK : be->cast(ctx, &to, y);
}

/* y += elements of src, by index. */
static lt_status add_elements(lt_node *node, const lt_view *src, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_view part = addressed_part(node, y);
    lt_view from, to;
    lt_index index;
    LT_TRY(get_index(node, &index));
    LT_TRY(lt_op_as_contiguous(node, src, &from));
    LT_TRY(lt_op_as_contiguous(node, &part, &to));
    const lt_view rows = lt_op_around_dim(&from, dim_of(node)),
                  out = lt_op_around_dim(&to, dim_of(node));
    LT_TRY(be->scatter_add(ctx, &index, &rows, &out));
    return to.data == part.data ? LT_OK : be->cast(ctx, &to, &part);
}

static lt_status forward_gather(lt_node *node)
{
    lt_view x, y;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_out(node, &y));
    return pick_elements(node, &x, &y);
}

static lt_status backward_gather(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    LT_TRY(v.be->fill(v.ctx, 0, &v.out));
    return add_elements(node, &v.in, &v.out);
}

#define GATHER(function)                                       \
    const lt_op lt_op_##function = {                           \
        .name = #function,                                     \
        .config_bytes = sizeof(pick),                          \
        .backward_ignores = LT_IGNORES_IN(X) | LT_IGNORES_OUT, \
        .infer = infer_gather,                                 \
        .forward = forward_gather,                             \
        .backward = backward_gather,                           \
    }
GATHER(gather);
GATHER(index_select);

static lt_status forward_scatter_add(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, src, y;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_in(node, SRC, &src));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(be->cast(ctx, &x, &y));
    return add_elements(node, &src, &y);
}

static lt_status backward_scatter_add(lt_node *node)
{
    lt_view dy, dsrc;
    if (lt_node_needs_grad(node, X))
        LT_TRY(lt_node_pass_grad_through(node, X));
    if (!lt_node_needs_grad(node, SRC))
        return LT_OK;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, SRC, &dsrc));
    return pick_elements(node, &dy, &dsrc);
}

const lt_op lt_op_scatter_add = {
    .name = "scatter_add",
    .config_bytes = sizeof(pick),
    .backward_ignores = LT_IGNORES_IN(X) | LT_IGNORES_IN(SRC) | LT_IGNORES_OUT,
    .infer = infer_scatter_add,
    .forward = forward_scatter_add,
    .backward = backward_scatter_add,
};

lt_tensor *lt_gather(lt_tape *tape, lt_tensor *x, int dim, lt_tensor *index)
{
    return lt_op_run(tape, &lt_op_gather, (lt_tensor *[]){x, index}, 2, &(pick){.dim = dim});
}

lt_tensor *lt_op_gather_labels(lt_tape *tape, lt_tensor *x, lt_tensor *labels)
{
    return lt_op_run(tape, &lt_op_gather, (lt_tensor *[]){x, labels}, 2,
                     &(pick){.dim = 1, .ignore = true});
}

lt_tensor *lt_index_select(lt_tape *tape, lt_tensor *x, int dim, lt_tensor *index)
{
    return lt_op_run(tape, &lt_op_index_select, (lt_tensor *[]){x, index}, 2,
                     &(pick){.dim = dim, .select = true});
}

lt_tensor *lt_scatter_add(lt_tape *tape, lt_tensor *x, int dim, lt_tensor *index, lt_tensor *src)
{
    return lt_op_run(tape, &lt_op_scatter_add, (lt_tensor *[]){x, index, src}, 3,
                     &(pick){.dim = dim});
}
