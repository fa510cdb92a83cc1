/** Kernels for a first convolution that reads pixels: signatures and formulas. */
#ifndef LATHER_DETAIL_PIXEL_KERNELS_H
#define LATHER_DETAIL_PIXEL_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/norm_kernels.h"

/** Pixels, and folded, a row-major copy in y's dtype that is kept between a convolution and its gradient. If
 *  folded has no data, conv2d_pixels_stats only sets its shape; a shape without dimensions means that the
 *  kernel declines. */
typedef struct lt_conv_pixels {
    const lt_view *x; /**< the pixels, u8 [N,C,H,W] */
    const lt_normalize_config *config;
    lt_view *folded;
} lt_conv_pixels;
/** Fused: conv2d_stats of normalize(x), rounded to y's dtype, and the gradient of its weight, without writing
 *  that input. The first fills folded, the second reads it. done: as in conv2d_norm_stats. */
LT_ENTRY(conv2d_pixels_stats, void *ctx, const lt_conv2d_config *config,
         const lt_conv_pixels *pixels, const lt_view *w, const lt_view *y, const lt_view *stats,
         lt_norm_conv *how);
LT_ENTRY(conv2d_pixels_grad_w, void *ctx, const lt_conv2d_config *config, const lt_view *dy,
         const lt_conv_pixels *pixels, const lt_view *dw, bool *done);

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_PIXEL_ENTRIES(X)             \
    X(conv2d_pixels_stats, FUSED, NONE) \
    X(conv2d_pixels_grad_w, FUSED, NONE)

#endif
