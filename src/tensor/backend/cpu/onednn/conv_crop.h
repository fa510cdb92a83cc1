/* Taps of a filter that no output connects to the image. */
#ifndef LT_BACKEND_CPU_CONV_CROP_H
#define LT_BACKEND_CPU_CONV_CROP_H

#include "conv_rules.h"

/* What is left of a filter: a view into it, and the geometry that makes the same outputs of it. */
typedef struct lt_conv_cropped {
    lt_conv2d_config config;
    lt_view w;
} lt_conv_cropped;

/* Makes *out of the filter, or the filter's gradient, w without the idle taps at its edges. False: it has
 * none, or is not in the library's storage order. form: of the whole convolution. */
bool lt_conv_crop(const lt_conv_form *form, const lt_view *w, lt_conv_cropped *out);

#endif
