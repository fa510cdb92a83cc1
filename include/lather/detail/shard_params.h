/** Parameters divided over ranks like the optimizer's state (ZeRO-3, FSDP). */
#ifndef LATHER_DETAIL_SHARD_PARAMS_H
#define LATHER_DETAIL_SHARD_PARAMS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/shard_params_ops.h"
#include "lather/ema.h"
#include "lather/shard.h"

/** From the next lt_optim_release_params() on a parameter's value has memory at its owner, and on other ranks
 *  only while an operation on the tape reads it; its gradient only until it is in its bucket. A
 *  rank then holds 1/n of values, gradients and state, and what a few units need while they are in use.
 *  Values after a step have the bits of lt_optim_shard_gradients() alone. After that function, and before
 *  the first update; optim was divided with shard_params. The tape must outlive the optimizer. Collective.
 *  Errors: LT_E_ARG (not divided so; divided already), LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_params(lt_optim *optim, lt_tape *tape,
                                                     const lt_shard_params_config *config);

/** All values on all ranks, and averages that are divided, for an evaluation or to save them; without effect
 *  where parameters are not divided. Collective. Errors: LT_E_COMM, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_optim_gather_params(lt_optim *optim);
/** Back to training: each rank keeps its own. An update does so too. */
LT_API void lt_optim_release_params(lt_optim *optim);

/** Averages of divided parameters have memory where the values have it between passes; without effect where
 *  parameters are not divided. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_ema(lt_optim *optim, lt_ema *ema);

/** Zeros where parameters are not divided. */
LT_API void lt_optim_shard_params_stats(const lt_optim *optim, lt_shard_params_stats *out);

#endif
