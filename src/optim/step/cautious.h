/* Private declarations of lather/cautious.h for the step. Without effect if updates are not cautious. */
#ifndef LT_OPTIM_CAUTIOUS_H
#define LT_OPTIM_CAUTIOUS_H

#include "lather/cautious.h"
#include "lather/ext/optim.h"

/* lt_optim_ops.decay_lr, optional, returns the factor of lr in addition to lr_scale that multiplies a slot's decoupled weight
 * decay; NaN: another kind of decay. Without it decay is decoupled if decay_is_apart. */

/* Copies the parameters before an update (begin) and changes the update (end), unless it is skipped. */
LT_MUST_CHECK lt_status lt_cautious_begin_update(lt_optim *o);
LT_MUST_CHECK lt_status lt_cautious_end_update(lt_optim *o);
/* Passes Hyperball's norms to the visitor, for a checkpoint. */
LT_MUST_CHECK lt_status lt_cautious_visit(const lt_optim *o, const lt_state_visitor *visitor);
void lt_cautious_free(lt_optim *o);

#endif
