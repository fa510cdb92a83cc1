/* Depthwise convolutions, of as many groups as channels read and written: f32, vectors along the channels. */
#ifndef LT_BACKEND_CPU_DEPTHWISE_H
#define LT_BACKEND_CPU_DEPTHWISE_H

#include "conv_call.h"

/* Returns true if it is depthwise, f32 and channels-last. */
bool lt_depthwise_supports(const lt_conv_call *c);
/* Computes a convolution without bias, or a gradient; sums do not depend on the number of threads. Errors:
 * LT_E_NOMEM. */
lt_status lt_depthwise_run(lt_cpu *cpu, const lt_conv_call *c);

#endif
