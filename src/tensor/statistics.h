/* Saves and restores running statistics of batch norms. Forward passes update them, micro-batch by
 * micro-batch, before it is known whether the step is applied; a skipped step must leave them unchanged
 * (docs/INTERNALS.md, section 5). */
#ifndef LT_TENSOR_STATISTICS_H
#define LT_TENSOR_STATISTICS_H

#include "lather/detail/scalars.h"
#include "lather/param.h"

typedef struct lt_statistics lt_statistics;

/* Collects means, variances and counts among params, borrowed. Without any *out is NULL, which the other
 * functions accept. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_statistics_new(lt_statistics **out, const lt_params *params);
void lt_statistics_free(lt_statistics **statistics);
/* Saves the values; call before a step's first forward pass. */
LT_MUST_CHECK lt_status lt_statistics_save(const lt_statistics *s);
/* Copies the saved values back. */
LT_MUST_CHECK lt_status lt_statistics_restore(const lt_statistics *s);
/* After the optimizer's update: restores the values if the step was skipped, as known to the host (skipped)
 * or to the device (scalars->finite). */
LT_MUST_CHECK lt_status lt_statistics_undo_if_skipped(const lt_statistics *s,
                                                      const lt_scalars *scalars, bool skipped);

/* Checks that all running means and variances are finite. Errors: LT_E_ARG; `where` begins the message.
 * Waits for the device. */
LT_MUST_CHECK lt_status lt_statistics_check(const lt_params *params, const char *where);

#endif
