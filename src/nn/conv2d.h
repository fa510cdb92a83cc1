/* A convolution as the batch norm after it sees it, which may be merged into it. */
#ifndef LT_NN_CONV2D_H
#define LT_NN_CONV2D_H

#include "lather/layers.h"

bool lt_is_conv2d(const lt_module *module);
lt_param *lt_conv2d_weight(lt_module *module);
/* Its value is NULL if there is none. */
lt_param *lt_conv2d_bias(lt_module *module);

#endif
