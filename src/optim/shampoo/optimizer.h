/* Constructor of Shampoo, and the check of its config. */
#ifndef LT_OPTIM_SHAMPOO_OPTIMIZER_H
#define LT_OPTIM_SHAMPOO_OPTIMIZER_H

#include "lather/shampoo.h"

/* Creates the optimizer. config: checked by lt_shampoo_check_config(). Errors: those of lt_optim_shampoo(). */
LT_MUST_CHECK lt_status lt_shampoo_new(lt_optim **out, const lt_params *params,
                                       const lt_shampoo_config *config);

/* Checks a config for ranges and contradictions, and replaces markers of
 * defaults by their values. Errors: LT_E_ARG, naming field and range. */
LT_MUST_CHECK lt_status lt_shampoo_check_config(lt_shampoo_config *config);

#endif
