/* Space-to-depth: the first convolution of a residual network, 7x7 with stride 2 over three channels, as one of 4x4
 * with stride 1 over sixteen, for which cuDNN has faster kernels. Blocks of 2x2 pixels become channels. With x padded
 * by 3, tap (r, s) of channel c reads row 2p + r, that is row r % 2 of block p + r / 2: it becomes tap (r / 2, s / 2)
 * of channel (r % 2 * 2 + s % 2) * 3 + c. Taps of the eighth row and column, and channels 12 to 15, are 0. */
#ifndef LT_CUDA_SPACE_TO_DEPTH_H
#define LT_CUDA_SPACE_TO_DEPTH_H

#include "tensor/backend/cuda/cuda.h"
#include "tensor/backend/cuda/host_device.h"

#include "lather/ops/norm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LT_STEM_COLOURS = 3,
    LT_STEM_SIZE = 7,
    LT_STEM_STRIDE = 2,
    LT_STEM_PAD = 3,
    LT_STEM_TAPS = 4,
    LT_STEM_CHANNELS = 16
};

/* Returns whether it is that convolution, in 16 bits. */
bool lt_space_to_depth_fits(const lt_conv2d_config *config, const lt_view *x, const lt_view *w,
                            const lt_view *y);
/* The transformed x and w: dense views without data, in y's dtype. */
lt_view lt_space_to_depth_blocks(const lt_view *x, const lt_view *y);
lt_view lt_space_to_depth_filters(const lt_view *w, const lt_view *y);
/* The transformed convolution's geometry. */
lt_conv2d_config lt_space_to_depth_config(void);

/* Within an entry: compute blocks of x and filters of w; the inverse for the gradient of w. */
lt_status lt_space_to_depth_x(lt_cuda *c, const lt_view *x, const lt_view *blocks);
/* Computes blocks of pixels, normalized and rounded as normalize does. */
lt_status lt_space_to_depth_pixels(lt_cuda *c, const lt_view *x, const lt_normalize_config *config,
                                   const lt_view *blocks);
lt_status lt_space_to_depth_w(lt_cuda *c, const lt_view *w, const lt_view *filters);
lt_status lt_depth_to_space_w(lt_cuda *c, const lt_view *filters, const lt_view *dw);

#ifdef __cplusplus
}
#endif

/* Source of a block's channel; colour < 0: zero. */
typedef struct lt_stem_place {
    int colour, row, column; /* row, column: of the pixel in its block */
} lt_stem_place;

LT_HD lt_stem_place lt_find_stem_place(int channel)
{
    lt_stem_place p;
    const int pixel = channel / LT_STEM_COLOURS;
    p.colour = pixel < LT_STEM_STRIDE * LT_STEM_STRIDE ? channel % LT_STEM_COLOURS : -1;
    p.row = pixel / LT_STEM_STRIDE;
    p.column = pixel % LT_STEM_STRIDE;
    return p;
}

#endif
