/* Batch normalisation with optional residual and relu. Ioffe & Szegedy, "Batch Normalization", ICML 2015,
 * algorithms 1 and 2.
 *
 * Forward: moments of the batch (merged over ranks if the tape has a reduction) -> per-channel scale and
 * shift -> one pass over x. Backward reads x and the coefficients, never y: without a residual relu's mask
 * follows from x, with one it is saved as a bit per element. */

#include "tensor/ops/fuse.h"
#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/norm.h"
#include "lather/ops/shape.h"

enum { STATS_ROWS = 3, COEF_ROWS = 4, ROUNDED_ROWS = 2 };

static int64_t channel_count(const lt_node *node)
{
    return node->in[LT_NORM_X]->shape.dim[1];
}

static lt_dtype master_dtype(const lt_node *node)
{
    return lt_device_master_dtype(lt_tape_device(node->tape));
}

static lt_status check_channel_vectors(const lt_node *node)
{
    static const char *const names[] = {"x", "gamma", "beta", "mean", "var"};
    char text[LT_SHAPE_TEXT];
    for (int i = LT_NORM_GAMMA; i <= LT_NORM_VAR; i++) {
        if (!node->in[i])
            return lt_fail(LT_E_ARG, "batchnorm2d: %s is NULL", names[i]);
        if (!lt_shape_equal(node->in[i]->shape, LT_SHAPE(channel_count(node))))
            return lt_fail(LT_E_SHAPE, "batchnorm2d: %s is %s, want [%lld]", names[i],
                           lt_shape_text(node->in[i]->shape, text), (long long)channel_count(node));
    }
    return LT_OK;
}

static lt_status check_batch_counter(const lt_node *node)
{
    const lt_tensor *batches = node->in[LT_NORM_BATCHES];
    char text[LT_SHAPE_TEXT];
    if (batches && (batches->dtype != LT_I64 || lt_shape_count(batches->shape) != 1))
        return lt_fail(LT_E_ARG, "batchnorm2d: batches %s %s, want i64 []",
                       lt_dtype_name(batches->dtype), lt_shape_text(batches->shape, text));
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_batchnorm2d_config *c = node->config;
    char x[LT_SHAPE_TEXT], r[LT_SHAPE_TEXT];
    lt_shape xs = node->in[LT_NORM_X]->shape;
    if (xs.ndim != 4)
        return lt_fail(LT_E_SHAPE, "batchnorm2d: x %s, want 4 dimensions", lt_shape_text(xs, x));
    LT_TRY(check_channel_vectors(node));
    LT_TRY(check_batch_counter(node));
    const lt_tensor *residual = node->in[LT_NORM_RESIDUAL];
    if (residual
        && (!lt_shape_equal(residual->shape, xs) || residual->dtype != node->in[LT_NORM_X]->dtype))
        return lt_fail(LT_E_SHAPE, "batchnorm2d: residual %s %s, x is %s %s",
                       lt_dtype_name(residual->dtype), lt_shape_text(residual->shape, r),
                       lt_dtype_name(node->in[LT_NORM_X]->dtype), lt_shape_text(xs, x));
    if (!(c->eps > 0) || !(c->momentum >= 0 && c->momentum <= 1))
        return lt_fail(LT_E_ARG, "batchnorm2d: eps %g, want > 0; momentum %g, want in [0,1]",
                       c->eps, c->momentum);
    if (lt_batchnorm2d_uses_batch_stats(node) && lt_shape_count(xs) == xs.dim[1])
        return lt_fail(LT_E_SHAPE,
                       "batchnorm2d: x %s has one value per channel, training needs more",
                       lt_shape_text(xs, x));
    *out = (lt_desc){
        .dtype = node->in[LT_NORM_X]->dtype, .shape = xs, .format = LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}

/* Computes the moments of the batch, or takes those of the preceding convolution; *sums: they are sums. */
static lt_status get_batch_stats(lt_node *node, const lt_view *x, lt_view *stats, bool *sums)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_node *conv = lt_fuse_find_producer(node, LT_FUSE_STATS);
    lt_tensor *computed = conv ? lt_conv2d_take_stats(conv, sums) : NULL;
    node->saved[LT_NORM_STATS] = computed;
    LT_TRY(lt_node_save(node, LT_NORM_STATS, master_dtype(node),
                        LT_SHAPE(STATS_ROWS, channel_count(node)), stats));
    return computed ? LT_OK : be->batchnorm_stats(ctx, x, stats);
}

/* Allocates scale and shift in x's dtype, for a following convolution. */
static lt_status alloc_rounded_scale_shift(lt_node *node, lt_view *rounded)
{
    const lt_dtype dtype = node->in[LT_NORM_X]->dtype;
    if (lt_dtype_size(dtype) != 2 || !lt_fuse_can_produce(node, LT_FUSE_APPLY))
        return LT_OK;
    return lt_node_save(node, LT_NORM_ROUNDED, dtype, LT_SHAPE(ROUNDED_ROWS, channel_count(node)),
                        rounded);
}

/* Computes the moments of the batch, for an update of the running statistics. */
static lt_status compute_merged_stats(lt_node *node, const lt_view *x, lt_view *stats, bool *sums)
{
    LT_TRY(get_batch_stats(node, x, stats, sums));
    LT_TRY(lt_node_norm_reduce(node, LT_NORM_REDUCE_MOMENTS, LT_NORM_STATS));
    lt_tensor_bump_version(node->in[LT_NORM_MEAN]);
    lt_tensor_bump_version(node->in[LT_NORM_VAR]);
    if (node->in[LT_NORM_BATCHES])
        lt_tensor_bump_version(node->in[LT_NORM_BATCHES]);
    return LT_OK;
}

/* Computes scale and shift and updates the running statistics. x: NULL in a pass without batch statistics. */
static lt_status compute_coefficients(lt_node *node, const lt_view *x, lt_view *coef)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view stats = {0}, gamma, beta, mean, var, batches = {0}, rounded = {0};
    bool sums = false;
    LT_TRY(lt_node_in(node, LT_NORM_GAMMA, &gamma));
    LT_TRY(lt_node_in(node, LT_NORM_BETA, &beta));
    LT_TRY(lt_node_in(node, LT_NORM_MEAN, &mean));
    LT_TRY(lt_node_in(node, LT_NORM_VAR, &var));
    LT_TRY(lt_node_save(node, LT_NORM_COEF, master_dtype(node),
                        LT_SHAPE(COEF_ROWS, channel_count(node)), coef));
    LT_TRY(alloc_rounded_scale_shift(node, &rounded));
    if (lt_batchnorm2d_uses_batch_stats(node))
        LT_TRY(compute_merged_stats(node, x, &stats, &sums));
    if (lt_batchnorm2d_uses_batch_stats(node) && node->in[LT_NORM_BATCHES])
        LT_TRY(lt_node_in(node, LT_NORM_BATCHES, &batches));
    const lt_batchnorm_parts parts = {.stats = &stats,
                                      .sums_of = sums ? x : NULL,
                                      .gamma = &gamma,
                                      .beta = &beta,
                                      .mean = &mean,
                                      .var = &var,
                                      .batches = &batches,
                                      .coef = coef,
                                      .rounded = &rounded};
    return be->batchnorm_finish(ctx, node->config, &parts);
}

static const lt_op recomputed_add;

/* A recomputed output needs the mask only when it is recomputed. */
static bool needs_relu_mask(const lt_node *node)
{
    const lt_batchnorm2d_config *c = node->config;
    return c->relu && node->in[LT_NORM_RESIDUAL] && lt_tape_pass(node->tape).record
           && (node->op != &recomputed_add || lt_node_is_replay(node));
}

/* Applies this batch norm and the deferred one that made its residual. */
static lt_status apply_two_norms(lt_node *node, lt_node *other, const lt_batchnorm_addend *own,
                                 const lt_view *y, const lt_view *mask)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_fuse_views v;
    lt_batchnorm_before before;
    LT_TRY(lt_batchnorm2d_get_views(other, &v, &before));
    const lt_batchnorm_addend term[] = {*own, {before.x, before.coef}};
    return be->batchnorm_add(ctx, node->config, term, y, mask);
}

static lt_status apply_norm(lt_node *node, const lt_batchnorm_addend *own, const lt_view *mask)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_node *other = lt_fuse_find_producer(node, LT_FUSE_ADD);
    lt_view y, residual = {0};
    if (node->in[LT_NORM_RESIDUAL] && !other)
        LT_TRY(lt_node_in(node, LT_NORM_RESIDUAL, &residual));
    LT_TRY(lt_node_out(node, &y));
    if (other)
        return apply_two_norms(node, other, own, &y, mask);
    return be->batchnorm_apply(ctx, node->config, own->x, own->coef,
                               residual.data ? &residual : NULL, &y, mask);
}

/* Returns true if a reader of the output (convolution, pooling, another batch norm) may apply this norm. */
static bool is_applied_by_reader(const lt_node *node)
{
    return lt_fuse_can_produce(node, LT_FUSE_APPLY) || lt_fuse_can_produce(node, LT_FUSE_POOL)
           || lt_fuse_can_produce(node, LT_FUSE_ADD);
}

/* Applies this norm as the preceding convolution's epilogue if the backend can; sets *done if it did. */
static lt_status apply_in_conv(lt_node *node, bool *done)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_batchnorm2d_config *c = node->config;
    lt_node *conv = lt_fuse_find_producer(node, LT_FUSE_AFFINE);
    lt_view x, w, y, coef, residual = {0};
    *done = false;
    if (!conv)
        return LT_OK;
    LT_TRY(compute_coefficients(node, NULL, &coef));
    LT_TRY(lt_conv2d_get_views(conv, &x, &w));
    if (node->in[LT_NORM_RESIDUAL])
        LT_TRY(lt_node_in(node, LT_NORM_RESIDUAL, &residual));
    LT_TRY(lt_node_out(node, &y));
    lt_conv_epilogue epilogue = {&coef, residual.data ? &residual : NULL, c->relu, false};
    LT_TRY(be->conv2d_affine(ctx, conv->config, &x, &w, &epilogue, &y));
    *done = epilogue.done;
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, coef, mask = {0};
    bool done;
    LT_TRY(LT_HAS_ENTRY(node, be, batchnorm_apply));
    LT_TRY(apply_in_conv(node, &done));
    if (done)
        return LT_OK;
    LT_TRY(lt_node_in(node, LT_NORM_X, &x));
    if (lt_node_is_replay(node))
        LT_TRY(lt_node_saved(node, LT_NORM_COEF, &coef));
    else
        LT_TRY(compute_coefficients(node, &x, &coef));
    if (!lt_node_is_replay(node) && is_applied_by_reader(node)) {
        lt_node_defer_output(node);
        return LT_OK;
    }
    if (needs_relu_mask(node))
        LT_TRY(lt_node_save(node, LT_NORM_MASK, LT_U8, LT_SHAPE((lt_shape_count(x.shape) + 7) / 8),
                            &mask));
    return apply_norm(node, &(lt_batchnorm_addend){&x, &coef}, mask.data ? &mask : NULL);
}

/* Writes a row of the sums to the gradient of a [C] parameter. */
static lt_status write_grad_row(lt_node *node, int input, const lt_view *sums, int64_t row)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    if (!lt_node_needs_grad(node, input))
        return LT_OK;
    lt_view d, from = *sums;
    LT_TRY(lt_node_grad_out(node, input, &d));
    from.shape = d.shape;
    from.stride[0] = 1;
    from.data =
        (char *)sums->data + (size_t)(row * channel_count(node)) * lt_dtype_size(sums->dtype);
    return be->cast(ctx, &from, &d);
}

static lt_status write_affine_grads(lt_node *node, const lt_view *sums)
{
    LT_TRY(write_grad_row(node, LT_NORM_BETA, sums, 0));
    return write_grad_row(node, LT_NORM_GAMMA, sums, 1);
}

static lt_status allocate_affine_grads(lt_node *node, lt_view out[2])
{
    static const int input[] = {LT_NORM_BETA, LT_NORM_GAMMA};
    for (int i = 0; i < 2; i++)
        if (lt_node_needs_grad(node, input[i]))
            LT_TRY(lt_node_grad_out(node, input[i], &out[i]));
    return LT_OK;
}

/* Computes the sums over the gradient, masked by relu. in: the output's gradient; with a residual it becomes
 * the masked gradient that was written for the residual. */
static lt_status compute_grad_sums(lt_node *node, lt_batchnorm_grad *in, lt_view *sums)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view g = {0};
    if (node->saved[LT_NORM_SUMS]) /* computed by the backward of the following convolution */
        return lt_node_saved(node, LT_NORM_SUMS, sums);
    LT_TRY(lt_batchnorm2d_alloc_grad_sums(node, sums));
    if (lt_node_needs_grad(node, LT_NORM_RESIDUAL))
        LT_TRY(
            lt_node_grad_out_in_place(node, LT_NORM_RESIDUAL, 0, &g)); /* dy[0] is not read again */
    LT_TRY(be->batchnorm_grad_stats(ctx, in, g.data ? &g : NULL, sums));
    if (g.data)
        *in = (lt_batchnorm_grad){.dy = {g}, .x = in->x, .coef = in->coef};
    return LT_OK;
}

/* Computes this norm's backward and that of the norm that made its residual. in: the output's gradient. */
static lt_status backward_two_norms(lt_node *node, lt_node *other, const lt_batchnorm_grad *in)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view sums, dx;
    lt_fused_grad_views v;
    lt_batchnorm_fused_grad norm[2] = {
        {in->x, in->coef, &sums, &dx, lt_batchnorm2d_values_per_channel(node), {{0}}}};
    LT_TRY(lt_batchnorm2d_alloc_grad_sums(node, &sums));
    LT_TRY(allocate_affine_grads(node, norm[0].affine));
    LT_TRY(lt_node_grad_out(node, LT_NORM_X, &dx));
    LT_TRY(lt_batchnorm2d_fused_grad_args(other, &v, &norm[1]));
    return be->batchnorm_add_grad(ctx, in, norm);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_batchnorm2d_config *c = node->config;
    lt_view x, coef, mask, sums, dx;
    lt_batchnorm_grad in = {.x = &x, .coef = &coef, .relu = c->relu};
    LT_TRY(lt_node_grad_pair(node, in.dy));
    LT_TRY(lt_node_in(node, LT_NORM_X, &x));
    LT_TRY(lt_node_saved(node, LT_NORM_COEF, &coef));
    if (node->op == &recomputed_add && c->relu
        && !node->saved[LT_NORM_MASK]) { /* nothing recomputed the output, and with it the mask */
        LT_TRY(lt_node_recompute(node));
        lt_handle_free(node->out);
    }
    if (node->saved[LT_NORM_MASK]) {
        LT_TRY(lt_node_saved(node, LT_NORM_MASK, &mask));
        in.mask = &mask;
    }
    lt_node *other = lt_fuse_find_producer(node, LT_FUSE_ADD_GRAD);
    if (other)
        return backward_two_norms(node, other, &in);
    LT_TRY(compute_grad_sums(node, &in, &sums));
    if (lt_batchnorm2d_has_local_sums(node))
        LT_TRY(allocate_affine_grads(node, in.affine));
    else
        LT_TRY(write_affine_grads(node, &sums));
    if (!lt_node_needs_grad(node, LT_NORM_X))
        return LT_OK;
    if (!c->frozen)
        LT_TRY(lt_node_norm_reduce(node, LT_NORM_REDUCE_MEAN, LT_NORM_SUMS));
    LT_TRY(lt_node_grad_out_in_place(node, LT_NORM_X, lt_node_needs_grad(node, LT_NORM_RESIDUAL),
                                     &dx));
    return be->batchnorm_grad_x(ctx, &in, &sums, lt_batchnorm2d_values_per_channel(node), &dx);
}

#define OPERATION(again, ignored)                                                     \
    {                                                                                 \
        .name = lt_name_batchnorm2d, .config_bytes = sizeof(lt_batchnorm2d_config),   \
        .recomputable = (again),                                                      \
        .backward_ignores = LT_IGNORES_IN(LT_NORM_BETA) | LT_IGNORES_OUT | (ignored), \
        .infer = infer_shape, .forward = forward, .backward = backward,               \
    }
const lt_op lt_op_batchnorm2d = OPERATION(true, 0);

/* With a residual the output is recomputed (recomputed_add) only if the backend does not fuse the two norms of
 * a sum, because recomputing would repeat the fused work. */
const lt_op lt_op_batchnorm2d_add = OPERATION(false, LT_IGNORES_IN(LT_NORM_RESIDUAL));
static const lt_op recomputed_add = OPERATION(true, LT_IGNORES_IN(LT_NORM_RESIDUAL));

/* Recomputing an output needs its residual first, which may have to be recomputed itself: all of such a
 * chain is in memory at once. So every fifth output is kept. */
static const lt_op *choose_op(const lt_tape *tape, const lt_tensor *residual)
{
    enum { MOST_IN_CHAIN = 4 };
    if (!residual)
        return &lt_op_batchnorm2d;
    int chain = 1;
    for (const lt_node *n = residual->producer; n && n->op == &recomputed_add;
         n = n->in[LT_NORM_RESIDUAL]->producer)
        chain++;
    const bool again = tape->pass.recompute && !tape->device->backend->batchnorm_add;
    return again && chain <= MOST_IN_CHAIN ? &recomputed_add : &lt_op_batchnorm2d_add;
}

lt_tensor *lt_batchnorm2d(lt_tape *tape, lt_tensor *x, lt_batchnorm2d_args args,
                          lt_batchnorm2d_config config)
{
    x = lt_op_to_channels_last(tape, x);
    args.residual = lt_op_to_channels_last(tape, args.residual);
    lt_tensor *in[] = {x, args.gamma, args.beta, args.mean, args.var, args.residual, args.batches};
    return lt_op_run(tape, choose_op(tape, args.residual), in, 7, &config);
}

/* Views [N,C] and [N,C,L] as images one pixel wide. */
static lt_tensor *as_image(lt_tape *tape, lt_tensor *x)
{
    return x ? lt_reshape(tape, x, LT_SHAPE(x->shape.dim[0], x->shape.dim[1], -1, 1)) : NULL;
}

lt_tensor *lt_batchnorm1d(lt_tape *tape, lt_tensor *x, lt_batchnorm2d_args args,
                          lt_batchnorm2d_config config)
{
    char text[LT_SHAPE_TEXT], residual[LT_SHAPE_TEXT];
    const lt_shape shape = x ? x->shape : LT_SCALAR;
    if (x && shape.ndim != 2 && shape.ndim != 3)
        return lt_tape_fail(tape, lt_fail(LT_E_SHAPE, "batchnorm1d: x %s, want [N,C] or [N,C,L]",
                                          lt_shape_text(shape, text)));
    if (x && args.residual && !lt_shape_equal(args.residual->shape, shape))
        return lt_tape_fail(tape, lt_fail(LT_E_SHAPE, "batchnorm1d: residual %s, x is %s",
                                          lt_shape_text(args.residual->shape, residual),
                                          lt_shape_text(shape, text)));
    args.residual = as_image(tape, args.residual);
    return lt_reshape(tape, lt_batchnorm2d(tape, as_image(tape, x), args, config), shape);
}
