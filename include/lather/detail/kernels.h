/** A backend's entries for operations: their signatures, and what they compute. */
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
#include "lather/ops.h"

/* Part 1: elementwise. Any strides; a stride of 0 repeats (broadcast). Arithmetic is f32 for
 * 16-bit and f32 data, f64 for f64 data; 16-bit types are rounded to nearest even on store. */

/** y[i] = value. */
LT_ENTRY(fill, void *ctx, double value, const lt_view *y);
/** y[i] = x[i], converted. To integers: towards zero, saturating, NaN to 0; i64 to i64 is exact. */
LT_ENTRY(cast, void *ctx, const lt_view *x, const lt_view *y);
/** y[i] = a[i] + b[i]. */
LT_ENTRY(add, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
/** y[i] = a[i] * b[i]. */
LT_ENTRY(mul, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
/** y[i] = factor * x[i]; may be in place. */
LT_ENTRY(scale, void *ctx, double factor, const lt_view *x, const lt_view *y);
/** y[i] = max(x[i], 0). */
LT_ENTRY(relu, void *ctx, const lt_view *x, const lt_view *y);
/** dx[i] = dy[i] where y[i] > 0, else 0; y of relu. */
LT_ENTRY(relu_grad, void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx);

/** Where a random stream begins: element i uses a 32-bit word of Philox4x32-10, number i, or, where width
 *  is not 0, number (first + i / width * columns + i % width) / repeat. */
typedef struct lt_random {
    uint64_t key;
    uint64_t counter; /**< high 64 bits of the 128-bit counter */
    int64_t first, width, columns, repeat;
} lt_random;
/** y[i] = x[i] * (u[i] >= p) / (1 - p), u[i] = i's word / 2^32, i the row-major logical index. */
LT_ENTRY(dropout, void *ctx, lt_random random, double p, const lt_view *x, const lt_view *y);
/** y[n,c,h,w] = (x[n,c,h,w] - mean[c]) / deviation[c]; x u8. */
LT_ENTRY(normalize, void *ctx, const lt_normalize_config *config, const lt_view *x,
         const lt_view *y);
/** y[j] = factor * sum of x over the dimensions where y's extent is 1 and x's is not; same ndim. */
LT_ENTRY(sum, void *ctx, double factor, const lt_view *x, const lt_view *y);

/* Part 2: products. Transposes are strides. */

/** y[b,m,n] = sum over k of a[b,m,k] * b[b,k,n]; all 3-D, equal B or a batch stride of 0. A parameter
 *  of f32 (its version is not 0) beside a factor of 16 bits counts as rounded to that dtype. */
LT_ENTRY(matmul, void *ctx, const lt_view *a, const lt_view *b, const lt_view *y);
/** y[n,k] = bias[k] + sum over c of x[n,c] * w[k,c]; bias may be NULL; f32 w and bias may be rounded to x's dtype. */
LT_ENTRY(linear, void *ctx, const lt_view *x, const lt_view *w, const lt_view *bias,
         const lt_view *y);
/** Fused: dw[k,c] = sum over n of dy[n,k] * x[n,c], db[k] = sum over n of dy[n,k]; dw of any strides. */
LT_ENTRY(linear_grad_w, void *ctx, const lt_view *dy, const lt_view *x, const lt_view *dw,
         const lt_view *db);
/** Formula: lt_conv2d(); b may be NULL. x, y channels-last; of config only padding may be 0. f32 w with 16-bit x: a kernel
 *  rounds w to x's dtype or reads all its digits (cpu's Winograd), in gradients too, and may pack it per w->version. */
LT_ENTRY(conv2d, void *ctx, const lt_conv2d_config *config, const lt_view *x, const lt_view *w,
         const lt_view *b, const lt_view *y);
LT_ENTRY(conv2d_grad_x, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_view *w, const lt_view *dx);
/** dw is f32 (f64 in f64), of w's shape and any strides. */
LT_ENTRY(conv2d_grad_w, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_view *x, const lt_view *dw);

/** Fused: conv2d without b, and batchnorm_stats of y. *sums: whether rows 1 and 2 of stats are the
 *  sums of y and of its squares instead, which batchnorm_finish takes too; NULL: they must not be. */
LT_ENTRY(conv2d_stats, void *ctx, const lt_conv2d_config *config, const lt_view *x,
         const lt_view *w, const lt_view *y, const lt_view *stats, bool *sums);

/** Fused: the backward of a convolution whose input was relu(batchnorm(x)), and half of the batch
 *  norm's: dx as conv2d_grad_x gives it, or 0 where relu masks it; sums as batchnorm_grad_stats. */
LT_ENTRY(conv2d_grad_x_sums, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_view *w, const lt_batchnorm_before *norm, const lt_view *dx, const lt_view *sums);

/** Fused: conv2d_stats of relu(batchnorm(norm->x)), and the gradient of its weight, where that input
 *  was never written. done false: it must be; nothing was computed. */
LT_ENTRY(conv2d_norm_stats, void *ctx, const lt_conv2d_config *config,
         const lt_batchnorm_before *norm, const lt_view *w, const lt_view *y, const lt_view *stats,
         lt_norm_conv *how);
LT_ENTRY(conv2d_norm_grad_w, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_batchnorm_before *norm, const lt_view *dw, bool *done);

/* Part 3: pooling and loss. A pooling's config has no zero fields left but padding. */

/** index, u8 like y or NULL: the winner's place in its window, r * kernel_w + s. */
LT_ENTRY(maxpool2d, void *ctx, const lt_pool2d_config *config, const lt_view *x, const lt_view *y,
         const lt_view *index);
/** dy[1].data is NULL if the gradient has one addend. */
LT_ENTRY(maxpool2d_grad, void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
         const lt_view *index, const lt_view *dx);
LT_ENTRY(avgpool2d, void *ctx, const lt_pool2d_config *config, const lt_view *x, const lt_view *y);
LT_ENTRY(avgpool2d_grad, void *ctx, const lt_pool2d_config *config, const lt_view *dy,
         const lt_view *dx);
/** y[n,k] = exp(x[n,k]) / sum over j of exp(x[n,j]), without overflow; x, y [N,K]. */
LT_ENTRY(softmax, void *ctx, const lt_view *x, const lt_view *y);
/** dx[n,k] = y[n,k] * (dy[n,k] - sum over j of dy[n,j] * y[n,j]); y of softmax. */
LT_ENTRY(softmax_grad, void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx);
/** labels i32 [N] or floating [N,K]; lse [N] gets log(sum(exp(logits))) of each row; loss []. Rows
 *  labelled LT_IGNORED_LABEL have no loss and no gradient, and N counts the others. */
LT_ENTRY(softmax_xent, void *ctx, double smoothing, const lt_view *logits, const lt_view *labels,
         const lt_view *lse, const lt_view *loss);
/** dx[n] = dloss/N * (softmax(logits[n]) * sum of q[n] - q[n]); dloss []. */
LT_ENTRY(softmax_xent_grad, void *ctx, double smoothing, const lt_view *dloss,
         const lt_view *logits, const lt_view *labels, const lt_view *lse, const lt_view *dx);
/** Formula: lt_topk_hits(), of rows: logits [N,K], labels [N]; hits [2] or [3]. */
LT_ENTRY(topk_hits, void *ctx, const lt_view *logits, const lt_view *labels, const lt_view *hits);
/** index i32 [count]: the places of the count largest |x| of x [n], ascending; of equal ones the lower
 *  place. A NaN is larger than infinity. 1 <= count <= n < 2^31. */
LT_ENTRY(topk_select, void *ctx, const lt_view *x, const lt_view *index);

/** The entries above: ext/entry.h. */
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
    X(matmul, BASIC, LIBRARY)         \
    X(linear, BASIC, LIBRARY)         \
    X(linear_grad_w, FUSED, NONE)     \
    X(conv2d, BASIC, LIBRARY)         \
    X(conv2d_grad_x, BASIC, LIBRARY)  \
    X(conv2d_grad_w, BASIC, LIBRARY)  \
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
    X(topk_hits, BASIC, OWN)          \
    X(topk_select, BASIC, OWN)

#endif
