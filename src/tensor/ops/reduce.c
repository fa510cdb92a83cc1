/* Reductions over some dimensions, running sums, and the largest elements. */

#include "lather/ops/reduce.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/arithmetic.h"
#include "lather/ops/index.h"
#include "lather/ops/shape.h"

#include <math.h>

typedef struct reduce_config {
    lt_reduce_config dims;
    lt_reduce_how how;
} reduce_config;

static lt_status infer_reduction(const lt_node *node, lt_desc *out)
{
    const reduce_config *c = node->config;
    if (!isfinite(c->how.correction))
        return lt_fail(LT_E_ARG, "%s: correction %g, want a number", node->op->name,
                       c->how.correction);
    return lt_op_infer_reduction(node, c->dims, out);
}

static lt_status forward_reduction(lt_node *node)
{
    const reduce_config *c = node->config;
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    v.out = lt_op_keep_dims(node, c->dims, &v.out);
    return v.be->reduce(v.ctx, &c->how, &v.in, &v.out);
}

static lt_status backward_reduction(lt_node *node)
{
    const reduce_config *c = node->config;
    lt_view dy, dx;
    lt_op_views v;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_op_forward_views(node, &v));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    dy = lt_op_keep_dims(node, c->dims, &dy);
    v.out = lt_op_keep_dims(node, c->dims, &v.out);
    return v.be->reduce_grad(v.ctx, &c->how, &dy, &v.in, &v.out, &dx);
}

#define REDUCTION(function)                    \
    const lt_op lt_op_##function = {           \
        .name = #function,                     \
        .config_bytes = sizeof(reduce_config), \
        .infer = infer_reduction,              \
        .forward = forward_reduction,          \
        .backward = backward_reduction,        \
    }
REDUCTION(amax);
REDUCTION(amin);
REDUCTION(prod);
REDUCTION(logsumexp);
REDUCTION(var);
REDUCTION(std);

static lt_tensor *run_reduction(lt_tape *tape, const lt_op *op, lt_reduce_how how, lt_tensor *x,
                                lt_reduce_config dims)
{
    return lt_op_run(tape, op, &x, 1, &(reduce_config){dims, how});
}

lt_tensor *lt_amax(lt_tape *tape, lt_tensor *x, lt_reduce_config config)
{
    return run_reduction(tape, &lt_op_amax, (lt_reduce_how){.kind = LT_REDUCTION_MAX}, x, config);
}

lt_tensor *lt_amin(lt_tape *tape, lt_tensor *x, lt_reduce_config config)
{
    return run_reduction(tape, &lt_op_amin, (lt_reduce_how){.kind = LT_REDUCTION_MIN}, x, config);
}

lt_tensor *lt_prod(lt_tape *tape, lt_tensor *x, lt_reduce_config config)
{
    return run_reduction(tape, &lt_op_prod, (lt_reduce_how){.kind = LT_REDUCTION_PROD}, x, config);
}

lt_tensor *lt_logsumexp(lt_tape *tape, lt_tensor *x, lt_reduce_config config)
{
    const lt_reduce_how how = {.kind = LT_REDUCTION_LOGSUMEXP};
    return run_reduction(tape, &lt_op_logsumexp, how, x, config);
}

lt_tensor *lt_var(lt_tape *tape, lt_tensor *x, lt_reduce_config config, double correction)
{
    return run_reduction(tape, &lt_op_var, (lt_reduce_how){LT_REDUCTION_VAR, correction}, x,
                         config);
}

lt_tensor *lt_std(lt_tape *tape, lt_tensor *x, lt_reduce_config config, double correction)
{
    return run_reduction(tape, &lt_op_std, (lt_reduce_how){LT_REDUCTION_STD, correction}, x,
                         config);
}

/* Returns the tape's failure that x has no such dimension, or NULL if it has it. */
static lt_status check_dim(const char *name, const lt_tensor *x, int dim)
{
    char text[LT_SHAPE_TEXT];
    if (!x || lt_op_resolve_dim(dim, x->shape.ndim) >= 0)
        return LT_OK;
    return lt_fail(LT_E_ARG, "%s: dimension %d of x %s, want one of its %d", name, dim,
                   lt_shape_text(x->shape, text), x->shape.ndim);
}

lt_tensor *lt_log_softmax(lt_tape *tape, lt_tensor *x, int dim)
{
    const lt_status st = check_dim("log_softmax", x, dim);
    if (st)
        return lt_tape_fail(tape, st);
    const int d = x ? lt_op_resolve_dim(dim, x->shape.ndim) : 0;
    return lt_sub(tape, x,
                  lt_logsumexp(tape, x, (lt_reduce_config){.dims = 1U << d, .keep = true}));
}

/* --- cumsum --- */

static lt_status infer_cumsum(const lt_node *node, lt_desc *out)
{
    LT_TRY(check_dim("cumsum", node->in[0], *(const int *)node->config));
    *out = (lt_desc){node->in[0]->dtype, node->in[0]->shape, LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status sum_along(lt_node *node, bool from_end, const lt_view *x, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const int dim = lt_op_resolve_dim(*(const int *)node->config, x->shape.ndim);
    lt_view from, to = *y;
    LT_TRY(lt_op_as_contiguous(node, x, &from));
    if (!lt_view_is_contiguous(y))
        LT_TRY(lt_node_scratch(node, y->dtype, y->shape, &to));
    const lt_view rows = lt_op_around_dim(&from, dim), sums = lt_op_around_dim(&to, dim);
    LT_TRY(be->cumsum(ctx, from_end, &rows, &sums));
    return to.data == y->data ? LT_OK : be->cast(ctx, &to, y);
}

static lt_status forward_cumsum(lt_node *node)
{
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return sum_along(node, false, &x, &y);
}

static lt_status backward_cumsum(lt_node *node)
{
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return sum_along(node, true, &dy, &dx);
}

const lt_op lt_op_cumsum = {
    .name = "cumsum",
    .config_bytes = sizeof(int),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_cumsum,
    .forward = forward_cumsum,
    .backward = backward_cumsum,
};

lt_tensor *lt_cumsum(lt_tape *tape, lt_tensor *x, int dim)
{
    return lt_op_run(tape, &lt_op_cumsum, &x, 1, &dim);
}

/* --- topk: indices; the values are gathered by them --- */

static lt_status infer_topk(const lt_node *node, lt_desc *out)
{
    const int64_t k = *(const int64_t *)node->config;
    char text[LT_SHAPE_TEXT];
    lt_shape shape = node->in[0]->shape;
    const int64_t columns = shape.ndim ? shape.dim[shape.ndim - 1] : 0;
    if (columns < 1 || columns > INT32_MAX || k < 1 || k > columns)
        return lt_fail(LT_E_ARG, "topk: %lld of the last dimension of x %s, want 1 to %lld",
                       (long long)k, lt_shape_text(shape, text), (long long)columns);
    shape.dim[shape.ndim - 1] = k;
    *out = (lt_desc){LT_I32, shape, LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status forward_topk(lt_node *node)
{
    lt_view from, to;
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    LT_TRY(lt_op_as_rows(node, &v.in, &from));
    LT_TRY(lt_op_as_rows(node, &v.out, &to));
    return v.be->topk(v.ctx, &from, &to);
}

const lt_op lt_op_topk = {
    .name = "topk",
    .config_bytes = sizeof(int64_t),
    .infer = infer_topk,
    .forward = forward_topk,
};

lt_tensor *lt_topk(lt_tape *tape, lt_tensor *x, int64_t k, lt_tensor **indices)
{
    lt_tensor *index = lt_op_run(tape, &lt_op_topk, &x, 1, &k);
    if (indices)
        *indices = index;
    return lt_gather(tape, x, -1, index);
}

lt_tensor *lt_argmax(lt_tape *tape, lt_tensor *x)
{
    const int64_t one = 1;
    lt_tensor *index = lt_op_run(tape, &lt_op_topk, &x, 1, &one);
    if (!index)
        return NULL;
    lt_shape shape = index->shape;
    shape.ndim--;
    return lt_reshape(tape, index, shape);
}
