/* Failure policy of blocks whose inverse roots could not be computed. */
#ifndef LT_OPTIM_SHAMPOO_FAILURE_H
#define LT_OPTIM_SHAMPOO_FAILURE_H

#include "optim/shampoo/shampoo.h"

/* Counts failures and applies the failure policy. step: the step of the factors. Errors: LT_E_ARG (too many
 * consecutive failures), LT_E_NOMEM. */
lt_status lt_shampoo_apply_policy(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                  int64_t step);

#endif
