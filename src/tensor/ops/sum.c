/* Sum and mean over some dimensions. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/math.h"

typedef struct sum_config {
    unsigned dims;
    bool keep, mean;
} sum_config;

static bool is_summed(const lt_node *node, int dim)
{
    const sum_config *c = node->config;
    return !c->dims || (c->dims >> dim & 1);
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const sum_config *c = node->config;
    lt_shape x = node->in[0]->shape, y = {0};
    if (c->dims >> x.ndim)
        return lt_fail(LT_E_ARG, "sum: dimensions 0x%x, but x has only %d", c->dims, x.ndim);
    for (int d = 0; d < x.ndim; d++) {
        if (!is_summed(node, d))
            y.dim[y.ndim++] = x.dim[d];
        else if (c->keep)
            y.dim[y.ndim++] = 1;
    }
    lt_dtype master = lt_device_master_dtype(node->tape->device);
    *out = (lt_desc){.dtype = y.ndim ? node->in[0]->dtype : master, .shape = y};
    return LT_OK;
}

static double mean_factor(const lt_node *node)
{
    const sum_config *c = node->config;
    if (!c->mean)
        return 1;
    return (double)lt_shape_count(node->out->shape) / (double)lt_shape_count(node->in[0]->shape);
}

/* Views `small`, which lacks the summed dimensions, with sizes of 1 in their place. */
static lt_view view_keeping_dims(const lt_node *node, const lt_view *small)
{
    const sum_config *c = node->config;
    lt_view v = *small;
    lt_shape x = node->in[0]->shape;
    int from = 0;
    v.shape = x;
    for (int d = 0; d < x.ndim; d++) {
        bool summed = is_summed(node, d);
        v.shape.dim[d] = summed ? 1 : x.dim[d];
        v.stride[d] = summed ? 0 : small->stride[from];
        from += !summed || c->keep;
    }
    return v;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    lt_view full = view_keeping_dims(node, &y);
    return be->sum(ctx, mean_factor(node), &x, &full);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, dx, wide;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    lt_view full = view_keeping_dims(node, &dy);
    LT_ASSERT(lt_view_broadcast(&full, dx.shape, &wide));
    return be->scale(ctx, mean_factor(node), &wide, &dx);
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
    sum_config c = {.dims = config.dims, .keep = config.keep};
    return lt_op_run(tape, &lt_op_sum, &x, 1, &c);
}

lt_tensor *lt_mean(lt_tape *tape, lt_tensor *x, lt_reduce_config config)
{
    sum_config c = {.dims = config.dims, .keep = config.keep, .mean = true};
    return lt_op_run(tape, &lt_op_sum, &x, 1, &c);
}
