/* Layer norm of rows whose features are sharded: Ba, Kiros & Hinton, "Layer Normalization", 2016, equation
 * 4. With g = dy gamma, n = (x - mu) / s and means over all features:
 *
 *     dx = (g - mean(g) - n mean(g n)) / s
 *
 * RMS norm (Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019) has no mean: neither mu nor
 * mean(g). */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/detail/sharded.h"

enum { X, GAMMA, BETA };   /* inputs */
enum { NORMAL, VARIANCE }; /* saved: n like x; s^2 [M,1] */

static const double default_eps = 1e-5;

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char x[LT_SHAPE_TEXT], gamma[LT_SHAPE_TEXT];
    const lt_sharded_norm_config *c = node->config;
    const lt_shape shape = node->in[X]->shape;
    const lt_dtype dtype = node->in[X]->dtype;
    const bool has = node->in[GAMMA] && !node->in[BETA] == c->rms;
    if (!has || shape.ndim != 2
        || shape.dim[1] != lt_even_shard_size(c->features, c->row->size, c->row->rank)
        || !lt_shape_equal(node->in[GAMMA]->shape, LT_SHAPE(shape.dim[1]))
        || (node->in[BETA] && !lt_shape_equal(node->in[BETA]->shape, LT_SHAPE(shape.dim[1]))))
        return lt_fail(
            LT_E_SHAPE,
            "layernorm_sharded: x %s and gamma %s on rank %d of %d, %lld features in all; "
            "want [M,C], [C] and a beta [C], or with rms no beta",
            lt_shape_text(shape, x), has ? lt_shape_text(node->in[GAMMA]->shape, gamma) : "NULL",
            c->row->rank, c->row->size, (long long)c->features);
    if ((dtype != LT_F32 && dtype != LT_F64) || node->in[GAMMA]->dtype != dtype
        || (node->in[BETA] && node->in[BETA]->dtype != dtype))
        return lt_fail(LT_E_UNSUPPORTED, "layernorm_sharded: x is %s, want all f32 or all f64",
                       lt_dtype_name(dtype));
    if (!(c->eps >= 0))
        return lt_fail(LT_E_ARG, "layernorm_sharded: eps %g, want >= 0", c->eps);
    *out = (lt_desc){.dtype = dtype, .shape = shape, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Broadcasts a vector of rows, or of features, to x's shape. */
static lt_view broadcast_vector(const lt_view *v, lt_shape shape, bool by_row)
{
    lt_view wide = *v;
    wide.stride[0] = by_row ? v->stride[0] : 0;
    wide.stride[1] = by_row ? 0 : v->stride[0];
    wide.shape = shape;
    return wide;
}

static lt_status run_vec_job(lt_node *node, lt_vec_job job)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    LT_TRY(LT_HAS_ENTRY(node, be, vec));
    return be->vec(ctx, &job, 1, NULL);
}

/* y = x n, or n^2 if x is NULL. */
static lt_status multiply_views(lt_node *node, const lt_view *x, const lt_view *n, const lt_view *y)
{
    return run_vec_job(node, (lt_vec_job){.op = x ? LT_VEC_MUL : LT_VEC_SQUARE,
                                          .alpha = 1,
                                          .a = x ? *x : *n,
                                          .b = x ? *n : (lt_view){0},
                                          .y = *y});
}

/* y += alpha a. */
static lt_status add_scaled(lt_node *node, double alpha, lt_view a, const lt_view *y)
{
    return run_vec_job(
        node, (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = alpha, .beta = 1, .a = a, .y = *y});
}

/* Computes this rank's contribution to each row's mean. */
static lt_status local_mean_contribution(lt_node *node, const lt_view *x, const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_sharded_norm_config *c = node->config;
    return be->sum(ctx, 1.0 / (double)c->features, x, y);
}

static lt_status sum_over_ranks(const lt_node *node, const lt_view *x)
{
    const lt_sharded_norm_config *c = node->config;
    return lt_collective_run(c->row,
                             &(lt_collective_call){.what = LT_COLLECTIVE_ALLREDUCE, .out = *x});
}

/* Computes the normalised rows n = (x - mu) / s and the variances s^2. */
static lt_status normalize_rows(lt_node *node, const lt_view *x, const lt_view *n,
                                const lt_view *variance)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_sharded_norm_config *c = node->config;
    lt_view mean, square;
    LT_TRY(lt_node_scratch(node, x->dtype, variance->shape, &mean));
    LT_TRY(lt_node_scratch(node, x->dtype, x->shape, &square));
    LT_TRY(be->cast(ctx, x, n));
    if (!c->rms) {
        LT_TRY(local_mean_contribution(node, x, &mean));
        LT_TRY(sum_over_ranks(node, &mean));
        LT_TRY(add_scaled(node, -1, broadcast_vector(&mean, x->shape, true), n));
    }
    LT_TRY(multiply_views(node, NULL, n, &square));
    LT_TRY(local_mean_contribution(node, &square, &mean));
    LT_TRY(sum_over_ranks(node, &mean));
    LT_TRY(be->fill(ctx, c->eps > 0 ? c->eps : default_eps, variance));
    LT_TRY(add_scaled(node, 1, mean, variance));
    return run_vec_job(node, (lt_vec_job){.op = LT_VEC_RSQRT,
                                          .alpha = 1,
                                          .beta = 1,
                                          .a = *n,
                                          .b = broadcast_vector(variance, x->shape, true),
                                          .y = *n});
}

static lt_status forward(lt_node *node)
{
    lt_view x, gamma, beta, y, n, variance;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_in(node, GAMMA, &gamma));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(lt_node_save(node, NORMAL, x.dtype, x.shape, &n));
    LT_TRY(lt_node_save(node, VARIANCE, x.dtype, LT_SHAPE(x.shape.dim[0], 1), &variance));
    LT_TRY(normalize_rows(node, &x, &n, &variance));
    gamma = broadcast_vector(&gamma, x.shape, false);
    LT_TRY(multiply_views(node, &gamma, &n, &y));
    if (!node->in[BETA])
        return LT_OK;
    LT_TRY(lt_node_in(node, BETA, &beta));
    return add_scaled(node, 1, broadcast_vector(&beta, x.shape, false), &y);
}

/* Computes both means of each row with one message; RMS norm ignores the first. */
static lt_status compute_grad_means(lt_node *node, const lt_view *g, const lt_view *n,
                                    lt_view mean[2])
{
    lt_view both, product;
    const lt_shape shape = g->shape;
    LT_TRY(lt_node_scratch(node, g->dtype, LT_SHAPE(2, shape.dim[0]), &both));
    LT_TRY(lt_node_scratch(node, g->dtype, shape, &product));
    LT_TRY(multiply_views(node, g, n, &product));
    for (int i = 0; i < 2; i++) {
        mean[i] = both;
        mean[i].shape = LT_SHAPE(shape.dim[0], 1);
        mean[i].stride[0] = mean[i].stride[1] = 1;
        mean[i].data = (char *)both.data + i * shape.dim[0] * (int64_t)lt_dtype_size(g->dtype);
        LT_TRY(local_mean_contribution(node, i ? &product : g, &mean[i]));
    }
    return sum_over_ranks(node, &both);
}

static lt_status backward_x(lt_node *node, const lt_view *dy, const lt_view *n)
{
    lt_view dx, gamma, variance, g, product, mean[2];
    LT_TRY(lt_node_grad_out(node, X, &dx));
    LT_TRY(lt_node_in(node, GAMMA, &gamma));
    LT_TRY(lt_node_saved(node, VARIANCE, &variance));
    LT_TRY(lt_node_scratch(node, dx.dtype, dx.shape, &g));
    LT_TRY(lt_node_scratch(node, dx.dtype, dx.shape, &product));
    gamma = broadcast_vector(&gamma, dx.shape, false);
    LT_TRY(multiply_views(node, dy, &gamma, &g));
    LT_TRY(compute_grad_means(node, &g, n, mean));
    const lt_view wide = broadcast_vector(&mean[1], dx.shape, true);
    LT_TRY(multiply_views(node, n, &wide, &product));
    if (!((const lt_sharded_norm_config *)node->config)->rms)
        LT_TRY(add_scaled(node, -1, broadcast_vector(&mean[0], dx.shape, true), &g));
    LT_TRY(add_scaled(node, -1, product, &g));
    return run_vec_job(node, (lt_vec_job){.op = LT_VEC_RSQRT,
                                          .alpha = 1,
                                          .beta = 1,
                                          .a = g,
                                          .b = broadcast_vector(&variance, dx.shape, true),
                                          .y = dx});
}

static lt_status backward(lt_node *node)
{
    lt_view dy, n, product;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_saved(node, NORMAL, &n));
    if (lt_node_needs_grad(node, X))
        LT_TRY(backward_x(node, &dy, &n));
    if (lt_node_needs_grad(node, GAMMA)) {
        LT_TRY(lt_node_scratch(node, dy.dtype, dy.shape, &product));
        LT_TRY(multiply_views(node, &dy, &n, &product));
        LT_TRY(lt_op_unbroadcast(node, GAMMA, &product));
    }
    return lt_node_needs_grad(node, BETA) ? lt_op_unbroadcast(node, BETA, &dy) : LT_OK;
}

static const lt_op norm_op = {
    .name = "layernorm_sharded",
    .config_bytes = sizeof(lt_sharded_norm_config),
    .backward_ignores = LT_IGNORES_IN(X) | LT_IGNORES_IN(BETA) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

/* Sums the gradient of a parameter that ranks of column and depth share. */
static lt_tensor *sum_param_grad_over_ranks(lt_tape *tape, lt_tensor *p,
                                            const lt_sharded_norm_config *c)
{
    if (p && c->column)
        p = lt_group_copy(tape, p, c->column);
    return p && c->depth ? lt_group_copy(tape, p, c->depth) : p;
}

lt_tensor *lt_layernorm_sharded(lt_tape *tape, lt_tensor *x, lt_tensor *gamma, lt_tensor *beta,
                                lt_sharded_norm_config config)
{
    lt_tensor *in[] = {x, sum_param_grad_over_ranks(tape, gamma, &config),
                       beta ? sum_param_grad_over_ranks(tape, beta, &config) : NULL};
    return lt_op_run(tape, &norm_op, in, 3, &config);
}
