/* Step counts per parameter; without effect unless lt_optim_count_per_param() was called. */
#include "lather/ext/optim.h"

/* Counts this step as missed by parameters without a gradient, unless it is skipped. Call after grad_norm, before
 * ops->step. */
#ifndef LT_OPTIM_MISSED_H
#define LT_OPTIM_MISSED_H

LT_MUST_CHECK lt_status lt_optim_count_missed(lt_optim *o);
/* Sets the slots' updates from the counts on the device, or (to_missed) the counts from the updates. Waits for the
 * device. */
LT_MUST_CHECK lt_status lt_optim_convert_counts(lt_optim *o, int64_t applied, bool to_missed);

#endif
