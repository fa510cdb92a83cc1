/** An exponential moving average of a model's weights, for evaluation. */
#ifndef LATHER_EMA_H
#define LATHER_EMA_H

#include "lather/optim.h"

typedef struct lt_ema lt_ema;

/** Makes averages of all tensors that a model saves, including running statistics (except counts), starting
 *  at the current values. Borrows the parameters. decay in [0,1).
 *  Errors: LT_E_ARG, LT_E_NOMEM.
 *  Source: Polyak & Juditsky, "Acceleration of stochastic approximation by averaging", 1992, with exponential
 *  weights. */
LT_API LT_MUST_CHECK lt_status lt_ema_new(lt_ema **out, const lt_params *params, double decay);
LT_API void lt_ema_free(lt_ema **ema);

/** Updates the averages: average += (1 - decay) * (value - average), unless the optimizer's last step was skipped. */
LT_API LT_MUST_CHECK lt_status lt_ema_update(lt_ema *ema, const lt_optim *optim);

/** Updates averages of values that change on all ranks once in several
 *  steps: average += (1 - decay^steps) * (value - average). */
LT_API LT_MUST_CHECK lt_status lt_ema_update_by_steps(lt_ema *ema, int64_t steps);

/** Swaps averages and values: once before an evaluation, once after it. */
LT_API LT_MUST_CHECK lt_status lt_ema_swap(lt_ema *ema);
/** Returns true while the parameters hold the averages. */
LT_API bool lt_ema_is_swapped(const lt_ema *ema);

/** Shows the averages as lt_optim_visit() shows an optimizer's state: name "ema", block -1, shape of the
 *  logical parameter, of which the tensor is this rank's shard.
 *  Errors: LT_E_ARG while swapped. */
LT_API LT_MUST_CHECK lt_status lt_ema_visit(lt_ema *ema, lt_state_visitor *visitor);

#endif
