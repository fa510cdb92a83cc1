/* Step counts of each parameter; without effect unless lt_optim_count_per_param() was called. */
#include "lather/ext/optim.h"

/* Counts this step for parameters without a gradient, unless it is skipped. Before ops->step, after grad_norm. */
#ifndef LT_OPTIM_MISSED_H
#define LT_OPTIM_MISSED_H

LT_MUST_CHECK lt_status lt_optim_count_missed(lt_optim *o);
/* Sets slots' updates from the counts on the device (to_missed: the other way round). Waits for the device. */
LT_MUST_CHECK lt_status lt_optim_convert_counts(lt_optim *o, int64_t applied, bool to_missed);

#endif
