/* Collectives on the tape, in conjugate pairs: copy and sum (all-reduce), gather and scatter-sum
 * (reduce-scatter). */

#include "tensor/ops/exchange.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

lt_status lt_exchange_run(lt_exchange *self, const lt_exchange_call *call)
{
    void *request = NULL;
    LT_TRY(self->begin(self, call, &request));
    return self->wait(self, &request);
}

typedef struct among {
    lt_exchange *group;
    int64_t rows; /* rows of all ranks, for gather */
} among;

static lt_exchange *group_of(const lt_node *node)
{
    return ((const among *)node->config)->group;
}

lt_status lt_op_dense(lt_node *node, const lt_view *x, lt_view *dense)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    *dense = *x;
    if (lt_view_is_contiguous(x))
        return LT_OK;
    LT_TRY(lt_node_scratch(node, x->dtype, x->shape, dense));
    return be->cast(ctx, x, dense);
}

/* Computes y as the sum of x over ranks. */
static lt_status sum_into(lt_node *node, const lt_view *x, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    LT_TRY(be->cast(ctx, x, y));
    return lt_exchange_run(group_of(node), &(lt_exchange_call){.what = LT_EXCHANGE_SUM, .out = *y});
}

/* Gathers rows of all ranks, or reduce-scatters to this rank's. */
static lt_status move_rows(lt_node *node, lt_exchange_what what, const lt_view *x, const lt_view *y)
{
    const among *c = node->config;
    const lt_view *whole = what == LT_EXCHANGE_GATHER ? y : x;
    lt_exchange_call call = {.what = what, .out = *y};
    int64_t *count = lt_alloc((size_t)c->group->size, sizeof *count);
    if (!count)
        return LT_E_NOMEM;
    const int64_t rows = whole->shape.dim[0], row = lt_shape_count(whole->shape) / rows;
    for (int r = 0; r < c->group->size; r++)
        count[r] = row * lt_exchange_part(rows, c->group->size, r);
    call.count = count;
    lt_status st = lt_op_dense(node, x, &call.in);
    if (!st)
        st = lt_exchange_run(c->group, &call);
    lt_free(count);
    return st;
}

static lt_status infer_same(const lt_node *node, lt_desc *out)
{
    *out = (lt_desc){
        .dtype = node->in[0]->dtype, .shape = node->in[0]->shape, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* --- copy, sum --- */

static lt_status forward_copy(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return be->cast(ctx, &x, &y);
}

static lt_status backward_copy(lt_node *node)
{
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return sum_into(node, &dy, &dx);
}

static lt_status forward_sum(lt_node *node)
{
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return sum_into(node, &x, &y);
}

static lt_status backward_sum(lt_node *node)
{
    return lt_node_grad_pass(node, 0);
}

static const lt_op copy_op = {
    .name = "exchange_copy",
    .config_bytes = sizeof(among),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_same,
    .forward = forward_copy,
    .backward = backward_copy,
};

static const lt_op sum_op = {
    .name = "exchange_sum",
    .config_bytes = sizeof(among),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_same,
    .forward = forward_sum,
    .backward = backward_sum,
};

lt_tensor *lt_exchange_copy(lt_tape *tape, lt_tensor *x, lt_exchange *group)
{
    return lt_op_run(tape, &copy_op, &x, 1, &(among){.group = group});
}

lt_tensor *lt_exchange_sum(lt_tape *tape, lt_tensor *x, lt_exchange *group)
{
    return lt_op_run(tape, &sum_op, &x, 1, &(among){.group = group});
}

/* --- gather, scatter-sum --- */

static lt_status infer_gather(const lt_node *node, lt_desc *out)
{
    const among *c = node->config;
    char text[LT_SHAPE_TEXT];
    LT_TRY(infer_same(node, out));
    const int64_t own = lt_exchange_part(c->rows, c->group->size, c->group->rank);
    if (out->shape.ndim < 1 || out->shape.dim[0] != own)
        return lt_fail(LT_E_SHAPE,
                       "exchange_gather: x %s, rank %d of %d must have %lld of the %lld rows",
                       lt_shape_text(out->shape, text), c->group->rank, c->group->size,
                       (long long)own, (long long)c->rows);
    out->shape.dim[0] = c->rows;
    return LT_OK;
}

static lt_status forward_gather(lt_node *node)
{
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return move_rows(node, LT_EXCHANGE_GATHER, &x, &y);
}

static lt_status backward_gather(lt_node *node)
{
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return move_rows(node, LT_EXCHANGE_SCATTER_SUM, &dy, &dx);
}

static lt_status infer_scatter(const lt_node *node, lt_desc *out)
{
    const among *c = node->config;
    char text[LT_SHAPE_TEXT];
    LT_TRY(infer_same(node, out));
    if (out->shape.ndim < 1 || out->shape.dim[0] < c->group->size)
        return lt_fail(LT_E_SHAPE, "exchange_scatter_sum: x %s has fewer rows than the %d ranks",
                       lt_shape_text(out->shape, text), c->group->size);
    out->shape.dim[0] = lt_exchange_part(out->shape.dim[0], c->group->size, c->group->rank);
    return LT_OK;
}

static lt_status forward_scatter(lt_node *node)
{
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return move_rows(node, LT_EXCHANGE_SCATTER_SUM, &x, &y);
}

static lt_status backward_scatter(lt_node *node)
{
    lt_view dy, dx;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return move_rows(node, LT_EXCHANGE_GATHER, &dy, &dx);
}

static const lt_op gather_op = {
    .name = "exchange_gather",
    .config_bytes = sizeof(among),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_gather,
    .forward = forward_gather,
    .backward = backward_gather,
};

static const lt_op scatter_op = {
    .name = "exchange_scatter_sum",
    .config_bytes = sizeof(among),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_scatter,
    .forward = forward_scatter,
    .backward = backward_scatter,
};

lt_tensor *lt_exchange_gather(lt_tape *tape, lt_tensor *x, lt_exchange *group, int64_t rows)
{
    return lt_op_run(tape, &gather_op, &x, 1, &(among){group, rows});
}

lt_tensor *lt_exchange_scatter_sum(lt_tape *tape, lt_tensor *x, lt_exchange *group)
{
    return lt_op_run(tape, &scatter_op, &x, 1, &(among){.group = group});
}
