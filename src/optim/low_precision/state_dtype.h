/* Moments in fewer bytes, for optimizers that can step slot by slot (ops->by_slots). */
#include "lather/ext/optim.h"

/* Returns the bytes of a slot's state, on this rank or at its owner. */
#ifndef LT_OPTIM_LOW_PRECISION_STATE_DTYPE_H
#define LT_OPTIM_LOW_PRECISION_STATE_DTYPE_H

int64_t lt_optim_slot_state_bytes(const lt_optim *o, const lt_slot *slot);
/* Makes the slot's quantized state. */
LT_MUST_CHECK lt_status lt_optim_make_quantized(const lt_optim *o, lt_slot *slot);
/* Runs ops->step, with quantized state dequantized for some slots at a time. */
LT_MUST_CHECK lt_status lt_optim_step_slots(lt_optim *o);

#endif
