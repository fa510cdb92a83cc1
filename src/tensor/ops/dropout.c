/* Dropout with counter-based noise: backward draws the same numbers again, so nothing is saved. */

#include "base/rng.h"
#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/detail/sharded.h"
#include "lather/ops/math.h"

typedef struct dropout_config {
    double p;
    lt_noise_box box; /* columns 0: x is the whole activation */
    lt_random random;
} dropout_config;

static lt_status check_noise_box(const lt_noise_box *box, lt_shape x)
{
    char text[LT_SHAPE_TEXT];
    const int64_t width = x.ndim ? x.dim[x.ndim - 1] : 1;
    if (box->row_first < 0 || box->column_first < 0 || width > box->columns - box->column_first)
        return lt_fail(LT_E_SHAPE, "dropout: x %s at row %lld, column %lld exceeds %lld columns",
                       lt_shape_text(x, text), (long long)box->row_first,
                       (long long)box->column_first, (long long)box->columns);
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const dropout_config *c = node->config;
    if (!(c->p >= 0 && c->p < 1))
        return lt_fail(LT_E_ARG, "dropout: p %g is not in [0,1)", c->p);
    if (c->random.width)
        LT_TRY(check_noise_box(&c->box, node->in[0]->shape));
    *out = (lt_desc){.dtype = node->in[0]->dtype, .shape = node->in[0]->shape};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const dropout_config *c = node->config;
    lt_view x, y;
    if (node->tape->device->capturing)
        return lt_fail(LT_E_UNSUPPORTED,
                       "dropout: cannot be captured, replays would repeat its random numbers");
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return be->dropout(ctx, c->random, c->p, &x, &y);
}

static lt_status backward(lt_node *node)
{
    const dropout_config *c = node->config;
    lt_op_views v;
    LT_TRY(lt_op_grad_views(node, &v));
    return v.be->dropout(v.ctx, c->random, c->p, &v.in, &v.out);
}

const lt_op lt_op_dropout = {
    .name = "dropout",
    .config_bytes = sizeof(dropout_config),
    .backward_ignores = LT_IGNORES_IN(0) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_random lt_op_random_stream(const lt_tape *tape)
{
    const lt_pass *pass = &tape->pass;
    return (lt_random){.key = lt_rng_key(pass->seed, LT_STREAM_DROPOUT, (uint64_t)pass->attempt,
                                         (uint64_t)pass->micro),
                       .counter = (uint64_t)tape->ordinal};
}

lt_tensor *lt_dropout(lt_tape *tape, lt_tensor *x, double p)
{
    if (!tape->pass.dropout || p == 0) /* p == 0 changes nothing */
        return tape->status ? NULL : x;
    const dropout_config c = {.p = p, .random = lt_op_random_stream(tape)};
    return lt_op_run(tape, &lt_op_dropout, &x, 1, &c);
}

lt_tensor *lt_dropout_at(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box)
{
    if (!tape->pass.dropout || p == 0 || !x)
        return tape->status ? NULL : x;
    dropout_config c = {.p = p, .box = box, .random = lt_op_random_stream(tape)};
    c.random.first = box.row_first * box.columns + box.column_first;
    c.random.width = x->shape.ndim ? x->shape.dim[x->shape.ndim - 1] : 1;
    c.random.columns = box.columns;
    c.random.repeat = 1;
    return lt_op_run(tape, &lt_op_dropout, &x, 1, &c);
}
