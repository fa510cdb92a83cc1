/* Private declarations of lather/averaging.h for the step. Without effect if the optimizer does not average. */
#ifndef LT_OPTIM_AVERAGING_H
#define LT_OPTIM_AVERAGING_H

#include "lather/averaging.h"
#include "lather/ext/optim.h"

/* Computes the weight of this step's iterate. Errors: LT_E_ARG (the parameters hold the evaluation weights). */
LT_MUST_CHECK lt_status lt_averaging_compute_weight(lt_optim *o, const lt_step *step);
/* Undoes lt_averaging_compute_weight() for a skipped step: removes its share of the sum of weights. */
void lt_averaging_undo_weight(lt_optim *o);
/* Switches the parameters to z before an update (begin) and to y after it (end), which may have been skipped. */
LT_MUST_CHECK lt_status lt_averaging_begin_update(lt_optim *o);
LT_MUST_CHECK lt_status lt_averaging_end_update(lt_optim *o);

/* Returns true if iterates have the same weight in each step. */
bool lt_averaging_has_fixed_weight(const lt_optim *o);
size_t lt_averaging_bytes(const lt_optim *o);
/* Passes the sum of weights to the visitor, for a checkpoint. Errors: LT_E_ARG (the parameters hold y). */
LT_MUST_CHECK lt_status lt_averaging_visit(lt_optim *o, const lt_state_visitor *visitor);
void lt_averaging_free(lt_optim *o);

#endif
