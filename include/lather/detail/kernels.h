/** Kernels of operations that a backend provides: signatures and formulas. */
#ifndef LATHER_DETAIL_KERNELS_H
#define LATHER_DETAIL_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/attention_kernels.h"
#include "lather/detail/matrix_kernels.h"
#include "lather/detail/norm_kernels.h"
#include "lather/detail/optim_kernels.h"
#include "lather/detail/pixel_kernels.h"
#include "lather/detail/pointwise.h"
#include "lather/detail/vec_kernels.h"
#include "lather/ops/conv.h"
#include "lather/ops/loss.h"
#include "lather/ops/math.h"
#include "lather/ops/norm.h"
#include "lather/ops/pool.h"

/* Part 1: elementwise kernels. Any strides; a stride of 0 repeats (broadcast). Arithmetic is f32 for 16-bit and
 * f32 data, f64 for f64 data; 16-bit types are rounded to nearest even on store. */

/** Fill: y[i] = value. */
LT_ENTRY(fill, void *ctx, double value, const lt_view *y);
/** y[i] = x[i], converted. To integers: towards zero, saturating, NaN to 0; i64 to i64 is exact. */
LT_ENTRY(cast, void *ctx, const lt_view *x, const lt_view *y);
/** y[i] = a[i] + b[i]. */
LT_ENTRY(add, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
/** y[i] = a[i] * b[i]. */
LT_ENTRY(mul, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
/** y[i] = factor * x[i]; may be in place. */
LT_ENTRY(scale, void *ctx, double factor, const lt_view *x, const lt_view *y);
/** Rectifier: y[i] = max(x[i], 0). */
LT_ENTRY(relu, void *ctx, const lt_view *x, const lt_view *y);
/** dx[i] = dy[i] where y[i] > 0, else 0; y is the output of relu. */
LT_ENTRY(relu_grad, void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx);

/** Start of a random stream. Element i uses a 32-bit word of Philox4x32-10: number i if width is 0, else number
 *  (first + i / width * columns + i % width) / repeat. */
typedef struct lt_random {
    uint64_t key;
    uint64_t counter; /**< high 64 bits of the 128-bit counter */
    int64_t first, width, columns, repeat;
} lt_random;
/** y[i] = x[i] * (u[i] >= p) / (1 - p), with u[i] = word of i / 2^32, i the row-major logical index. */
LT_ENTRY(dropout, void *ctx, lt_random random, double p, const lt_view *x, const lt_view *y);
/** y[n,c,h,w] = (x[n,c,h,w] - mean[c]) / deviation[c]; x u8. */
LT_ENTRY(normalize, void *ctx, const lt_normalize_config *config, const lt_view *x,
         const lt_view *y);
/** y[j] = factor * sum of x over the dimensions in which y has size 1 and x does not; equal ndim. */
LT_ENTRY(sum, void *ctx, double factor, const lt_view *x, const lt_view *y);

/* Part 2: matrix products. Transposed operands are given by their strides. */

/** y[b,m,n] = sum over k of a[b,m,k] * b[b,k,n]; all 3-D, equal B or a batch stride of 0. An f32 parameter
 *  (version not 0) multiplied with a 16-bit factor counts as rounded to that dtype. */
LT_ENTRY(matmul, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
/** y[n,k] = bias[k] + sum over c of x[n,c] * w[k,c]. bias may be NULL; f32 w, bias may be rounded to x's dtype. */
LT_ENTRY(linear, void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
         const lt_view *y);
/** Fused: dw[k,c] = sum over n of dy[n,k] * x[n,c], db[k] = sum over n of dy[n,k]; dw has any strides. */
LT_ENTRY(linear_grad_w, void *ctx, const lt_view *dy, const lt_view *x, const lt_view *dw,
         const lt_view *db);
/** Formula: lt_conv2d(). b may be NULL. x and y are channels-last; in config only the padding may be 0. With
 *  f32 w and 16-bit x a kernel either rounds w to x's dtype or reads all its digits (cpu's Winograd); the same
 *  holds for gradients. It may cache packed weights by w->version. */
LT_ENTRY(conv2d, void *ctx, const lt_conv2d_config *config, const lt_view *x, const lt_view *w,
         const lt_view *b, const lt_view *y);
LT_ENTRY(conv2d_grad_x, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_view *w, const lt_view *dx);
/** dw is f32 (f64 for f64 data), has w's shape and any strides. */
LT_ENTRY(conv2d_grad_w, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_view *x, const lt_view *dw);

/** Fused: conv2d without b, and batchnorm_stats of y. *sums is set if rows 1 and 2 of stats are the sums of y
 *  and y^2 instead, which batchnorm_finish accepts too; NULL forbids that. */
LT_ENTRY(conv2d_stats, void *ctx, const lt_conv2d_config *config, const lt_view *x,
         const lt_view *w, const lt_view *y, const lt_view *stats, bool *sums);

/** Fused: conv2d_grad_x of a convolution whose input was relu(batchnorm(x)), with relu's mask applied to dx,
 *  and batchnorm_grad_stats, which writes sums. */
LT_ENTRY(conv2d_grad_x_sums, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_view *w, const lt_batchnorm_before *norm, const lt_view *dx, const lt_view *sums);

/** Fused: conv2d_stats of relu(batchnorm(norm->x)), and the gradient of its weight, without writing that input.
 *  done false: the kernel declined and computed nothing; the caller must write the input. */
LT_ENTRY(conv2d_norm_stats, void *ctx, const lt_conv2d_config *config,
         const lt_batchnorm_before *norm, const lt_view *w, const lt_view *y, const lt_view *stats,
         lt_norm_conv *how);
LT_ENTRY(conv2d_norm_grad_w, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_batchnorm_before *norm, const lt_view *dw, bool *done);

/* Part 3: pooling and loss. In a pooling's config only the padding may be 0. */

/** Max pooling. index, u8 like y or NULL: position of the maximum in its window, r * kernel_w + s. */
LT_ENTRY(maxpool2d, void *ctx, const lt_pool2d_config *config, const lt_view *x, const lt_view *y,
         const lt_view *index);
/** Gradient of max pooling; dy[1].data is NULL if the gradient has a single addend. */
LT_ENTRY(maxpool2d_grad, void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
         const lt_view *index, const lt_view *dx);
LT_ENTRY(avgpool2d, void *ctx, const lt_pool2d_config *config, const lt_view *x, const lt_view *y);
LT_ENTRY(avgpool2d_grad, void *ctx, const lt_pool2d_config *config, const lt_view *dy,
         const lt_view *dx);
/** y[n,k] = exp(x[n,k]) / sum over j of exp(x[n,j]), without overflow; x, y [N,K]. */
LT_ENTRY(softmax, void *ctx, const lt_view *x, const lt_view *y);
/** dx[n,k] = y[n,k] * (dy[n,k] - sum over j of dy[n,j] * y[n,j]); y is the output of softmax. */
LT_ENTRY(softmax_grad, void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx);
/** labels i32 [N] or floating [N,K]; lse [N] receives log(sum(exp(logits))) of each row; loss []. Rows labelled
 *  LT_IGNORED_LABEL have no loss and no gradient, and N counts the others. */
LT_ENTRY(softmax_xent, void *ctx, double smoothing, const lt_view *logits, const lt_view *labels,
         const lt_view *lse, const lt_view *loss);
/** dx[n] = dloss/N * (softmax(logits[n]) * sum of q[n] - q[n]); dloss []. */
LT_ENTRY(softmax_xent_grad, void *ctx, double smoothing, const lt_view *dloss,
         const lt_view *logits, const lt_view *labels, const lt_view *lse, const lt_view *dx);
/** Formula: lt_topk_hits(), for logits [N,K], labels [N], hits [2] or [3]. */
LT_ENTRY(topk_hits, void *ctx, const lt_view *logits, const lt_view *labels, const lt_view *hits);

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_OPERATION_ENTRIES(X)       \
    X(fill, BASIC, OWN)               \
    X(cast, BASIC, OWN)               \
    X(add, BASIC, OWN)                \
    X(mul, BASIC, OWN)                \
    X(scale, BASIC, OWN)              \
    X(relu, BASIC, OWN)               \
    X(relu_grad, BASIC, OWN)          \
    X(dropout, BASIC, OWN)            \
    X(normalize, BASIC, OWN)          \
    X(sum, BASIC, OWN)                \
    X(matmul, BASIC, OWN)             \
    X(linear, BASIC, OWN)             \
    X(linear_grad_w, FUSED, NONE)     \
    X(conv2d, BASIC, OWN)             \
    X(conv2d_grad_x, BASIC, OWN)      \
    X(conv2d_grad_w, BASIC, OWN)      \
    X(conv2d_stats, FUSED, OWN)       \
    X(conv2d_grad_x_sums, FUSED, OWN) \
    X(conv2d_norm_stats, FUSED, OWN)  \
    X(conv2d_norm_grad_w, FUSED, OWN) \
    X(maxpool2d, BASIC, OWN)          \
    X(maxpool2d_grad, BASIC, OWN)     \
    X(avgpool2d, BASIC, OWN)          \
    X(avgpool2d_grad, BASIC, OWN)     \
    X(softmax, BASIC, OWN)            \
    X(softmax_grad, BASIC, OWN)       \
    X(softmax_xent, BASIC, OWN)       \
    X(softmax_xent_grad, BASIC, OWN)  \
    X(topk_hits, BASIC, OWN)

#endif
