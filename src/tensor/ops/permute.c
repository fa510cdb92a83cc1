/* Reorders dimensions. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/shape.h"

#include <string.h>

typedef struct permutation {
    int order[LT_MAX_DIMS]; /* dimension i of y is dimension order[i] of x */
} permutation;

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const permutation *p = node->config;
    const lt_shape x = node->in[0]->shape;
    char text[LT_SHAPE_TEXT];
    lt_shape y = x;
    unsigned seen = 0;
    for (int i = 0; i < x.ndim; i++) {
        const int d = p->order[i];
        if (d < 0 || d >= x.ndim || (seen >> d & 1))
            return lt_fail(LT_E_ARG, "permute: order[%d] is %d for x %s, want each of 0..%d once",
                           i, d, lt_shape_text(x, text), x.ndim - 1);
        seen |= 1U << d;
        y.dim[i] = x.dim[d];
    }
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = y, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Views x with its dimensions in y's order. */
static lt_view permute_view(const lt_node *node, const lt_view *x)
{
    const permutation *p = node->config;
    lt_view v = *x;
    for (int i = 0; i < x->shape.ndim; i++) {
        v.shape.dim[i] = x->shape.dim[p->order[i]];
        v.stride[i] = x->stride[p->order[i]];
    }
    return v;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    x = permute_view(node, &x);
    if (lt_view_is_contiguous(&x)) { /* the storage order does not change */
        lt_node_alias_input(node, 0, x.stride);
        return LT_OK;
    }
    LT_TRY(lt_node_out(node, &y));
    return be->cast(ctx, &x, &y);
}

static lt_status backward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    v.out = permute_view(node, &v.out);
    return v.be->cast(v.ctx, &v.in, &v.out);
}

const lt_op lt_op_permute = {
    .name = "permute",
    .config_bytes = sizeof(permutation),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_permute(lt_tape *tape, lt_tensor *x, const int *order)
{
    permutation p = {{0}};
    if (x)
        memcpy(p.order, order, (size_t)x->shape.ndim * sizeof *order);
    return lt_op_run(tape, &lt_op_permute, &x, 1, &p);
}
