/* An optimizer's slots: items for the backend's list kernels, numbers for checkpoints. */
#include "lather/ext/optim.h"

/* Fills self->item as lt_optim_items() does; all: includes parameters that another rank updates. */
#ifndef LT_OPTIM_SLOTS_H
#define LT_OPTIM_SLOTS_H

size_t lt_optim_fill_items(lt_optim *self, bool all);
/* Returns true if the slot has its optimizer's slot_state[index], here or at its owner. */
bool lt_optim_has_state(const lt_optim *o, const lt_slot *slot, int index);
/* Runs one batched kernel with the step's scalars; does nothing for count 0. */
LT_MUST_CHECK lt_status lt_optim_vec(const lt_optim *o, const lt_vec_job *job, size_t count);
/* Reads a number of the master dtype or f64. Waits for the device. */
LT_MUST_CHECK lt_status lt_optim_read_number(const lt_optim *o, const lt_view *at, double *value);
/* Adds `by` to the updates of parameters with a gradient. */
void lt_optim_count_updates(lt_optim *o, int64_t by);

/* Shows a counter under the name "NAME.PARAM". */
lt_status lt_optim_visit_number(const lt_state_visitor *visitor, const char *name,
                                const char *param, int64_t *value);
/* Sets the valid range of a counter of that name after `attempt` attempts, which are below 2^62. */
void lt_optim_number_range(const char *name, int64_t attempt, int64_t *low, int64_t *high);

/* Returns true for a matrix stored [in,out], as GPT-2's Conv1D, not [out,in]; decided by fan_in and fan_out. */
static inline bool lt_optim_is_in_out(const lt_param *p)
{
    const lt_shape s = lt_tensor_shape(p->value);
    return s.ndim == 2 && p->fan_in != p->fan_out && p->fan_in == s.dim[0]
           && p->fan_out == s.dim[1];
}

#endif
