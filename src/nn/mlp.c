/* The two or three linear layers of a transformer block. Hendrycks & Gimpel, "Gaussian error linear units",
 * 2016; Shazeer, "GLU variants improve transformer", 2020. */

#include "nn/mlp.h"

#include "nn/layer.h"
#include "nn/linear.h"

#include "lather/ext/op.h"
#include "lather/ops.h"
#include "lather/transformer.h"

typedef struct mlp {
    lt_module base;
    lt_mlp_kind kind;
    double dropout;
    int width, hidden;
    const lt_tensor_parallel *parallel;
    lt_module *up, *gate, *down; /* owned; gate is NULL except for LT_MLP_SWIGLU */
} mlp;

/* Runs gate and up on the same rows; in one dimension of ranks these are exchanged once for both. */
static lt_tensor *run_gate_and_up(mlp *m, lt_tape *tape, lt_tensor *x, int64_t rows)
{
    const lt_tensor_parallel *p = m->parallel;
    const bool once = p && !p->column;
    lt_tensor *all = x;
    const int64_t before = lt_tape_op_counter(tape);
    if (once)
        all = p->sequence ? lt_group_allgather(tape, x, p->row, rows)
                          : lt_group_copy(tape, x, p->row);
    lt_tape_set_op_counter(tape, before);
    lt_tensor *up = once ? lt_linear_forward_local(m->up, tape, all)
                         : lt_linear_forward_rows(m->up, tape, x, rows);
    lt_tensor *gate = once ? lt_linear_forward_local(m->gate, tape, all)
                           : lt_linear_forward_rows(m->gate, tape, x, rows);
    if (once)
        lt_tape_drop(tape, all);
    lt_tensor *y = lt_swiglu(tape, gate, up);
    lt_tape_drop(tape, up);
    lt_tape_drop(tape, gate);
    return y;
}

static lt_tensor *run_up_and_activate(mlp *m, lt_tape *tape, lt_tensor *x, int64_t rows)
{
    if (m->kind == LT_MLP_SWIGLU)
        return run_gate_and_up(m, tape, x, rows);
    lt_tensor *up = lt_linear_forward_rows(m->up, tape, x, rows);
    lt_tensor *y = lt_gelu(tape, up, m->kind == LT_MLP_GELU ? LT_GELU_ERF : LT_GELU_TANH);
    lt_tape_drop(tape, up);
    return y;
}

static lt_tensor *drop_out(const mlp *m, lt_tape *tape, lt_tensor *x, lt_parallel_noise where)
{
    lt_tensor *y = lt_parallel_dropout(tape, x, m->dropout, where);
    if (y != x)
        lt_tape_drop(tape, x);
    return y;
}

lt_tensor *lt_mlp_forward_rows(lt_module *self, lt_tape *tape, lt_tensor *x, lt_token_rows rows)
{
    mlp *m = (mlp *)self;
    const int64_t all = rows.sequences * rows.tokens;
    lt_tensor *h = run_up_and_activate(m, tape, x, all);
    h = drop_out(m, tape, h, (lt_parallel_noise){m->parallel, rows, m->hidden, true});
    lt_tensor *y = lt_linear_forward_rows(m->down, tape, h, all);
    lt_tape_drop(tape, h);
    return drop_out(m, tape, y, (lt_parallel_noise){m->parallel, rows, m->width, false});
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_mlp_forward_rows(self, tape, x, (lt_token_rows){0});
}

static lt_status params(lt_module *self, lt_params *list)
{
    mlp *m = (mlp *)self;
    LT_TRY(lt_module_params(m->up, list));
    if (m->gate)
        LT_TRY(lt_module_params(m->gate, list));
    return lt_module_params(m->down, list);
}

static void destroy(lt_module *self)
{
    mlp *m = (mlp *)self;
    lt_module_free(&m->up);
    lt_module_free(&m->gate);
    lt_module_free(&m->down);
}

static const lt_module_ops ops = {
    .kind = "mlp",
    .bytes = sizeof(mlp),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

static lt_status make_linear(lt_module **out, lt_device *device, const char *name, const char *leaf,
                             lt_linear_layer config)
{
    char path[LT_LAYER_NAME];
    LT_TRY(lt_layer_join_path(path, name, leaf));
    return lt_layer_linear_as(out, device, path, config);
}

static lt_status make_linears(mlp *m, lt_device *device, const char *name, const lt_mlp_layer *c)
{
    const lt_linear_layer up = {.in = c->width,
                                .features = c->hidden,
                                .bias = c->bias,
                                .in_out = c->in_out,
                                .parallel = c->parallel,
                                .division = LT_COLUMN_PARALLEL};
    const lt_linear_layer down = {.in = c->hidden,
                                  .features = c->width,
                                  .bias = c->bias,
                                  .in_out = c->in_out,
                                  .parallel = c->parallel,
                                  .division = LT_ROW_PARALLEL};
    LT_TRY(make_linear(&m->up, device, name, c->up ? c->up : "up", up));
    if (c->kind == LT_MLP_SWIGLU)
        LT_TRY(make_linear(&m->gate, device, name, c->gate ? c->gate : "gate", up));
    return make_linear(&m->down, device, name, c->down ? c->down : "down", down);
}

lt_status lt_layer_mlp(lt_module **out, lt_device *device, const char *name, lt_mlp_layer config)
{
    if (!(config.dropout >= 0 && config.dropout < 1))
        return lt_fail(LT_E_ARG, "mlp %s: dropout is %g, want a number in [0,1)", name,
                       config.dropout);
    lt_module *module = NULL;
    LT_TRY(lt_module_new(&module, &ops));
    mlp *m = (mlp *)module;
    m->kind = config.kind;
    m->dropout = config.dropout;
    m->width = config.width;
    m->hidden = config.hidden;
    m->parallel = config.parallel;
    lt_status st = make_linears(m, device, name, &config);
    return lt_layer_finish_construction(out, module, st);
}
