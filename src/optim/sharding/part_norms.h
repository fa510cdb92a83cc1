/* The gradient norm from norms of parts. */
#include "lather/comm.h"
#include "lather/ext/optim.h"

/* grad_norm's numbers, where the norm is that of parts. Collective, if divided. */
#ifndef LT_OPTIM_SHARDING_PART_NORMS_H
#define LT_OPTIM_SHARDING_PART_NORMS_H

LT_MUST_CHECK lt_status lt_optim_norm_of_parts(lt_optim *o);
void lt_optim_free_part_norms(lt_optim *o);
/* The norm is that of count boxes' norms: of slot k's gradient in place at[k], or another rank counts it. Takes at.
 * Collective over comm in each step. */
enum { LT_SHARD_NOT_COUNTED = -1 };
LT_MUST_CHECK lt_status lt_optim_norm_by_shards(lt_optim *o, lt_comm *comm, int64_t *at,
                                                size_t count);
/* Returns true if it updates boxes of parameters, lt_sharded_optim_attach_shards(). */
bool lt_optim_has_shards(const lt_optim *o);

#endif
