/* Gradient norm from the norms of parts. */
#ifndef LT_OPTIM_SHARDING_PART_NORMS_H
#define LT_OPTIM_SHARDING_PART_NORMS_H

#include "lather/comm.h"
#include "lather/ext/optim.h"

/* Sets the scalars of the backend's grad_norm from the norms of parts. Collective if the state is sharded. */
LT_MUST_CHECK lt_status lt_optim_grad_norm_by_parts(lt_optim *o);
void lt_optim_free_part_norms(lt_optim *o);
/* Computes the gradient norm from those of count shards: slot k's gradient is shard number at[k], or
 * LT_SHARD_NOT_COUNTED if another rank counts it. Takes ownership of at. Steps are then collective over comm. */
enum { LT_SHARD_NOT_COUNTED = -1 };
LT_MUST_CHECK lt_status lt_optim_use_shard_norms(lt_optim *o, lt_comm *comm, int64_t *at,
                                                 size_t count);
/* Returns true if the optimizer updates shards in place: lt_sharded_optim_attach_shards(). */
bool lt_optim_updates_shards(const lt_optim *o);

#endif
