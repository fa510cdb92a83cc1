/* Checks of a Shampoo config. */
#ifndef LT_OPTIM_SHAMPOO_FAMILY_H
#define LT_OPTIM_SHAMPOO_FAMILY_H

#include "lather/shampoo.h"

/* Checks ranges and contradictions, and replaces markers of defaults by their values. Errors: LT_E_ARG, naming
 * field and range. */
LT_MUST_CHECK lt_status lt_shampoo_check(lt_shampoo_config *config);

#endif
