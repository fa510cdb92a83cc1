/* Column- and row-parallel linear layers with row-sharded activations between them: Korthikanti et al.,
 * "Reducing activation recomputation in large transformer models", 2022, figure 5. The rows of each rank are
 * a block. All blocks are in flight at once: received blocks are multiplied one by one, this rank's first,
 * and results are sent as soon as they are computed. The order does not affect the bits. */

#include "lather/detail/linear_parallel.h"

#include "base/alloc.h"
#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/math.h"

enum { X, W, B };
enum { ROWS }; /* saved by gathering layers: the input rows of all ranks, for dw */

typedef struct options {
    lt_sequence_parallel_config to;
    bool gathers; /* all-gathers the input's rows; false: reduce-scatters the output's */
} options;

static lt_process_group *get_group(const options *c)
{
    return c->to.group;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char x[LT_SHAPE_TEXT], w[LT_SHAPE_TEXT];
    const options *c = node->config;
    if (!node->in[W])
        return lt_fail(LT_E_ARG, "%s: w is NULL", node->op->name);
    const lt_shape in = node->in[X]->shape;
    lt_shape weight = node->in[W]->shape;
    if (c->to.in_out && weight.ndim == 2)
        weight = LT_SHAPE(weight.dim[1], weight.dim[0]);
    const int64_t own = lt_even_shard_size(c->to.rows, get_group(c)->size, get_group(c)->rank);
    const int64_t want = c->gathers ? own : c->to.rows;
    if (in.ndim != 2 || in.dim[0] != want || weight.ndim != 2 || weight.dim[1] != in.dim[1] || !own)
        return lt_fail(LT_E_SHAPE,
                       "%s: x %s and w %s on rank %d of %d, want [%lld,C] and %s, %lld rows in all",
                       node->op->name, lt_shape_text(in, x), lt_shape_text(node->in[W]->shape, w),
                       get_group(c)->rank, get_group(c)->size, (long long)want,
                       c->to.in_out ? "[C,K]" : "[K,C]", (long long)c->to.rows);
    if (node->in[B] && !lt_shape_equal(node->in[B]->shape, LT_SHAPE(weight.dim[0])))
        return lt_fail(LT_E_SHAPE, "%s: b %s, want [%lld]", node->op->name,
                       lt_shape_text(node->in[B]->shape, x), (long long)weight.dim[0]);
    *out = (lt_desc){.dtype = node->in[X]->dtype,
                     .shape = LT_SHAPE(c->gathers ? c->to.rows : own, weight.dim[0]),
                     .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* --- Blocks of rows --- */

/* Returns rank's rows of a matrix with all rows. */
static lt_view rank_rows(const options *c, const lt_view *whole, int rank)
{
    lt_view v = *whole;
    const int64_t first = lt_even_shard_offset(c->to.rows, get_group(c)->size, rank);
    v.shape.dim[0] = lt_even_shard_size(c->to.rows, get_group(c)->size, rank);
    v.data = (char *)v.data + first * v.stride[0] * (int64_t)lt_dtype_size(v.dtype);
    return v;
}

/* y = a w^T + bias or, for a gradient, y = a w; computed block by block of rows. */
typedef struct product {
    lt_view a, w, bias, y; /* a and y have all rows */
    bool of_gradient;
} product;

static lt_status multiply_block(lt_node *node, const product *p, int rank)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_view a = rank_rows(node->config, &p->a, rank),
                  y = rank_rows(node->config, &p->y, rank);
    if (!p->of_gradient)
        return be->linear(ctx, &a, &p->w, p->bias.data ? &p->bias : NULL, &y);
    return lt_op_matrix_product(node, lt_op_as_batch(&a, false), lt_op_as_batch(&p->w, false), &y);
}

/* Gathers p->a, of which `own` has this rank's rows, and multiplies each block when it arrives. */
static lt_status gather_and_multiply(lt_node *node, const product *p, const lt_view *own,
                                     void **request)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const options *c = node->config;
    const lt_view rows = rank_rows(c, &p->a, get_group(c)->rank);
    LT_TRY(be->cast(ctx, own, &rows));
    for (int r = 0; r < get_group(c)->size; r++) {
        const lt_collective_call call = {
            .what = LT_COLLECTIVE_BROADCAST, .root = r, .out = rank_rows(c, &p->a, r)};
        LT_TRY(get_group(c)->begin(get_group(c), &call, &request[r]));
    }
    if (c->to.whole)
        LT_TRY(lt_op_wait_requests(get_group(c), request, get_group(c)->size, LT_OK));
    LT_TRY(multiply_block(node, p, get_group(c)->rank));
    for (int r = 0; r < get_group(c)->size; r++) {
        LT_TRY(get_group(c)->wait(get_group(c), &request[r]));
        if (r != get_group(c)->rank)
            LT_TRY(multiply_block(node, p, r));
    }
    return LT_OK;
}

/* Multiplies block by block and starts to reduce each to its rank; `own` becomes this rank's sum when all
 * requests are done. */
static lt_status multiply_and_reduce(lt_node *node, const product *p, const lt_view *own,
                                     void **request)
{
    const options *c = node->config;
    for (int r = 0; r < get_group(c)->size && c->to.whole; r++)
        LT_TRY(multiply_block(node, p, r));
    for (int r = 0; r < get_group(c)->size; r++) {
        lt_collective_call call = {
            .what = LT_COLLECTIVE_REDUCE, .root = r, .in = rank_rows(c, &p->y, r)};
        if (r == get_group(c)->rank)
            call.out = *own;
        if (!c->to.whole)
            LT_TRY(multiply_block(node, p, r));
        LT_TRY(get_group(c)->begin(get_group(c), &call, &request[r]));
    }
    return c->to.whole ? lt_op_wait_requests(get_group(c), request, get_group(c)->size, LT_OK)
                       : LT_OK;
}

/* dw = dy^T x, if needed; both with all rows. */
static lt_status backward_w(lt_node *node, const lt_view *dy, const lt_view *x)
{
    const options *c = node->config;
    lt_view dw;
    if (!lt_node_needs_grad(node, W))
        return LT_OK;
    LT_TRY(lt_node_grad_out(node, W, &dw));
    if (c->to.in_out)
        return lt_op_matrix_product(node, lt_op_as_batch(x, true), lt_op_as_batch(dy, false), &dw);
    return lt_op_matrix_product(node, lt_op_as_batch(dy, true), lt_op_as_batch(x, false), &dw);
}

static lt_status get_weight(lt_node *node, lt_view *w)
{
    const options *c = node->config;
    LT_TRY(lt_node_in(node, W, w));
    *w = lt_op_as_out_in(w, c->to.in_out);
    return LT_OK;
}

/* --- Gathered --- */

static lt_status forward_gathered(lt_node *node, void **request)
{
    product p = {0};
    lt_view in, x;
    const options *c = node->config;
    LT_TRY(lt_node_in(node, X, &in));
    LT_TRY(lt_op_as_contiguous(node, &in, &x));
    LT_TRY(get_weight(node, &p.w));
    if (node->in[B])
        LT_TRY(lt_node_in(node, B, &p.bias));
    LT_TRY(lt_node_out(node, &p.y));
    LT_TRY(lt_node_save(node, ROWS, x.dtype, LT_SHAPE(c->to.rows, x.shape.dim[1]), &p.a));
    return gather_and_multiply(node, &p, &x, request);
}

static lt_status backward_gathered(lt_node *node, const lt_view *dy, void **request)
{
    product p = {.a = *dy, .of_gradient = true};
    lt_view x, dx;
    LT_TRY(lt_node_saved(node, ROWS, &x));
    if (lt_node_needs_grad(node, X)) {
        LT_TRY(get_weight(node, &p.w));
        LT_TRY(lt_node_grad_out(node, X, &dx));
        LT_TRY(lt_node_scratch(node, dx.dtype, x.shape, &p.y));
        LT_TRY(multiply_and_reduce(node, &p, &dx, request));
    }
    LT_TRY(backward_w(node, dy, &x)); /* while the last blocks are sent */
    return lt_node_needs_grad(node, B) ? lt_op_unbroadcast(node, B, dy) : LT_OK;
}

/* --- Scattered --- */

static lt_status forward_scattered(lt_node *node, void **request)
{
    product p = {0};
    lt_view in, y;
    const options *c = node->config;
    LT_TRY(lt_node_in(node, X, &in));
    LT_TRY(lt_op_as_contiguous(node, &in, &p.a));
    LT_TRY(get_weight(node, &p.w));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(lt_node_scratch(node, y.dtype, LT_SHAPE(c->to.rows, y.shape.dim[1]), &p.y));
    return multiply_and_reduce(node, &p, &y, request);
}

static lt_status backward_scattered(lt_node *node, const lt_view *dy, void **request)
{
    product p = {.of_gradient = true};
    lt_view in, x;
    LT_TRY(lt_node_in(node, X, &in));
    LT_TRY(lt_op_as_contiguous(node, &in, &x));
    LT_TRY(get_weight(node, &p.w));
    LT_TRY(lt_node_scratch(node, dy->dtype, LT_SHAPE(x.shape.dim[0], dy->shape.dim[1]), &p.a));
    if (lt_node_needs_grad(node, X))
        LT_TRY(lt_node_grad_out(node, X, &p.y));
    else
        LT_TRY(lt_node_scratch(node, x.dtype, x.shape, &p.y));
    LT_TRY(gather_and_multiply(node, &p, dy, request));
    return backward_w(node, &p.a, &x);
}

static lt_status forward(lt_node *node)
{
    const options *c = node->config;
    void **request = NULL;
    LT_TRY(LT_ALLOC(&request, (size_t)get_group(c)->size));
    lt_status st = c->gathers ? forward_gathered(node, request) : forward_scattered(node, request);
    st = lt_op_wait_requests(get_group(c), request, get_group(c)->size, st);
    lt_free(request);
    return st;
}

static lt_status backward(lt_node *node)
{
    const options *c = node->config;
    lt_view g, dy;
    LT_TRY(lt_node_grad(node, &g));
    LT_TRY(lt_op_as_contiguous(node, &g, &dy));
    void **request = NULL;
    LT_TRY(LT_ALLOC(&request, (size_t)get_group(c)->size));
    lt_status st =
        c->gathers ? backward_gathered(node, &dy, request) : backward_scattered(node, &dy, request);
    st = lt_op_wait_requests(get_group(c), request, get_group(c)->size, st);
    lt_free(request);
    return st;
}

static const lt_op gathered_op = {
    .name = "linear_column_parallel",
    .config_bytes = sizeof(options),
    .backward_ignores = LT_IGNORES_IN(X) | LT_IGNORES_IN(B) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

static const lt_op scattered_op = {
    .name = "linear_row_parallel",
    .config_bytes = sizeof(options),
    .backward_ignores = LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_linear_column_parallel_as(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                        lt_sequence_parallel_config config)
{
    return lt_op_run(tape, &gathered_op, (lt_tensor *[]){x, w, b}, 3, &(options){config, true});
}

/* b is added to each rank's rows, so its gradient is summed over ranks. */
lt_tensor *lt_linear_row_parallel_as(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                     lt_sequence_parallel_config config)
{
    config.rows = x && x->shape.ndim ? x->shape.dim[0] : 0;
    lt_tensor *y =
        lt_op_run(tape, &scattered_op, (lt_tensor *[]){x, w}, 2, &(options){config, false});
    return b ? lt_add(tape, y, lt_group_copy(tape, b, config.group)) : y;
}

lt_tensor *lt_linear_column_parallel(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                     lt_process_group *group, int64_t rows)
{
    return lt_linear_column_parallel_as(
        tape, x, w, b, (lt_sequence_parallel_config){.group = group, .rows = rows});
}

lt_tensor *lt_linear_row_parallel(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                  lt_process_group *group)
{
    return lt_linear_row_parallel_as(tape, x, w, b, (lt_sequence_parallel_config){.group = group});
}
