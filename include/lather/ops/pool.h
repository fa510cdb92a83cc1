/** Pooling. */
#ifndef LATHER_OPS_POOL_H
#define LATHER_OPS_POOL_H

#include "lather/tape.h"

/** Geometry of pooling. A zero stride means the kernel's size. */
typedef struct lt_pool2d_config {
    int kernel_h, kernel_w;
    int stride_h, stride_w; /**< step between windows, in input pixels */
    int pad_h, pad_w;       /**< padding on each side, at most half the kernel */
} lt_pool2d_config;

/**
 * Largest value of each window; padding is never chosen. Of equal values the first in row-major order of the
 * window is chosen; a NaN counts as larger than any number. The chosen element gets the gradient.
 *
 *     y[n,c,p,q] = max over r,s of x[n, c, p*stride_h - pad_h + r, q*stride_w - pad_w + s]
 *
 * Shapes  x [N,C,H,W] -> y [N,C,P,Q], P = floor((H + 2*pad_h - kernel_h) / stride_h) + 1, Q likewise
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Dumoulin & Visin 2018, section 3
 */
LT_API lt_tensor *lt_maxpool2d(lt_tape *tape, lt_tensor *x, lt_pool2d_config config);

/**
 * Mean of each window; padding counts as zeros: the divisor is always kernel_h * kernel_w.
 * A zero kernel means: the whole image (global pooling).
 *
 *     y[n,c,p,q] = 1 / (kernel_h * kernel_w) * sum over r,s of x[n, c, p*stride_h - pad_h + r, ..]
 *
 * Shapes  x [N,C,H,W] -> y [N,C,P,Q] as lt_maxpool2d(); [N,C,1,1] for global pooling
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Lin, Chen & Yan, "Network in network", 2014 (global)
 */
LT_API lt_tensor *lt_avgpool2d(lt_tape *tape, lt_tensor *x, lt_pool2d_config config);

#endif
