/* State of an optimizer's slots. */
#ifndef LT_OPTIM_STEP_OPTIM_H
#define LT_OPTIM_STEP_OPTIM_H

#include "lather/ext/optim.h"

/* Makes the state of all slots. Called at its first use, when the owners are known. */
LT_MUST_CHECK lt_status lt_optim_make_state(const lt_optim *o);

#endif
