/* Stochastic depth: zeroes whole samples. Huang et al., "Deep networks with stochastic depth", ECCV 2016.
 * One factor per sample, 0 or 1/(1-p), is drawn by the dropout kernel from ones, and saved; for a
 * row-sharded x one per row. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/detail/sharded.h"
#include "lather/ops/math.h"

typedef struct drop_path_config {
    double p;
    /* Random stream. Width 0: x's first dimension is samples; else `repeat` rows form a sample. */
    lt_random random;
} drop_path_config;

enum { FACTORS }; /* saved: [N,1,..,1], or for rows [..,1]; broadcast to x */

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const drop_path_config *c = node->config;
    const lt_shape x = node->in[0]->shape;
    if (!(c->p >= 0 && c->p < 1))
        return lt_fail(LT_E_ARG, "drop_path: p %g is not in [0,1)", c->p);
    if (x.ndim < 1)
        return lt_fail(LT_E_SHAPE, "drop_path: x has 0 dimensions, want at least 1: the samples");
    if (c->random.first < 0 || (c->random.width && c->random.repeat < 1))
        return lt_fail(
            LT_E_ARG,
            "drop_path: got first row %lld, want >= 0; got %lld rows per sample, want >= 1",
            (long long)c->random.first, (long long)c->random.repeat);
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = x};
    return LT_OK;
}

static lt_status draw_factors(lt_node *node, lt_view *factors)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const drop_path_config *c = node->config;
    lt_shape shape = node->out->shape;
    for (int d = c->random.width ? shape.ndim - 1 : 1; d < shape.ndim; d++)
        shape.dim[d] = 1;
    LT_TRY(lt_node_save(node, FACTORS, lt_device_master_dtype(lt_tape_device(node->tape)), shape,
                        factors));
    /* Strides of size-1 dimensions are arbitrary in the output. */
    lt_row_major_strides(shape, factors->stride);
    LT_TRY(be->fill(ctx, 1, factors));
    return be->dropout(ctx, c->random, c->p, factors, factors);
}

static lt_status multiply_by_factors(lt_node *node, const lt_view *factors, const lt_view *x,
                                     const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view wide;
    LT_ASSERT(lt_view_broadcast(factors, y->shape, &wide));
    return be->mul(ctx, x, &wide, y);
}

static lt_status forward(lt_node *node)
{
    lt_view x, y, factors;
    if (node->tape->device->capturing)
        return lt_fail(LT_E_UNSUPPORTED,
                       "drop_path: cannot be captured, replays would repeat its random numbers");
    LT_TRY(draw_factors(node, &factors));
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return multiply_by_factors(node, &factors, &x, &y);
}

static lt_status backward(lt_node *node)
{
    lt_view dy, dx, factors;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_saved(node, FACTORS, &factors));
    LT_TRY(lt_node_grad_out(node, 0, &dx));
    return multiply_by_factors(node, &factors, &dy, &dx);
}

const lt_op lt_op_drop_path = {
    .name = "drop_path",
    .config_bytes = sizeof(drop_path_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_drop_path(lt_tape *tape, lt_tensor *x, double p)
{
    if (!tape->pass.dropout || p == 0) /* p == 0 changes nothing */
        return tape->status ? NULL : x;
    const drop_path_config c = {.p = p, .random = lt_op_random_stream(tape)};
    return lt_op_run(tape, &lt_op_drop_path, &x, 1, &c);
}

lt_tensor *lt_drop_path_at(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box)
{
    if (!tape->pass.dropout || p == 0)
        return tape->status ? NULL : x;
    drop_path_config c = {.p = p, .random = lt_op_random_stream(tape)};
    c.random.first = box.row_first;
    c.random.width = c.random.columns = 1;
    c.random.repeat = box.sample_rows;
    return lt_op_run(tape, &lt_op_drop_path, &x, 1, &c);
}
