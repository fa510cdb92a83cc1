/** Changes of image size: interpolation, padding, pixel shuffle. */
#ifndef LATHER_OPS_IMAGE_H
#define LATHER_OPS_IMAGE_H

#include "lather/tape.h"

typedef enum lt_upsample_mode { LT_UPSAMPLE_NEAREST, LT_UPSAMPLE_BILINEAR } lt_upsample_mode;

typedef struct lt_upsample_config {
    lt_upsample_mode mode;
    int64_t h, w;       /**< output size, in pixels */
    bool align_corners; /**< bilinear: the corner pixels of x and y coincide */
} lt_upsample_config;

/**
 * Interpolation to another size: PyTorch's interpolate() with a size, smaller ones too (without antialiasing).
 * Nearest takes pixel floor(p * H / P).
 *
 *     y[n,c,p,q] = sum over the (up to 4) pixels around (h, w) of their weight times x[n,c,..],
 *     h = p * (H - 1) / (P - 1) with align_corners, else max((p + 1/2) * H / P - 1/2, 0), w likewise
 *
 * Shapes  x [N,C,H,W] -> y [N,C,h,w]
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_upsample(lt_tape *tape, lt_tensor *x, lt_upsample_config config);

typedef enum lt_pad_mode {
    LT_PAD_CONSTANT,
    LT_PAD_REFLECT,  /**< mirrored without the edge: less than the size */
    LT_PAD_REPLICATE /**< the edge */
} lt_pad_mode;

/** Pixels added on each side of the last two dimensions: PyTorch's order. */
typedef struct lt_pad_config {
    int64_t left, right, top, bottom;
    lt_pad_mode mode;
    double value; /**< the constant of LT_PAD_CONSTANT */
} lt_pad_config;

/**
 * Padding of the last two dimensions; of a vector, of its only one (left and right).
 *
 *     y[.., top + i, left + j] = x[.., i, j], value, mirrored or edge pixels around
 *
 * Shapes  x [..,H,W] -> y [.., top + H + bottom, left + W + right]
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_pad(lt_tape *tape, lt_tensor *x, lt_pad_config config);

/**
 * Channels to pixels, for an upscaling by an integer factor.
 *
 *     y[n, c, h*factor + i, w*factor + j] = x[n, (c*factor + i)*factor + j, h, w]
 *
 * Shapes  x [N,C*factor^2,H,W] -> y [N,C,H*factor,W*factor]
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  Shi et al., "Real-time single image and video super-resolution using an efficient sub-pixel
 *         convolutional neural network", CVPR 2016
 */
LT_API lt_tensor *lt_pixel_shuffle(lt_tape *tape, lt_tensor *x, int64_t factor);

#endif
