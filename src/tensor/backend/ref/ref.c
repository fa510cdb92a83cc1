/* The reference backend: its table, its memory, and the choice between the builds of a kernel.
 * It is the specification that the other backends are tested against. */

#include "ref.h"

#include <string.h>

enum { ALIGNMENT = 64 };

static lt_status open_device(void **ctx, int ordinal, const lt_device_config *config)
{
    (void)config;
    if (ordinal != 0)
        return lt_fail(LT_E_ARG, "ref: device %d, there is only device 0", ordinal);
    *ctx = NULL;
    return LT_OK;
}

static void close_device(void *ctx)
{
    (void)ctx;
}

static lt_status alloc_memory(void *ctx, size_t bytes, void **out)
{
    (void)ctx;
    void *memory = lt_alloc_aligned(ALIGNMENT, bytes);
    if (!memory)
        return LT_E_NOMEM;
    *out = memory;
    return LT_OK;
}

static void free_memory(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    lt_free(data);
}

static lt_status copy_memory(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind)
{
    (void)ctx;
    (void)kind;
    memmove(dst, src, bytes);
    return LT_OK;
}

static lt_status sync_device(void *ctx)
{
    (void)ctx;
    return LT_OK;
}

/* None is slower than the others. */
static bool has_fast(void *ctx, lt_dtype dtype)
{
    (void)ctx;
    return dtype == LT_F32 || dtype == LT_F64 || dtype == LT_BF16 || dtype == LT_F16;
}

static int threads(void *ctx)
{
    (void)ctx;
    return 1;
}

/* Calls the build of entry that computes in the precision of view's dtype. */
#define PICK(view, entry, ...)                                   \
    ((view)->dtype == LT_F64 ? lt_ref_##entry##_f64(__VA_ARGS__) \
                             : lt_ref_##entry##_f32(__VA_ARGS__))

static lt_status add(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return PICK(y, add, ctx, a, b, y);
}

static lt_status mul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return PICK(y, mul, ctx, a, b, y);
}

static lt_status scale(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    return PICK(y, scale, ctx, factor, x, y);
}

static lt_status relu(void *ctx, const lt_view *x, const lt_view *y)
{
    return PICK(y, relu, ctx, x, y);
}

static lt_status relu_grad(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    return PICK(dx, relu_grad, ctx, dy, y, dx);
}

static lt_status dropout(void *ctx, lt_random random, double p, const lt_view *x, const lt_view *y)
{
    return PICK(y, dropout, ctx, random, p, x, y);
}

static lt_status normalize(void *ctx, const lt_normalize_config *config, const lt_view *x,
                           const lt_view *y)
{
    return PICK(y, normalize, ctx, config, x, y);
}

static lt_status pointwise(void *ctx, const lt_pointwise *f, const lt_view *a, const lt_view *b,
                           const lt_view *y)
{
    return PICK(y, pointwise, ctx, f, a, b, y);
}

static lt_status pointwise_grad(void *ctx, const lt_pointwise *f, int input, const lt_view *dy,
                                const lt_view *a, const lt_view *b, const lt_view *d)
{
    return PICK(d, pointwise_grad, ctx, f, input, dy, a, b, d);
}

static lt_status sum(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    return PICK(x, sum, ctx, factor, x, y);
}

static lt_status matmul(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return PICK(y, matmul, ctx, a, b, y);
}

static lt_status linear(void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
                        const lt_view *y)
{
    return PICK(y, linear, ctx, x, w, bias, y);
}

static lt_status conv2d(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                        const lt_view *w, const lt_view *b, const lt_view *y)
{
    return PICK(y, conv2d, ctx, config, x, w, b, y);
}

static lt_status conv2d_grad_x(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *w, const lt_view *dx)
{
    return PICK(dx, conv2d_grad_x, ctx, config, dy, w, dx);
}

static lt_status conv2d_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *x, const lt_view *dw)
{
    return PICK(dw, conv2d_grad_w, ctx, config, dy, x, dw);
}

static lt_status batchnorm_stats(void *ctx, const lt_view *x, const lt_view *stats)
{
    return PICK(x, batchnorm_stats, ctx, x, stats);
}

static lt_status batchnorm_apply(void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
                                 const lt_view *coef, const lt_view *residual, const lt_view *y,
                                 const lt_view *mask)
{
    return PICK(y, batchnorm_apply, ctx, config, x, coef, residual, y, mask);
}

static lt_status batchnorm_grad_stats(void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
                                      const lt_view *sums)
{
    return PICK(in->x, batchnorm_grad_stats, ctx, in, g, sums);
}

static lt_status batchnorm_grad_x(void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
                                  double count, const lt_view *dx)
{
    return PICK(dx, batchnorm_grad_x, ctx, in, sums, count, dx);
}

static lt_status group_norm(void *ctx, const lt_group_norm_config *config, const lt_view *x,
                            const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                            const lt_view *y)
{
    return PICK(y, group_norm, ctx, config, x, gamma, beta, stats, y);
}

static lt_status group_norm_grad(void *ctx, const lt_group_norm_config *config,
                                 const lt_group_norm_grad *g)
{
    return PICK(g->x, group_norm_grad, ctx, config, g);
}

static lt_status maxpool2d(void *ctx, const lt_pool2d_config *config, const lt_view *x,
                           const lt_view *y, const lt_view *index)
{
    return PICK(y, maxpool2d, ctx, config, x, y, index);
}

static lt_status maxpool2d_grad(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                                const lt_view *index, const lt_view *dx)
{
    return PICK(dx, maxpool2d_grad, ctx, config, dy, index, dx);
}

static lt_status avgpool2d(void *ctx, const lt_pool2d_config *config, const lt_view *x,
                           const lt_view *y)
{
    return PICK(y, avgpool2d, ctx, config, x, y);
}

static lt_status avgpool2d_grad(void *ctx, const lt_pool2d_config *config, const lt_view *dy,
                                const lt_view *dx)
{
    return PICK(dx, avgpool2d_grad, ctx, config, dy, dx);
}

static const lt_backend backend = {
    .name = "ref",
    .open = open_device,
    .close = close_device,
    .alloc = alloc_memory,
    .free = free_memory,
    .copy = copy_memory,
    .sync = sync_device,
    .has_fast = has_fast,
    .threads = threads,
    .host_memory = true,
    .fill = lt_ref_fill,
    .cast = lt_ref_cast,
    .add = add,
    .mul = mul,
    .scale = scale,
    .relu = relu,
    .relu_grad = relu_grad,
    .dropout = dropout,
    .normalize = normalize,
    .pointwise = pointwise,
    .pointwise_grad = pointwise_grad,
    .sum = sum,
    .count_up = lt_ref_count_up,
    .matmul = matmul,
    .linear = linear,
    .conv2d = conv2d,
    .conv2d_grad_x = conv2d_grad_x,
    .conv2d_grad_w = conv2d_grad_w,
    .batchnorm_stats = batchnorm_stats,
    .batchnorm_finish = lt_ref_batchnorm_finish,
    .batchnorm_apply = batchnorm_apply,
    .batchnorm_grad_stats = batchnorm_grad_stats,
    .batchnorm_grad_x = batchnorm_grad_x,
    .group_norm = group_norm,
    .group_norm_grad = group_norm_grad,
    .maxpool2d = maxpool2d,
    .maxpool2d_grad = maxpool2d_grad,
    .avgpool2d = avgpool2d,
    .avgpool2d_grad = avgpool2d_grad,
    .softmax_xent = lt_ref_softmax_xent,
    .softmax_xent_grad = lt_ref_softmax_xent_grad,
    .topk_hits = lt_ref_topk_hits,
    .grad_norm = lt_ref_grad_norm,
    .loss_scale = lt_ref_loss_scale,
    .sgd = lt_ref_sgd,
    .adagrad = lt_ref_adagrad,
    .adam = lt_ref_adam,
    .lerp = lt_ref_lerp,
    .vec = lt_ref_vec,
    .gram = lt_ref_gram,
    .mode_product = lt_ref_mode_product,
    .eigh = lt_ref_eigh,
    .rational = lt_ref_rational,
    .qr = lt_ref_qr,
    .rotations = lt_ref_rotations,
    .frobenius = lt_ref_frobenius,
};

const lt_backend *lt_backend_ref(void)
{
    return &backend;
}
