/* Cropping of filter taps that only see padding. */
#ifndef LT_BACKEND_CPU_CONV_CROP_H
#define LT_BACKEND_CPU_CONV_CROP_H

#include "conv_rules.h"

/* A cropped filter: a view into it, and the geometry with the same outputs. */
typedef struct lt_conv_cropped {
    lt_conv2d_config config;
    lt_view w;
} lt_conv_cropped;

/* Crops unused taps at the edges of the filter (or its gradient) w of the convolution `form`. False if it has none or
 * is not channels-last. */
bool lt_conv_crop(const lt_conv_form *form, const lt_view *w, lt_conv_cropped *out);

#endif
