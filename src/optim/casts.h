/* 16-bit copies of weights that a backend keeps, updated with the weights. */
#include "lather/ext/optim.h"

/* The backend's entries also write the copies, or stop doing so. */
#ifndef LT_OPTIM_CASTS_H
#define LT_OPTIM_CASTS_H

void lt_optim_keep_casts(const lt_optim *o, bool on);
/* Before a step: copies of values that were written since the last one. */
LT_MUST_CHECK lt_status lt_optim_refresh_casts(lt_optim *o);

#endif
