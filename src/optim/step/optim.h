/* State of an optimizer's slots. */
#ifndef LT_OPTIM_STEP_OPTIM_H
#define LT_OPTIM_STEP_OPTIM_H

#include "lather/ext/optim.h"

/* State is made when it is first used: only then it is known which rank owns it. */
LT_MUST_CHECK lt_status lt_optim_make_state(const lt_optim *o);

#endif
