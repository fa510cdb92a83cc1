/* Failure policy of blocks whose roots failed. */
#ifndef LT_OPTIM_SHAMPOO_FAILURE_H
#define LT_OPTIM_SHAMPOO_FAILURE_H

#include "optim/shampoo/shampoo.h"

/* Counts failures and applies the failure policy. step: of the factors.
 * Errors: LT_E_ARG (too many failures in a row), LT_E_NOMEM. */
lt_status lt_shampoo_apply_policy(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                  int64_t step);

#endif
