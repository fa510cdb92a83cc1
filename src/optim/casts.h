/* Cached 16-bit casts of weights, updated with the weights. */
#include "lather/ext/optim.h"

/* Makes the backend's update kernels write the casts too, or stop doing so. */
#ifndef LT_OPTIM_CASTS_H
#define LT_OPTIM_CASTS_H

void lt_optim_keep_casts(const lt_optim *o, bool on);
/* Rebuilds, before a step, the casts of weights that were written since the last one. */
LT_MUST_CHECK lt_status lt_optim_refresh_casts(lt_optim *o);

#endif
