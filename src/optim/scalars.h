/* Step scalars (lt_scalars) on the device. */
#include "lather/ext/optim.h"

LT_MUST_CHECK lt_status lt_optim_make_scalars(lt_optim *o);
void lt_optim_free_scalars(lt_optim *o);
/* Queues the copy of the scalars that the host sets for a step. */
#ifndef LT_OPTIM_SCALARS_H
#define LT_OPTIM_SCALARS_H

LT_MUST_CHECK lt_status lt_optim_send_scalars(lt_optim *o, const lt_step *step);
/* Reads the scalars; waits for the device. */
LT_MUST_CHECK lt_status lt_optim_read_scalars(const lt_optim *o, lt_scalars *s);

#endif
