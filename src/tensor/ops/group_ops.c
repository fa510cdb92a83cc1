/* Collectives on the tape, in conjugate pairs: copy and sum (all-reduce), gather and scatter-sum
 * (reduce-scatter). */

#include "lather/detail/group_ops.h"

#include "base/alloc.h"
#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

lt_status lt_collective_run(lt_process_group *self, const lt_collective_call *call)
{
    void *request = NULL;
    LT_TRY(self->begin(self, call, &request));
    return self->wait(self, &request);
}

lt_status lt_op_wait_requests(lt_process_group *group, void **request, int count, lt_status st)
{
    for (int i = 0; i < count; i++) {
        lt_status ended = group->wait(group, &request[i]);
        st = st ? st : ended;
    }
    return st;
}

typedef struct config {
    lt_process_group *group;
    int64_t rows; /* rows of all ranks, for gather */
} config;

static lt_process_group *get_group(const lt_node *node)
{
    return ((const config *)node->config)->group;
}

/* Returns input and output in forward, or the output's gradient and the input's in backward. */
static lt_status get_in_out_views(lt_node *node, bool backward, lt_view *from, lt_view *to)
{
    LT_TRY(backward ? lt_node_grad(node, from) : lt_node_in(node, 0, from));
    return backward ? lt_node_grad_out(node, 0, to) : lt_node_out(node, to);
}

static lt_status all_reduce(lt_node *node, bool backward)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view from, to;
    LT_TRY(get_in_out_views(node, backward, &from, &to));
    LT_TRY(be->cast(ctx, &from, &to));
    return lt_collective_run(get_group(node),
                             &(lt_collective_call){.what = LT_COLLECTIVE_ALLREDUCE, .out = to});
}

/* Gathers rows of all ranks, or reduce-scatters to this rank's. */
static lt_status gather_or_scatter_rows(lt_node *node, bool backward, lt_collective_kind what)
{
    lt_process_group *group = get_group(node);
    lt_collective_call call = {.what = what};
    lt_view from;
    LT_TRY(get_in_out_views(node, backward, &from, &call.out));
    LT_TRY(lt_op_as_contiguous(node, &from, &call.in));
    int64_t *count = NULL;
    LT_TRY(LT_ALLOC(&count, group->size));
    const lt_shape whole = what == LT_COLLECTIVE_ALLGATHER ? call.out.shape : from.shape;
    const int64_t row = lt_shape_count(whole) / whole.dim[0];
    for (int i = 0; i < group->size; i++)
        count[i] = row * lt_even_shard_size(whole.dim[0], group->size, i);
    call.count = count;
    lt_status st = lt_collective_run(group, &call);
    lt_free(count);
    return st;
}

static lt_status infer_same_shape(const lt_node *node, lt_desc *out)
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
    LT_TRY(get_in_out_views(node, false, &x, &y));
    return be->cast(ctx, &x, &y);
}

static lt_status backward_copy(lt_node *node)
{
    return all_reduce(node, true);
}

static lt_status forward_allreduce(lt_node *node)
{
    return all_reduce(node, false);
}

static lt_status backward_allreduce(lt_node *node)
{
    return lt_node_pass_grad_through(node, 0);
}

#define TABLE(kind, rule)                                      \
    static const lt_op kind##_op = {                           \
        .name = "group_" #kind,                                \
        .config_bytes = sizeof(config),                        \
        .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT, \
        .infer = (rule),                                       \
        .forward = forward_##kind,                             \
        .backward = backward_##kind,                           \
    }
TABLE(copy, infer_same_shape);
TABLE(allreduce, infer_same_shape);

lt_tensor *lt_group_copy(lt_tape *tape, lt_tensor *x, lt_process_group *group)
{
    return lt_op_run(tape, &copy_op, &x, 1, &(config){.group = group});
}

lt_tensor *lt_group_allreduce(lt_tape *tape, lt_tensor *x, lt_process_group *group)
{
    return lt_op_run(tape, &allreduce_op, &x, 1, &(config){.group = group});
}

/* --- gather, scatter-sum --- */

static lt_status infer_allgather(const lt_node *node, lt_desc *out)
{
    const config *c = node->config;
    char text[LT_SHAPE_TEXT];
    LT_TRY(infer_same_shape(node, out));
    const int64_t own = lt_even_shard_size(c->rows, c->group->size, c->group->rank);
    if (out->shape.ndim < 1 || out->shape.dim[0] != own)
        return lt_fail(LT_E_SHAPE,
                       "group_allgather: x %s, rank %d of %d must have %lld of the %lld rows",
                       lt_shape_text(out->shape, text), c->group->rank, c->group->size,
                       (long long)own, (long long)c->rows);
    out->shape.dim[0] = c->rows;
    return LT_OK;
}

static lt_status forward_allgather(lt_node *node)
{
    return gather_or_scatter_rows(node, false, LT_COLLECTIVE_ALLGATHER);
}

static lt_status backward_allgather(lt_node *node)
{
    return gather_or_scatter_rows(node, true, LT_COLLECTIVE_REDUCESCATTER);
}

static lt_status infer_reducescatter(const lt_node *node, lt_desc *out)
{
    const config *c = node->config;
    char text[LT_SHAPE_TEXT];
    LT_TRY(infer_same_shape(node, out));
    if (out->shape.ndim < 1 || out->shape.dim[0] < c->group->size)
        return lt_fail(LT_E_SHAPE, "group_reducescatter: x %s has fewer rows than the %d ranks",
                       lt_shape_text(out->shape, text), c->group->size);
    out->shape.dim[0] = lt_even_shard_size(out->shape.dim[0], c->group->size, c->group->rank);
    return LT_OK;
}

static lt_status forward_reducescatter(lt_node *node)
{
    return gather_or_scatter_rows(node, false, LT_COLLECTIVE_REDUCESCATTER);
}

static lt_status backward_reducescatter(lt_node *node)
{
    return gather_or_scatter_rows(node, true, LT_COLLECTIVE_ALLGATHER);
}

TABLE(allgather, infer_allgather);
TABLE(reducescatter, infer_reducescatter);

lt_tensor *lt_group_allgather(lt_tape *tape, lt_tensor *x, lt_process_group *group, int64_t rows)
{
    return lt_op_run(tape, &allgather_op, &x, 1, &(config){group, rows});
}

lt_tensor *lt_group_reducescatter(lt_tape *tape, lt_tensor *x, lt_process_group *group)
{
    return lt_op_run(tape, &reducescatter_op, &x, 1, &(config){.group = group});
}
