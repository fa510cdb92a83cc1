/* Private declarations of lather/averaging.h, for a step. Without effect where nothing is averaged. */
#ifndef LT_OPTIM_AVERAGING_H
#define LT_OPTIM_AVERAGING_H

#include "lather/averaging.h"
#include "lather/ext/optim.h"

/* The weight of the step's iterate. Errors: LT_E_ARG (values are those of an evaluation). */
LT_MUST_CHECK lt_status lt_averaging_prepare(lt_optim *o, double lr);
/* The step was skipped: its learning rate has no weight in later means. */
void lt_averaging_skipped(lt_optim *o);
/* Switches the values to z before an update (begin) and to y after it (end), which may have been skipped. */
LT_MUST_CHECK lt_status lt_averaging_begin(lt_optim *o);
LT_MUST_CHECK lt_status lt_averaging_end(lt_optim *o);

/* Returns true if the weights of iterates are the same in each step. */
bool lt_averaging_is_constant(const lt_optim *o);
size_t lt_averaging_bytes(const lt_optim *o);
/* The number to save. Errors: LT_E_ARG (values are y). */
LT_MUST_CHECK lt_status lt_averaging_visit(lt_optim *o, const lt_state_visitor *visitor);
void lt_averaging_free(lt_optim *o);

#endif
