/* Results of steps that are copied to the host while the next one runs. */
#include "lather/ext/optim.h"

void lt_optim_free_results(lt_optim *o);
/* Returns true while results are in flight. */
#ifndef LT_OPTIM_STEP_RESULT_H
#define LT_OPTIM_STEP_RESULT_H

bool lt_optim_has_results(const lt_optim *o);

#endif
