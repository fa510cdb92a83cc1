/* Running statistics of batch norms over a training step. Forward passes write them, micro-batch by micro-batch, before it
 * is known whether the step is applied; a skipped step must leave them as they were (docs/INTERNALS.md, section 5). */
#ifndef LT_TENSOR_STATISTICS_H
#define LT_TENSOR_STATISTICS_H

#include "lather/detail/scalars.h"
#include "lather/param.h"

typedef struct lt_statistics lt_statistics;

/* Means, variances and counts among params, borrowed. *out is NULL, which the other functions accept, if params have none.
 * Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_statistics_new(lt_statistics **out, const lt_params *params);
void lt_statistics_free(lt_statistics **statistics);
/* Before a step's first forward pass. */
LT_MUST_CHECK lt_status lt_statistics_save(const lt_statistics *s);
/* Copies the saved values back. */
LT_MUST_CHECK lt_status lt_statistics_restore(const lt_statistics *s);
/* After the optimizer's update: restores them if it was skipped, as the host knows (skipped) or the device
 * (scalars->finite). */
LT_MUST_CHECK lt_status lt_statistics_settle(const lt_statistics *s, const lt_scalars *scalars,
                                             bool skipped);

/* Errors: LT_E_ARG: a running mean or variance is not finite; where: begins the message. Synchronizes with the device. */
LT_MUST_CHECK lt_status lt_statistics_check(const lt_params *params, const char *where);

#endif
