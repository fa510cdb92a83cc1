/* Entries that a backend lacks: each fails and says which it is. */

#include "tensor/backend/missing.h"

#include "lather/ext/fail.h"

/* All parameters are unused, by nature. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define MISSING(entry, ...)                                                                \
    static lt_status entry(__VA_ARGS__)                                                    \
    {                                                                                      \
        return lt_fail(LT_E_UNSUPPORTED, "%s: this backend has no kernel for it", #entry); \
    }                                                                                      \
    _Static_assert(1, "a semicolon follows")

MISSING(fill, void *ctx, double value, const lt_view *y);
MISSING(cast, void *ctx, const lt_view *x, const lt_view *y);
MISSING(add, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
MISSING(mul, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
MISSING(scale, void *ctx, double factor, const lt_view *x, const lt_view *y);
MISSING(relu, void *ctx, const lt_view *x, const lt_view *y);
MISSING(relu_grad, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
MISSING(dropout, void *ctx, lt_random random, double p, const lt_view *x, const lt_view *y);
MISSING(normalize, void *ctx, const lt_normalize_config *config, const lt_view *x,
        const lt_view *y);
MISSING(pointwise, void *ctx, const lt_pointwise *f, const lt_view *a, const lt_view *b,
        const lt_view *y);
MISSING(pointwise_grad, void *ctx, const lt_pointwise *f, int input, const lt_view *dy,
        const lt_view *a, const lt_view *b, const lt_view *d);
MISSING(sum, void *ctx, double factor, const lt_view *x, const lt_view *y);
MISSING(count_up, void *ctx, const lt_view *x);
MISSING(matmul, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
MISSING(linear, void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
        const lt_view *y);
MISSING(conv2d, void *ctx, const lt_conv2d_config *config, const lt_view *x, const lt_view *w,
        const lt_view *b, const lt_view *y);
MISSING(conv2d_grad_x, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
        const lt_view *w, const lt_view *dx);
MISSING(conv2d_grad_w, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
        const lt_view *x, const lt_view *dw);
MISSING(batchnorm_stats, void *ctx, const lt_view *x, const lt_view *stats);
MISSING(batchnorm_finish, void *ctx, const lt_batchnorm2d_config *config, const lt_view *stats,
        const lt_view *gamma, const lt_view *beta, const lt_view *mean, const lt_view *var,
        const lt_view *coef);
MISSING(batchnorm_apply, void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
        const lt_view *coef, const lt_view *residual, const lt_view *y, const lt_view *mask);
MISSING(batchnorm_grad_stats, void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
        const lt_view *sums);
MISSING(batchnorm_grad_x, void *ctx, const lt_batchnorm_grad *in, const lt_view *sums, double count,
        const lt_view *dx);
MISSING(group_norm, void *ctx, const lt_group_norm_config *config, const lt_view *x,
        const lt_view *gamma, const lt_view *beta, const lt_view *stats, const lt_view *y);
MISSING(group_norm_grad, void *ctx, const lt_group_norm_config *config,
        const lt_group_norm_grad *g);
MISSING(maxpool2d, void *ctx, const lt_pool2d_config *config, const lt_view *x, const lt_view *y,
        const lt_view *index);
MISSING(maxpool2d_grad, void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
        const lt_view *index, const lt_view *dx);
MISSING(avgpool2d, void *ctx, const lt_pool2d_config *config, const lt_view *from,
        const lt_view *to);
MISSING(avgpool2d_grad, void *ctx, const lt_pool2d_config *config, const lt_view *from,
        const lt_view *to);
MISSING(softmax_xent, void *ctx, double smoothing, const lt_view *logits, const lt_view *labels,
        const lt_view *lse, const lt_view *loss);
MISSING(softmax_xent_grad, void *ctx, double smoothing, const lt_view *dloss, const lt_view *logits,
        const lt_view *labels, const lt_view *lse, const lt_view *dx);
MISSING(topk_hits, void *ctx, const lt_view *logits, const lt_view *labels, const lt_view *hits);
MISSING(grad_norm, void *ctx, const lt_optim_item *item, size_t count, lt_scalars *scalars);
MISSING(loss_scale, void *ctx, const lt_loss_scaling *config, lt_scalars *scalars);
MISSING(sgd, void *ctx, const lt_sgd_kernel *config, const lt_optim_item *item, const bool *first,
        size_t count, const lt_scalars *scalars);
MISSING(adagrad, void *ctx, double eps, const lt_optim_item *item, size_t count,
        const lt_scalars *scalars);
MISSING(adam, void *ctx, const lt_adam_kernel *config, const lt_optim_item *item, size_t count,
        const lt_scalars *scalars);
MISSING(lerp, void *ctx, double weight, const lt_optim_item *item, size_t count,
        const lt_scalars *scalars);
MISSING(vec, void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars);
MISSING(gram, void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars);
MISSING(mode_product, void *ctx, const lt_mode_product_job *job, size_t count,
        const lt_scalars *scalars);
MISSING(eigh, void *ctx, lt_eigh_job *job, size_t count);
MISSING(rational, void *ctx, lt_rational_job *job, size_t count);
MISSING(qr, void *ctx, const lt_qr_job *job, size_t count);
MISSING(rotations, void *ctx, const lt_rotations_job *job, size_t count);
MISSING(frobenius, void *ctx, const lt_view *x, size_t count, const lt_view *out);

void lt_backend_fill_missing(lt_backend *be)
{
#define FILL(entry) be->entry = be->entry ? be->entry : entry
    FILL(fill);
    FILL(cast);
    FILL(add);
    FILL(mul);
    FILL(scale);
    FILL(relu);
    FILL(relu_grad);
    FILL(dropout);
    FILL(normalize);
    FILL(pointwise);
    FILL(pointwise_grad);
    FILL(sum);
    FILL(count_up);
    FILL(matmul);
    FILL(linear);
    FILL(conv2d);
    FILL(conv2d_grad_x);
    FILL(conv2d_grad_w);
    FILL(batchnorm_stats);
    FILL(batchnorm_finish);
    FILL(batchnorm_apply);
    FILL(batchnorm_grad_stats);
    FILL(batchnorm_grad_x);
    FILL(group_norm);
    FILL(group_norm_grad);
    FILL(maxpool2d);
    FILL(maxpool2d_grad);
    FILL(avgpool2d);
    FILL(avgpool2d_grad);
    FILL(softmax_xent);
    FILL(softmax_xent_grad);
    FILL(topk_hits);
    FILL(grad_norm);
    FILL(loss_scale);
    FILL(sgd);
    FILL(adagrad);
    FILL(adam);
    FILL(lerp);
    FILL(vec);
    FILL(gram);
    FILL(mode_product);
    FILL(eigh);
    FILL(rational);
    FILL(qr);
    FILL(rotations);
    FILL(frobenius);
#undef FILL
}
