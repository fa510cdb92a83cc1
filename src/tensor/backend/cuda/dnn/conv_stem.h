/* The first convolution as another one, where that is faster: stem.h. */
#ifndef LT_CUDA_CONV_STEM_H
#define LT_CUDA_CONV_STEM_H

#include "conv_plan.h"

/* Turns a call that is the first convolution's into one on blocks of pixels, with kernels of ours
 * before (and for the weight's gradient after) it; other calls stay as they are. Its other way is the
 * convolution as it was, unless the call has one. */
void lt_conv_fold_stem(lt_conv_call *call);
/* The same of a call that is one, of x's pixels: forward writes their blocks where folded is, the gradient
 * reads them there. */
void lt_conv_fold_pixels(lt_conv_call *call, lt_view *blocks, const lt_conv_pixels *pixels);

#endif
