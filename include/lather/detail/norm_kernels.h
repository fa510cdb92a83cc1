/** A backend's entries for normalisation: their signatures, and what they compute. */
#ifndef LATHER_DETAIL_NORM_KERNELS_H
#define LATHER_DETAIL_NORM_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/detail/norm_layer.h"
#include "lather/ops/conv.h"
#include "lather/ops/norm.h"
#include "lather/ops/pool.h"

/* Batch normalisation. stats [3,C]: count, mean, M2 (sum of centred squares).
 * coef [4,C]: mean, 1/sqrt(var+eps), scale = gamma/sqrt(var+eps), shift = beta - mean*scale.
 * Both of the master dtype, contiguous. */

LT_ENTRY(batchnorm_stats, void *ctx, const lt_view *x, const lt_view *stats);
/** What batchnorm_finish reads and writes. What may be absent is NULL, or its data is. */
typedef struct lt_batchnorm_parts {
    const lt_view *stats;   /**< absent: coef from the running statistics, which stay */
    const lt_view *sums_of; /**< x: rows 1 and 2 of stats are its sums and those of its squares;
                                      absent: stats are as batchnorm_stats gives them */
    const lt_view *gamma, *beta; /**< [C] */
    const lt_view *mean, *var;   /**< [C], running, updated from stats; may be absent */
    const lt_view *batches;      /**< i64 [], with stats one more; may be absent */
    const lt_view *coef;         /**< out */
    const lt_view *rounded; /**< out, [2,C] of 16 bits, contiguous: scale, shift; may be absent */
} lt_batchnorm_parts;
LT_ENTRY(batchnorm_finish, void *ctx, const lt_batchnorm2d_config *config,
         const lt_batchnorm_parts *parts);
/** What a batch norm with relu, without residual, read and made; rounded (x's dtype) may be absent. */
typedef struct lt_batchnorm_before {
    const lt_view *x, *coef, *gamma, *beta, *rounded;
} lt_batchnorm_before;
/** How a convolution of a batch norm's output that was never written went. */
typedef struct lt_norm_conv {
    bool moments; /**< in: stats must be as batchnorm_stats gives them */
    bool sums;    /**< out: they are sums, as lt_batchnorm_parts.sums_of says */
    bool done;    /**< out */
} lt_norm_conv;
/** y = act(x*scale + shift + residual). residual may be NULL. mask, u8 [ceil(count/8)] or NULL:
 *  bit e%8 of byte e/8 is set where y > 0 before rounding to its dtype, e the element's
 *  channels-last index ((n*H + h)*W + w)*C + c. */
LT_ENTRY(batchnorm_apply, void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
         const lt_view *coef, const lt_view *residual, const lt_view *y, const lt_view *mask);
/** What comes behind a convolution that evaluates. */
typedef struct lt_conv_affine {
    const lt_view *coef, *residual; /**< residual may be NULL */
    bool relu;
    bool done; /**< out; false: nothing was computed */
} lt_conv_affine;
/** Fused: batchnorm_apply, without mask, of conv2d without b, whose output is not written. */
LT_ENTRY(conv2d_affine, void *ctx, const lt_conv2d_config *config, const lt_view *x,
         const lt_view *w, lt_conv_affine *after, const lt_view *y);
/** A batch norm that was not applied yet: x*scale + shift. */
typedef struct lt_batchnorm_term {
    const lt_view *x, *coef;
} lt_batchnorm_term;
/** Fused: y = act(the sum of two such terms), as batchnorm_apply whose residual was never written; mask
 *  as there. */
LT_ENTRY(batchnorm_add, void *ctx, const lt_batchnorm2d_config *config,
         const lt_batchnorm_term term[2], const lt_view *y, const lt_view *mask);
/** What backward of batch norm reads. dy[1].data is NULL if the gradient has one addend. With
 *  relu: the gradient counts where mask has a bit, or, if mask is NULL, where x*scale+shift > 0. */
typedef struct lt_batchnorm_grad {
    lt_view dy[2];
    const lt_view *x, *coef, *mask;
    bool relu;
    lt_view affine[2]; /**< out of batchnorm_grad_x: the sums as dbeta, dgamma, [C], contiguous and
                            of the master dtype; without data: not wanted */
} lt_batchnorm_grad;
/** sums [2,C]: sum of g, sum of g * (x - mean) / sqrt(var+eps), g the masked gradient. g, like x or
 *  NULL, gets the masked gradient (it is the residual's); in host memory g may be dy[0]. */
LT_ENTRY(batchnorm_grad_stats, void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
         const lt_view *sums);
/** dx = scale * (g - sums[0]/count - xhat * sums[1]/count); count <= 0: dx = scale * g. dx as g. */
LT_ENTRY(batchnorm_grad_x, void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
         double count, const lt_view *dx);
/** A batch norm whose backward is done with another operation's: nothing else read its output. */
typedef struct lt_batchnorm_along {
    const lt_view *x, *coef;
    const lt_view *sums; /**< out, as batchnorm_grad_stats gives them */
    const lt_view *dx;   /**< out, as batchnorm_grad_x, which takes count, gives it */
    double count;
    lt_view affine[2]; /**< as lt_batchnorm_grad has them */
} lt_batchnorm_along;
/** Fused: the backward of two batch norms, where norm[1] made the residual of norm[0]. in: the gradient
 *  that norm[0] reads. The residual's own gradient is not written. */
LT_ENTRY(batchnorm_add_grad, void *ctx, const lt_batchnorm_grad *in,
         const lt_batchnorm_along norm[2]);
/** Fused: maxpool2d of relu(batchnorm(norm->x)), rounded to its dtype, which was never written. */
LT_ENTRY(maxpool2d_norm, void *ctx, const lt_pool2d_config *config, const lt_batchnorm_before *norm,
         const lt_view *y, const lt_view *index);
/** Fused: maxpool2d_grad, and the backward of the batch norm with relu that made the pooling's input. */
LT_ENTRY(maxpool2d_norm_grad, void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
         const lt_view *index, const lt_batchnorm_along *norm);

/** Formula: lt_group_norm(), of a 4-D x. stats [2,N,groups], of the master dtype, contiguous: mean,
 *  1/sqrt(var+eps). gamma and beta, contiguous and of the master dtype, may both be NULL. */
LT_ENTRY(group_norm, void *ctx, const lt_group_norm_config *config, const lt_view *x,
         const lt_view *gamma, const lt_view *beta, const lt_view *stats, const lt_view *y);
/** What backward of it reads, and what it writes: each of dx, dgamma and dbeta may be NULL. */
typedef struct lt_group_norm_grad {
    const lt_view *dy, *x, *gamma, *stats;
    const lt_view *dx, *dgamma, *dbeta;
} lt_group_norm_grad;
LT_ENTRY(group_norm_grad, void *ctx, const lt_group_norm_config *config,
         const lt_group_norm_grad *g);

/** Formula: lt_layernorm(), lt_rmsnorm(), of rows: x, y [N,C]. stats [2,N], of the master dtype,
 *  contiguous: mean (0 with rms), 1/sqrt(var+eps). gamma and beta [C], contiguous and of the master
 *  dtype; each may be NULL. */
LT_ENTRY(layernorm, void *ctx, const lt_layernorm_config *config, const lt_view *x,
         const lt_view *gamma, const lt_view *beta, const lt_view *stats, const lt_view *y);
/** What backward of it reads, and what it writes: each of dx, dgamma and dbeta may be NULL. dgamma,
 *  dbeta: sums over fixed chunks of rows, merged in index order. */
typedef struct lt_layernorm_grad {
    const lt_view *dy, *x, *gamma, *stats;
    const lt_view *dx, *dgamma, *dbeta;
} lt_layernorm_grad;
LT_ENTRY(layernorm_grad, void *ctx, const lt_layernorm_config *config, const lt_layernorm_grad *g);

/** The entries above: ext/entry.h. */
#define LT_NORM_ENTRIES(X)              \
    X(batchnorm_stats, BASIC, OWN)      \
    X(batchnorm_finish, BASIC, REF)     \
    X(batchnorm_apply, BASIC, OWN)      \
    X(batchnorm_add, FUSED, NONE)       \
    X(batchnorm_grad_stats, BASIC, OWN) \
    X(batchnorm_grad_x, BASIC, OWN)     \
    X(batchnorm_add_grad, FUSED, NONE)  \
    X(maxpool2d_norm, FUSED, NONE)      \
    X(maxpool2d_norm_grad, FUSED, NONE) \
    X(conv2d_affine, FUSED, OWN)        \
    X(group_norm, BASIC, OWN)           \
    X(group_norm_grad, BASIC, OWN)      \
    X(layernorm, BASIC, OWN)            \
    X(layernorm_grad, BASIC, OWN)

#endif
