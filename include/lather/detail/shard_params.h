/** Optimizer with sharded parameters (ZeRO stage 3, FSDP). */
#ifndef LATHER_DETAIL_SHARD_PARAMS_H
#define LATHER_DETAIL_SHARD_PARAMS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/shard_params_ops.h"
#include "lather/ema.h"
#include "lather/shard.h"

/** Shards the parameters: from the next lt_optim_release_params() on a value has memory at its owner, and on other ranks
 *  only while an operation on the tape reads it; its gradient only until it is in its bucket. A rank then holds 1/n of
 *  values, gradients and state, plus a few units in use. Values after a step are bitwise identical to those with
 *  lt_optim_shard_gradients() only. Call it after that function and before the first update; optim must be sharded with
 *  shard_params. The tape must outlive the optimizer. Collective.
 *  Errors: LT_E_ARG (optim is not sharded with shard_params; called twice), LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_params(lt_optim *optim, lt_tape *tape,
                                                     const lt_shard_params_config *config);

/** Gathers all values and sharded averages on all ranks, for an evaluation; no-op unless parameters are sharded.
 *  Collective. Errors: LT_E_COMM, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_optim_gather_params(lt_optim *optim);
/** Frees the gathered values, as the next update does too. */
LT_API void lt_optim_release_params(lt_optim *optim);

/** Shards the averages like the parameters; no-op unless those are sharded. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_ema(lt_optim *optim, lt_ema *ema);

/** Returns the counters; zeros unless parameters are sharded. */
LT_API void lt_optim_shard_params_stats(const lt_optim *optim, lt_shard_params_stats *out);

#endif
