/* Folding a batch norm into a convolution: interface between the two layers. */
#ifndef LT_NN_FOLD_H
#define LT_NN_FOLD_H

#include "lather/layers.h"

bool lt_is_batchnorm2d(const lt_module *module); /* defined in batchnorm2d.c */

typedef struct lt_fold_norm {
    const lt_param *gamma, *beta, *mean, *var;
    double eps;
} lt_fold_norm;

/* Changes conv to include the norm, adding a bias if it had none. Changes nothing on failure. Errors:
 * LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE. */
lt_status lt_fold_norm_into_conv(lt_module *conv, const lt_fold_norm *norm);

#endif
