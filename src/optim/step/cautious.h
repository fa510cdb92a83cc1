/* Private declarations of lather/cautious.h for the step. Without effect if updates are not cautious. */
#ifndef LT_OPTIM_CAUTIOUS_H
#define LT_OPTIM_CAUTIOUS_H

#include "lather/cautious.h"
#include "lather/ext/optim.h"

/* Copies the parameters before an update (begin) and changes the update (end), unless it is skipped. */
LT_MUST_CHECK lt_status lt_cautious_begin_update(lt_optim *o);
LT_MUST_CHECK lt_status lt_cautious_end_update(lt_optim *o);
void lt_cautious_free(lt_optim *o);

#endif
