/** Normalisation kernels that a backend provides: signatures and formulas. */
#ifndef LATHER_DETAIL_NORM_KERNELS_H
#define LATHER_DETAIL_NORM_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/detail/norm_layer.h"
#include "lather/ops/conv.h"
#include "lather/ops/norm.h"
#include "lather/ops/pool.h"

/* Statistics of batch normalisation. stats [3,C]: count, mean, M2 (sum of centred squares). coef [4,C]: mean,
 * 1/sqrt(var+eps), scale = gamma/sqrt(var+eps), shift = beta - mean*scale. Both contiguous, in the master
 * dtype. */

LT_ENTRY(batchnorm_stats, void *ctx, const lt_view *x, const lt_view *stats);
/** Arguments of batchnorm_finish. An optional one is absent if NULL or without data. */
typedef struct lt_batchnorm_parts {
    /** absent: coef follows from the running statistics, which are unchanged. */
    const lt_view *stats;
    /** x: rows 1 and 2 of stats are the sums of x and x^2; absent: stats are those of batchnorm_stats. */
    const lt_view *sums_of;
    const lt_view *gamma, *beta; /**< [C], scale and shift of the norm */
    const lt_view *mean, *var;   /**< [C], running statistics, updated from stats; optional */
    const lt_view *batches;      /**< i64 [], incremented if stats is present; optional */
    const lt_view *coef;         /**< out: coefficients, [4,C] */
    const lt_view *rounded;      /**< out, [2,C] in 16 bits, contiguous: scale, shift; optional */
} lt_batchnorm_parts;
LT_ENTRY(batchnorm_finish, void *ctx, const lt_batchnorm2d_config *config,
         const lt_batchnorm_parts *parts);
/** A batch norm with relu and without residual: its inputs and coefficients. rounded has x's dtype and is
 *  optional. */
typedef struct lt_batchnorm_before {
    const lt_view *x, *coef, *gamma, *beta, *rounded;
} lt_batchnorm_before;
/** Options and result of a convolution of a batch norm's output that was never written. */
typedef struct lt_norm_conv {
    bool moments; /**< in: stats must be those of batchnorm_stats */
    bool sums;    /**< out: stats are sums, as for lt_batchnorm_parts.sums_of */
    bool done;    /**< out: false: declined, nothing was computed */
} lt_norm_conv;
/** y = act(x*scale + shift + residual). residual may be NULL. mask, u8 [ceil(count/8)] or NULL: bit e%8 of byte
 *  e/8 is set where y > 0 before rounding to its dtype, e the element's channels-last index ((n*H + h)*W + w)*C
 *  + c. */
LT_ENTRY(batchnorm_apply, void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
         const lt_view *coef, const lt_view *residual, const lt_view *y, const lt_view *mask);
/** Epilogue of a convolution in inference: batch norm, residual, relu. */
typedef struct lt_conv_epilogue {
    const lt_view *coef, *residual; /**< coefficients [4,C]; residual, may be NULL */
    bool relu;
    bool done; /**< out; false: declined, nothing was computed */
} lt_conv_epilogue;
/** Fused: batchnorm_apply, without mask, of conv2d without b, whose output is not written. */
LT_ENTRY(conv2d_affine, void *ctx, const lt_conv2d_config *config, const lt_view *x,
         const lt_view *w, lt_conv_epilogue *epilogue, const lt_view *y);
/** A batch norm whose output was not written: x*scale + shift. */
typedef struct lt_batchnorm_addend {
    const lt_view *x, *coef;
} lt_batchnorm_addend;
/** Fused: y = act(sum of two such terms): batchnorm_apply whose residual was never written; mask as there. */
LT_ENTRY(batchnorm_add, void *ctx, const lt_batchnorm2d_config *config,
         const lt_batchnorm_addend term[2], const lt_view *y, const lt_view *mask);
/** Inputs of batch norm's backward. dy[1].data is NULL if the gradient has a single addend. With relu the
 *  gradient counts where mask has a bit or, if mask is NULL, where x*scale+shift > 0. */
typedef struct lt_batchnorm_grad {
    lt_view dy[2];
    const lt_view *x, *coef, *mask;
    bool relu;
    /** Outputs of batchnorm_grad_x: the sums as dbeta and dgamma, [C], contiguous, in the master dtype; not written
     *  if without data. */
    lt_view affine[2];
} lt_batchnorm_grad;
/** sums [2,C]: sum of g, sum of g * (x - mean) / sqrt(var+eps), g the masked gradient. g, like x or NULL,
 *  receives the masked gradient, which is the residual's; in host memory g may be dy[0]. */
LT_ENTRY(batchnorm_grad_stats, void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
         const lt_view *sums);
/** dx = scale * (g - sums[0]/count - xhat * sums[1]/count); count <= 0: dx = scale * g. dx as g. */
LT_ENTRY(batchnorm_grad_x, void *ctx, const lt_batchnorm_grad *in, const lt_view *sums,
         double count, const lt_view *dx);
/** A batch norm whose backward runs inside another operation's kernel, possible if no other operation reads its
 *  output. */
typedef struct lt_batchnorm_fused_grad {
    const lt_view *x, *coef;
    const lt_view *sums; /**< out: the result of batchnorm_grad_stats */
    const lt_view *dx;   /**< out: the result of batchnorm_grad_x, which takes count */
    double count;
    lt_view affine[2]; /**< as in lt_batchnorm_grad */
} lt_batchnorm_fused_grad;
/** Fused: the backward of two batch norms of which norm[1] made norm[0]'s residual. in: the gradient of
 *  norm[0]'s output. The residual's gradient is not written. */
LT_ENTRY(batchnorm_add_grad, void *ctx, const lt_batchnorm_grad *in,
         const lt_batchnorm_fused_grad norm[2]);
/** Fused: maxpool2d of relu(batchnorm(norm->x)), rounded to its dtype, without writing it. */
LT_ENTRY(maxpool2d_norm, void *ctx, const lt_pool2d_config *config, const lt_batchnorm_before *norm,
         const lt_view *y, const lt_view *index);
/** Fused: maxpool2d_grad, and the backward of the batch norm with relu whose output was pooled. */
LT_ENTRY(maxpool2d_norm_grad, void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
         const lt_view *index, const lt_batchnorm_fused_grad *norm);

/** Formula: lt_group_norm(), for a 4-D x. stats [2,N,groups], contiguous, in the master dtype: mean,
 *  1/sqrt(var+eps). gamma and beta, contiguous and in the master dtype, may both be NULL. */
LT_ENTRY(group_norm, void *ctx, const lt_group_norm_config *config, const lt_view *x,
         const lt_view *gamma, const lt_view *beta, const lt_view *stats, const lt_view *y);
/** Inputs of group norm's backward, and its outputs: each of dx, dgamma and dbeta may be NULL. */
typedef struct lt_group_norm_grad {
    const lt_view *dy, *x, *gamma, *stats;
    const lt_view *dx, *dgamma, *dbeta;
} lt_group_norm_grad;
LT_ENTRY(group_norm_grad, void *ctx, const lt_group_norm_config *config,
         const lt_group_norm_grad *g);

/** Formula: lt_layernorm() and lt_rmsnorm(), for x, y [N,C]. stats [2,N], contiguous, in the master dtype: mean
 *  (0 with rms), 1/sqrt(var+eps). gamma and beta [C], contiguous and in the master dtype; each may be NULL. */
LT_ENTRY(layernorm, void *ctx, const lt_layernorm_config *config, const lt_view *x,
         const lt_view *gamma, const lt_view *beta, const lt_view *stats, const lt_view *y);
/** Inputs of layer norm's backward, and its outputs: each of dx, dgamma and dbeta may be NULL. dgamma and dbeta
 *  are summed over fixed chunks of rows, merged in index order. */
typedef struct lt_layernorm_grad {
    const lt_view *dy, *x, *gamma, *stats;
    const lt_view *dx, *dgamma, *dbeta;
} lt_layernorm_grad;
LT_ENTRY(layernorm_grad, void *ctx, const lt_layernorm_config *config, const lt_layernorm_grad *g);

/** List of the kernels above; columns as in detail/entry.h. */
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
