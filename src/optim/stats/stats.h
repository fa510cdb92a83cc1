/* Measurement of what an optimizer does, for --optim-stats: three tables of numbers, of parameters, of blocks, and of
 * factors, computed after every N-th step from copies of the weights and by the entries of the optimizer's table
 * (lather/ext/optim_stats.h).
 *
 * Sums are computed by the owner of a block, in an order that depends on the block only, and added over ranks, where
 * all other ranks add 0: results are bitwise the same for any number of ranks. The gradient is that of the update:
 * averaged over ranks, unscaled and clipped. */
#ifndef LT_OPTIM_STATS_STATS_H
#define LT_OPTIM_STATS_STATS_H

#include "tables.h"

/* Returns true if the step is measured. */
static inline bool lt_optim_stats_is_due(const lt_optim_stats *s, int64_t attempt)
{
    return s && attempt % s->every == 0;
}
/* Call before and after each step, outside of captured graphs; stats may be NULL. After a measured step it waits for
 * the device and is collective if the state is sharded. */
LT_MUST_CHECK lt_status lt_optim_stats_before(lt_optim_stats *s, int64_t attempt);
LT_MUST_CHECK lt_status lt_optim_stats_after(lt_optim_stats *s, int64_t attempt);

/* Writes the record of the last measured step, s->width numbers, on rank 0. */
void lt_optim_stats_record(const lt_optim_stats *s, float *out);

#endif
