/* The first convolution by space-to-depth, where that is faster: space_to_depth.h. */
#ifndef LT_CUDA_CONV_SPACE_TO_DEPTH_H
#define LT_CUDA_CONV_SPACE_TO_DEPTH_H

#include "conv_plan.h"

/* Changes a call of the first convolution into one on blocks of pixels, with kernels before it and, for the weight's
 * gradient, after it; leaves other calls unchanged. The alternative is the original convolution, unless the call has
 * one. */
void lt_conv_use_space_to_depth(lt_conv_call *call);
/* The same for a call whose input is pixels: the forward pass writes their blocks to pixels->folded, the gradient
 * reads them. */
void lt_conv_use_pixels(lt_conv_call *call, lt_view *blocks, const lt_conv_pixels *pixels);

#endif
