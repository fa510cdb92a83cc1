/* Convolutions of few channels, as of a network's first layer: the taps of a filter row become channels of one tap. */
#ifndef LT_BACKEND_CPU_ROW_TAPS_H
#define LT_BACKEND_CPU_ROW_TAPS_H

#include "tensor/backend/cpu/internal.h"

/* The same convolution with filters [K, S*C, R, 1] and no padding. Pixels of x are x.stride[3] elements apart, which is
 * less than its S*C channels. */
typedef struct lt_row_taps {
    lt_conv2d_config config;
    lt_view x, w;
} lt_row_taps;

/* Returns true if kernels that read several channels at once are faster on this form. x and w: channels-last. */
bool lt_row_taps_help(const lt_conv2d_config *config, const lt_view *x, const lt_view *w);
/* Makes the form from a padded copy of x, in a workspace; y: shape of the output. w is viewed. Errors: LT_E_NOMEM. */
lt_status lt_row_taps_join(lt_cpu *cpu, const lt_conv2d_config *config, const lt_view *x,
                           const lt_view *w, lt_shape y, lt_row_taps *out);

#endif
