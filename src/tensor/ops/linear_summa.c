/* y = x w^T + b with x, w and y in blocks on a grid of ranks: SUMMA, van de Geijn & Watts, 1997; rows are
 * also sharded over depth, as in Wang, Xu, Bian & You, "2.5-dimensional distributed model training", 2021.
 * Forward and both gradients send blocks of x and w; dy is never sent. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/detail/group_ops.h"

enum { X, W };

static int step_count(const lt_node *node)
{
    return ((const lt_summa_config *)node->config)->row->size;
}

static int64_t features_of_step(const lt_node *node, int t)
{
    const lt_summa_config *c = node->config;
    return lt_even_shard_size(c->in, c->row->size, t);
}

static lt_status check_grid(const lt_summa_config *c)
{
    const int q = c->row->size;
    if (c->column->size != q)
        return lt_fail(LT_E_ARG,
                       "linear_summa: a row of %d ranks and a column of %d, want a square grid", q,
                       c->column->size);
    if (c->in < q || c->out < q)
        return lt_fail(
            LT_E_SHAPE,
            "linear_summa: %lld inputs and %lld outputs, fewer than rows of the %d x %d grid",
            (long long)c->in, (long long)c->out, q, q);
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char x[LT_SHAPE_TEXT], w[LT_SHAPE_TEXT];
    const lt_summa_config *c = node->config;
    if (!node->in[W])
        return lt_fail(LT_E_ARG, "linear_summa: w is NULL");
    LT_TRY(check_grid(c));
    const int q = c->row->size, i = c->column->rank, j = c->row->rank;
    const lt_shape want = LT_SHAPE(lt_even_shard_size(c->out, q, j), features_of_step(node, i));
    const lt_shape in = node->in[X]->shape;
    if (in.ndim != 2 || in.dim[1] != features_of_step(node, j)
        || !lt_shape_equal(node->in[W]->shape, want))
        return lt_fail(LT_E_SHAPE,
                       "linear_summa: x %s and w %s at row %d, column %d of %d x %d ranks, want "
                       "[..,%lld] and [%lld,%lld]",
                       lt_shape_text(in, x), lt_shape_text(node->in[W]->shape, w), i, j, q, q,
                       (long long)features_of_step(node, j), (long long)want.dim[0],
                       (long long)want.dim[1]);
    const lt_dtype dtype = node->in[X]->dtype;
    if ((dtype != LT_F32 && dtype != LT_F64) || node->in[W]->dtype != dtype)
        return lt_fail(LT_E_UNSUPPORTED, "linear_summa: x is %s, w %s; want both f32 or both f64",
                       lt_dtype_name(dtype), lt_dtype_name(node->in[W]->dtype));
    *out = (lt_desc){
        .dtype = dtype, .shape = LT_SHAPE(in.dim[0], want.dim[0]), .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* --- Blocks in flight --- */

/* Blocks [rows, inputs of step t] of one operand; step t's is broadcast from rank t of the group. Two steps
 * are in flight at once. */
typedef struct panel {
    lt_process_group *group;
    lt_view own, work[2];
    void *request[2];
} panel;

static lt_view panel_block(const lt_node *node, const panel *p, int t)
{
    lt_view v = t == p->group->rank ? p->own : p->work[t % 2];
    v.shape = LT_SHAPE(p->own.shape.dim[0], features_of_step(node, t));
    v.stride[0] = v.shape.dim[1];
    v.stride[1] = 1;
    return v;
}

static lt_status open_panel(lt_node *node, panel *p, int input, lt_process_group *group)
{
    lt_view in;
    *p = (panel){.group = group};
    LT_TRY(lt_node_in(node, input, &in));
    LT_TRY(lt_op_as_contiguous(node, &in, &p->own));
    const lt_shape most = LT_SHAPE(in.shape.dim[0], features_of_step(node, 0));
    for (int i = 0; i < 2 && group->size > 1; i++)
        LT_TRY(lt_node_scratch(node, in.dtype, most, &p->work[i]));
    return LT_OK;
}

/* Begins a collective; without overlap also waits for it. */
static lt_status begin_collective(const lt_node *node, lt_process_group *group,
                                  const lt_collective_call *call, void **request)
{
    LT_TRY(group->begin(group, call, request));
    return ((const lt_summa_config *)node->config)->whole ? group->wait(group, request) : LT_OK;
}

static lt_status broadcast_block(const lt_node *node, panel *p, int t)
{
    if (t >= p->group->size)
        return LT_OK;
    const lt_collective_call call = {
        .what = LT_COLLECTIVE_BROADCAST, .root = t, .out = panel_block(node, p, t)};
    return begin_collective(node, p->group, &call, &p->request[t % 2]);
}

static lt_status wait_for_block(const lt_node *node, panel *p, int t, lt_view *block)
{
    *block = panel_block(node, p, t);
    return p->group->wait(p->group, &p->request[t % 2]);
}

/* Waits for the panel's requests, before its memory is freed. */
static lt_status wait_for_panel_requests(panel *p, lt_status st)
{
    return lt_op_wait_requests(p->group, p->request, 2, st);
}

/* Partial results [rows, inputs of step t], each reduced over the group to rank t's block, `own`. */
static lt_status open_partial_sums(lt_node *node, panel *s, const lt_view *out,
                                   lt_process_group *group)
{
    *s = (panel){.group = group, .own = *out};
    const lt_shape most = LT_SHAPE(out->shape.dim[0], features_of_step(node, 0));
    for (int i = 0; i < 2; i++)
        LT_TRY(lt_node_scratch(node, out->dtype, most, &s->work[i]));
    return LT_OK;
}

/* Returns the memory for the partial result of step t, once it is free again. */
static lt_status partial_sum_buffer(const lt_node *node, panel *s, int t, lt_view *out)
{
    *out = s->work[t % 2];
    out->shape.dim[1] = features_of_step(node, t);
    out->stride[0] = out->shape.dim[1];
    return s->group->wait(s->group, &s->request[t % 2]);
}

static lt_status reduce_partial_sum(const lt_node *node, panel *s, int t, const lt_view *in)
{
    lt_collective_call call = {.what = LT_COLLECTIVE_REDUCE, .root = t, .in = *in};
    if (s->group->rank == t)
        call.out = s->own;
    return begin_collective(node, s->group, &call, &s->request[t % 2]);
}

/* --- Products --- */

/* y (+)= x w^T: the first step overwrites y. */
static lt_status add_product(lt_node *node, int t, const lt_view *x, const lt_view *w,
                             const lt_view *more)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view y;
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(be->linear(ctx, x, w, NULL, t ? more : &y));
    if (!t)
        return LT_OK;
    const lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 1, .a = *more, .y = y};
    LT_TRY(LT_HAS_ENTRY(node, be, vec));
    return be->vec(ctx, &job, 1, NULL);
}

static lt_status multiply_panels(lt_node *node, panel *x, panel *w)
{
    lt_view y, more = {0}, xt, wt;
    LT_TRY(lt_node_out(node, &y));
    if (step_count(node) > 1)
        LT_TRY(lt_node_scratch(node, y.dtype, y.shape, &more));
    LT_TRY(broadcast_block(node, x, 0));
    LT_TRY(broadcast_block(node, w, 0));
    for (int t = 0; t < step_count(node); t++) {
        LT_TRY(wait_for_block(node, x, t, &xt));
        LT_TRY(wait_for_block(node, w, t, &wt));
        LT_TRY(broadcast_block(node, x, t + 1));
        LT_TRY(broadcast_block(node, w, t + 1));
        LT_TRY(add_product(node, t, &xt, &wt, &more));
    }
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    const lt_summa_config *c = node->config;
    panel x, w;
    LT_TRY(open_panel(node, &x, X, c->row));
    LT_TRY(open_panel(node, &w, W, c->column));
    return wait_for_panel_requests(&w, wait_for_panel_requests(&x, multiply_panels(node, &x, &w)));
}

/* Computes an input's gradient: broadcasts the blocks of the other input and reduces their products with dy. */
static lt_status accumulate_input_grad(lt_node *node, int input, panel *other, panel *s,
                                       const lt_view *dy)
{
    lt_view block, out;
    LT_TRY(broadcast_block(node, other, 0));
    for (int t = 0; t < step_count(node); t++) {
        LT_TRY(wait_for_block(node, other, t, &block));
        LT_TRY(broadcast_block(node, other, t + 1));
        LT_TRY(partial_sum_buffer(node, s, t, &out));
        LT_TRY(lt_op_matrix_product(node, lt_op_as_batch(dy, input == W),
                                    lt_op_as_batch(&block, false), &out));
        LT_TRY(reduce_partial_sum(node, s, t, &out));
    }
    return LT_OK;
}

static lt_status backward_input(lt_node *node, int input, const lt_view *dy, const lt_view *out)
{
    const lt_summa_config *c = node->config;
    panel other, s;
    LT_TRY(open_panel(node, &other, X + W - input, input == X ? c->column : c->row));
    LT_TRY(open_partial_sums(node, &s, out, input == X ? c->row : c->column));
    return wait_for_panel_requests(
        &s, wait_for_panel_requests(&other, accumulate_input_grad(node, input, &other, &s, dy)));
}

static lt_status backward(lt_node *node)
{
    const lt_summa_config *c = node->config;
    lt_view g, dy, dx, dw;
    LT_TRY(lt_node_grad(node, &g));
    LT_TRY(lt_op_as_contiguous(node, &g, &dy));
    if (lt_node_needs_grad(node, X)) {
        LT_TRY(lt_node_grad_out(node, X, &dx));
        LT_TRY(backward_input(node, X, &dy, &dx));
    }
    if (!lt_node_needs_grad(node, W))
        return LT_OK;
    LT_TRY(lt_node_grad_out(node, W, &dw));
    LT_TRY(backward_input(node, W, &dy, &dw));
    if (!c->depth) /* the ranks of depth had other rows of x */
        return LT_OK;
    return lt_collective_run(c->depth,
                             &(lt_collective_call){.what = LT_COLLECTIVE_ALLREDUCE, .out = dw});
}

static const lt_op summa_op = {
    .name = "linear_summa",
    .config_bytes = sizeof(lt_summa_config),
    .backward_ignores = LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_linear_summa(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                           lt_summa_config config)
{
    lt_tensor *y = lt_op_run(tape, &summa_op, (lt_tensor *[]){x, w}, 2, &config);
    if (!b)
        return y;
    b = lt_group_copy(tape, b, config.column);
    if (config.depth)
        b = lt_group_copy(tape, b, config.depth);
    return lt_add(tape, y, b);
}
