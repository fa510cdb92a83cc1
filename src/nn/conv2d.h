/* The interface of a convolution for folding a batch norm into it. */
#ifndef LT_NN_CONV2D_H
#define LT_NN_CONV2D_H

#include "lather/layers.h"

bool lt_is_conv2d(const lt_module *module);
lt_param *lt_conv2d_weight(lt_module *module);
/* Returns the bias; its value is NULL if the layer has none. */
lt_param *lt_conv2d_bias(lt_module *module);

#endif
