/* Layer and RMS normalisation over the last dimension. Ba, Kiros & Hinton, "Layer Normalization", 2016;
 * Zhang & Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019.
 *
 * Kernels take rows, [N,C]: views of the tensors, so that no reshape node is needed and the output can be
 * dropped and recomputed. Backward reads x and two numbers per row, never y. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/detail/norm_layer.h"
#include "lather/ops/shape.h"

enum { X, GAMMA, BETA }; /* inputs */
enum { STATS };          /* saved: mean and 1/sqrt(var+eps) of each row */

static int64_t row_width(const lt_node *node)
{
    const lt_shape x = node->in[X]->shape;
    return x.dim[x.ndim - 1];
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    static const char *const names[] = {"x", "gamma", "beta"};
    const lt_layernorm_config *c = node->config;
    const lt_shape x = node->in[X]->shape;
    char text[LT_SHAPE_TEXT];
    if (x.ndim < 1 || row_width(node) < 1)
        return lt_fail(LT_E_SHAPE, "%s: x %s, want a last dimension of at least 1", node->op->name,
                       lt_shape_text(x, text));
    if (!(c->eps > 0))
        return lt_fail(LT_E_ARG, "%s: eps %g, want > 0", node->op->name, c->eps);
    for (int i = GAMMA; i <= BETA; i++)
        if (node->in[i] && !lt_shape_equal(node->in[i]->shape, LT_SHAPE(row_width(node))))
            return lt_fail(LT_E_SHAPE, "%s: %s is %s, want [%lld]", node->op->name, names[i],
                           lt_shape_text(node->in[i]->shape, text), (long long)row_width(node));
    *out = (lt_desc){.dtype = node->in[X]->dtype, .shape = x, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Views a contiguous tensor as [N,C]. */
static lt_view as_rows(const lt_node *node, const lt_view *v)
{
    lt_view rows = *v;
    rows.shape = LT_SHAPE(lt_shape_count(v->shape) / row_width(node), row_width(node));
    lt_row_major_strides(rows.shape, rows.stride);
    return rows;
}

/* Sets *view to NULL for an absent input. */
static lt_status get_optional_input(lt_node *node, int input, lt_view *memory, const lt_view **view)
{
    *view = node->in[input] ? memory : NULL;
    return *view ? lt_node_in(node, input, memory) : LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y, stats, affine[2];
    const lt_view *gamma, *beta;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(get_optional_input(node, GAMMA, &affine[0], &gamma));
    LT_TRY(get_optional_input(node, BETA, &affine[1], &beta));
    x = as_rows(node, &x);
    LT_TRY(lt_node_save(node, STATS, lt_device_master_dtype(lt_tape_device(node->tape)),
                        LT_SHAPE(2, x.shape.dim[0]), &stats));
    LT_TRY(lt_node_out(node, &y));
    y = as_rows(node, &y);
    return be->layernorm(ctx, node->config, &x, gamma, beta, &stats, &y);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view grad, dy, x, gamma, stats, out[BETA + 1];
    lt_layernorm_grad g = {.dy = &dy, .x = &x, .stats = &stats};
    const lt_view **const wanted[] = {&g.dx, &g.dgamma, &g.dbeta};
    LT_TRY(lt_node_grad(node, &grad));
    LT_TRY(lt_op_as_contiguous(node, &grad, &dy));
    dy = as_rows(node, &dy);
    LT_TRY(lt_node_in(node, X, &x));
    x = as_rows(node, &x);
    LT_TRY(get_optional_input(node, GAMMA, &gamma, &g.gamma));
    LT_TRY(lt_node_saved(node, STATS, &stats));
    for (int i = X; i <= BETA; i++)
        if (lt_node_needs_grad(node, i)) {
            LT_TRY(lt_node_grad_out(node, i, &out[i]));
            if (i == X)
                out[X] = as_rows(node, &out[X]);
            *wanted[i] = &out[i];
        }
    return be->layernorm_grad(ctx, node->config, &g);
}

#define TABLE(function)                                           \
    const lt_op lt_op_##function = {                              \
        .name = #function,                                        \
        .config_bytes = sizeof(lt_layernorm_config),              \
        .recomputable = true,                                     \
        .backward_ignores = LT_IGNORES_IN(BETA) | LT_IGNORES_OUT, \
        .infer = infer_shape,                                     \
        .forward = forward,                                       \
        .backward = backward,                                     \
    }
TABLE(layernorm);
TABLE(rmsnorm);

static lt_tensor *run_layernorm(lt_tape *tape, const lt_op *op, lt_tensor *const in[BETA + 1],
                                lt_layernorm_config config)
{
    config.eps = config.eps == 0 ? 1e-5 : config.eps;
    lt_tensor *x = in[X] ? lt_to_format(tape, in[X], LT_FORMAT_CONTIGUOUS) : NULL;
    return lt_op_run(tape, op, (lt_tensor *[]){x, in[GAMMA], in[BETA]}, BETA + 1, &config);
}

lt_tensor *lt_layernorm(lt_tape *tape, lt_tensor *x, lt_tensor *gamma, lt_tensor *beta,
                        lt_layernorm_config config)
{
    config.rms = false;
    return run_layernorm(tape, &lt_op_layernorm, (lt_tensor *[]){x, gamma, beta}, config);
}

lt_tensor *lt_rmsnorm(lt_tape *tape, lt_tensor *x, lt_tensor *gamma, lt_layernorm_config config)
{
    config.rms = true;
    return run_layernorm(tape, &lt_op_rmsnorm, (lt_tensor *[]){x, gamma, NULL}, config);
}
