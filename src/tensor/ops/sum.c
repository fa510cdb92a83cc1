/* Sum and mean over some dimensions. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/math.h"

typedef struct sum_config {
    lt_reduce_config reduce;
    bool mean;
} sum_config;

static bool is_reduced(lt_reduce_config c, int dim)
{
    return !c.dims || (c.dims >> dim & 1);
}

lt_status lt_op_infer_reduction(const lt_node *node, lt_reduce_config c, lt_desc *out)
{
    lt_shape x = node->in[0]->shape, y = {0};
    if (c.dims >> x.ndim)
        return lt_fail(LT_E_ARG, "%s: dimensions 0x%x, but x has only %d", node->op->name, c.dims,
                       x.ndim);
    for (int d = 0; d < x.ndim; d++) {
        if (!is_reduced(c, d))
            y.dim[y.ndim++] = x.dim[d];
        else if (c.keep)
            y.dim[y.ndim++] = 1;
    }
    lt_dtype master = lt_device_master_dtype(node->tape->device);
    *out = (lt_desc){.dtype = y.ndim ? node->in[0]->dtype : master, .shape = y};
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const sum_config *c = node->config;
    return lt_op_infer_reduction(node, c->reduce, out);
}

static double mean_factor(const lt_node *node)
{
    const sum_config *c = node->config;
    if (!c->mean)
        return 1;
    return (double)lt_shape_count(node->out->shape) / (double)lt_shape_count(node->in[0]->shape);
}

lt_view lt_op_keep_dims(const lt_node *node, lt_reduce_config c, const lt_view *small)
{
    lt_view v = *small;
    lt_shape x = node->in[0]->shape;
    int from = 0;
    v.shape = x;
    for (int d = 0; d < x.ndim; d++) {
        const bool reduced = is_reduced(c, d);
        v.shape.dim[d] = reduced ? 1 : x.dim[d];
        v.stride[d] = reduced ? 0 : small->stride[from];
        from += !reduced || c.keep;
    }
    return v;
}

static lt_status forward(lt_node *node)
{
    lt_op_views v;
    LT_TRY(lt_op_forward_views(node, &v));
    const sum_config *c = node->config;
    const lt_view full = lt_op_keep_dims(node, c->reduce, &v.out);
    return v.be->sum(v.ctx, mean_factor(node), &v.in, &full);
}

static lt_status backward(lt_node *node)
{
    lt_view wide;
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    const sum_config *c = node->config;
    const lt_view full = lt_op_keep_dims(node, c->reduce, &v.in);
    LT_ASSERT(lt_view_broadcast(&full, v.out.shape, &wide));
    return v.be->scale(v.ctx, mean_factor(node), &wide, &v.out);
}

const lt_op lt_op_sum = {
    .name = "sum",
    .config_bytes = sizeof(sum_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_sum(lt_tape *tape, lt_tensor *x, lt_reduce_config config)
{
    sum_config c = {.reduce = config};
    return lt_op_run(tape, &lt_op_sum, &x, 1, &c);
}

lt_tensor *lt_mean(lt_tape *tape, lt_tensor *x, lt_reduce_config config)
{
    sum_config c = {.reduce = config, .mean = true};
    return lt_op_run(tape, &lt_op_sum, &x, 1, &c);
}
