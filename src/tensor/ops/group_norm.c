/* Group normalisation: Wu & He, "Group Normalization", ECCV 2018. Kernels take 4-D tensors; others are
 * reshaped to 4-D. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/norm.h"
#include "lather/ops/shape.h"

enum { X, GAMMA, BETA }; /* inputs */
enum { STATS };          /* saved: mean and 1/sqrt(var+eps) of each group */

static lt_status check_affine_vectors(const lt_node *node, int64_t channels)
{
    static const char *const names[] = {"x", "gamma", "beta"};
    char text[LT_SHAPE_TEXT];
    if (!node->in[GAMMA] != !node->in[BETA])
        return lt_fail(LT_E_ARG,
                       "group_norm: only one of gamma and beta is NULL, want both or neither");
    for (int i = GAMMA; i <= BETA && node->in[i]; i++)
        if (!lt_shape_equal(node->in[i]->shape, LT_SHAPE(channels)))
            return lt_fail(LT_E_SHAPE, "group_norm: %s is %s, want [%lld]", names[i],
                           lt_shape_text(node->in[i]->shape, text), (long long)channels);
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_group_norm_config *c = node->config;
    char text[LT_SHAPE_TEXT];
    const lt_shape x = node->in[X]->shape;
    if (x.ndim != 4)
        return lt_fail(LT_E_SHAPE, "group_norm: x %s, want at least [N,C]", lt_shape_text(x, text));
    if (c->groups < 1 || x.dim[1] % c->groups || !(c->eps > 0))
        return lt_fail(LT_E_ARG,
                       "group_norm: got %lld channels, %d groups, eps %g; want groups to divide "
                       "channels, and eps > 0",
                       (long long)x.dim[1], c->groups, c->eps);
    LT_TRY(check_affine_vectors(node, x.dim[1]));
    *out = (lt_desc){.dtype = node->in[X]->dtype, .shape = x, .format = LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_group_norm_config *c = node->config;
    lt_view x, gamma, beta, stats, y;
    const bool affine = node->in[GAMMA];
    LT_TRY(lt_node_in(node, X, &x));
    if (affine) {
        LT_TRY(lt_node_in(node, GAMMA, &gamma));
        LT_TRY(lt_node_in(node, BETA, &beta));
    }
    LT_TRY(lt_node_save(node, STATS, lt_device_master_dtype(lt_tape_device(node->tape)),
                        LT_SHAPE(2, x.shape.dim[0], c->groups), &stats));
    LT_TRY(lt_node_out(node, &y));
    return be->group_norm(ctx, c, &x, affine ? &gamma : NULL, affine ? &beta : NULL, &stats, &y);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, x, gamma, stats, out[BETA + 1];
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_saved(node, STATS, &stats));
    lt_group_norm_grad g = {.dy = &dy, .x = &x, .stats = &stats};
    if (node->in[GAMMA]) {
        LT_TRY(lt_node_in(node, GAMMA, &gamma));
        g.gamma = &gamma;
    }
    const lt_view **const wanted[] = {&g.dx, &g.dgamma, &g.dbeta};
    for (int i = X; i <= BETA; i++)
        if (lt_node_needs_grad(node, i)) {
            LT_TRY(lt_node_grad_out(node, i, &out[i]));
            *wanted[i] = &out[i];
        }
    return be->group_norm_grad(ctx, node->config, &g);
}

const lt_op lt_op_group_norm = {
    .name = "group_norm",
    .config_bytes = sizeof(lt_group_norm_config),
    .backward_ignores = LT_IGNORES_IN(BETA) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_group_norm(lt_tape *tape, lt_tensor *x, lt_tensor *gamma, lt_tensor *beta,
                         lt_group_norm_config config)
{
    const lt_shape shape = x ? x->shape : LT_SCALAR;
    const bool flat = shape.ndim >= 2 && shape.ndim != 4;
    if (flat)
        x = lt_reshape(tape, x, LT_SHAPE(shape.dim[0], shape.dim[1], -1, 1));
    x = lt_op_to_channels_last(tape, x);
    lt_tensor *y = lt_op_run(tape, &lt_op_group_norm, (lt_tensor *[]){x, gamma, beta}, 3, &config);
    return flat ? lt_reshape(tape, y, shape) : y;
}
