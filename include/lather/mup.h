/** muP, the maximal update parametrization: learning rates, initial values and weight decay per parameter with
 *  which the best learning rate of a narrow model is that of wider ones. */
#ifndef LATHER_MUP_H
#define LATHER_MUP_H

#include "lather/optim.h"

/* A model is compared with a base model, the same at the width at which settings were tuned: sizes that differ
 * are the ones that grow. At the base width nothing changes. docs/guides/learning-rate-transfer.md has the rule
 * and its sources. last_norm: prefix of the names of the last norm, if its output is multiplied by a table of
 * embeddings, whose scale the norm then takes over; NULL: the last layer has its own weights. */

/** Scales the initial values, which both models must draw with one seed by lather/init.h. Call it before weights
 *  are loaded. Errors: LT_E_ARG (parameters of another name or number of dimensions), LT_E_UNSUPPORTED (params
 *  are shards), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_mup_scale_values(const lt_params *params, const lt_params *base,
                                                   const char *last_norm);

/** Scales learning rate and weight decay of each parameter of optim, in addition to lt_optim_set_group(). base: an
 *  optimizer with the same settings over the base model. Call it once, before the first step and
 *  lt_optim_start_cautious(). Errors: LT_E_ARG, LT_E_UNSUPPORTED (an optimizer without the entry update_size). */
LT_API LT_MUST_CHECK lt_status lt_mup_scale_optim(lt_optim *optim, const lt_optim *base,
                                                  const char *last_norm);

#endif
