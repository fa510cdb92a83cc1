/** Convolution and transposed convolution. */
#ifndef LATHER_OPS_CONV_H
#define LATHER_OPS_CONV_H

#include "lather/tape.h"

/** Geometry of a convolution. Zero fields mean stride 1, dilation 1, groups 1, padding 0. */
typedef struct lt_conv2d_config {
    int stride_h, stride_w;     /**< output step, in input pixels */
    int pad_h, pad_w;           /**< zeros on each side, in input pixels */
    int dilation_h, dilation_w; /**< spacing of filter taps, in input pixels */
    int groups;                 /**< C and K must both be multiples of it */
} lt_conv2d_config;

/**
 * 2-D cross-correlation.
 *
 *     y[n,k,p,q] = b[k] + sum over c,r,s of
 *                  x[n, c, p*stride_h - pad_h + r*dilation_h, q*stride_w - pad_w + s*dilation_w]
 *                  * w[k,c,r,s]      (groups > 1: c runs over the channels of k's group)
 *
 * Shapes  x [N,C,H,W], w [K,C/groups,R,S], b [K] or NULL -> y [N,K,P,Q],
 *         P = floor((H + 2*pad_h - dilation_h*(R-1) - 1) / stride_h) + 1, Q likewise
 * Dtypes  x f32, f64, bf16 or f16; y has x's; w and b of x's or the master dtype
 * Grads   x, w, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Dumoulin & Visin, "A guide to convolution arithmetic for deep learning", 2018,
 *         relationship 15 (for P and Q)
 */
LT_API lt_tensor *lt_conv2d(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                            lt_conv2d_config config);

/** Geometry of a 1-D convolution. Zero fields mean stride 1, dilation 1, groups 1, padding 0. */
typedef struct lt_conv1d_config {
    int stride, pad, dilation, groups;
} lt_conv1d_config;

/**
 * lt_conv2d() of images of one row.
 *
 *     y[n,k,q] = b[k] + sum over c,s of x[n, c, q*stride - pad + s*dilation] * w[k,c,s]
 *
 * Shapes  x [N,C,L], w [K,C/groups,S], b [K] or NULL -> y [N,K,Q], Q as in lt_conv2d()
 * Dtypes  as lt_conv2d()
 * Grads   x, w, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  as lt_conv2d()
 */
LT_API lt_tensor *lt_conv1d(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                            lt_conv1d_config config);

/** Geometry of a transposed convolution: that of the convolution of which it is the gradient. */
typedef struct lt_conv_transpose2d_config {
    lt_conv2d_config conv;
    int output_pad_h, output_pad_w; /**< rows and columns added at the end; less than the stride */
} lt_conv_transpose2d_config;

/**
 * 2-D transposed convolution: the gradient of lt_conv2d() with respect to its input.
 *
 *     y[n,k,p,q] = b[k], to which each x[n,c,h,w] adds
 *     y[n,k, h*stride_h - pad_h + r*dilation_h, w*stride_w - pad_w + s*dilation_w]
 *         += x[n,c,h,w] * w[c,k,r,s]     (groups > 1: c runs over the channels of k's group)
 *
 * Shapes  x [N,C,H,W], w [C,K/groups,R,S], b [K] or NULL -> y [N,K,P,Q],
 *         P = (H-1)*stride_h - 2*pad_h + dilation_h*(R-1) + output_pad_h + 1, Q likewise
 * Dtypes  as lt_conv2d()
 * Grads   x, w, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Dumoulin & Visin, "A guide to convolution arithmetic for deep learning", 2018,
 *         relationship 14
 */
LT_API lt_tensor *lt_conv_transpose2d(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                      lt_conv_transpose2d_config config);

#endif
