/* Measurement of the parameters, blocks and factors that this rank owns. */
#ifndef LT_OPTIM_STATS_MEASURE_H
#define LT_OPTIM_STATS_MEASURE_H

#include "tables.h"

/* Fills the event's numbers. Waits for the device. Errors: LT_E_NOMEM, those of the optimizer's entries. */
LT_MUST_CHECK lt_status lt_stats_measure(lt_optim_stats *s, int64_t attempt);

#endif
