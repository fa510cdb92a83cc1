/* Inside of optimizers. */
#ifndef LT_OPTIM_OPTIM_H
#define LT_OPTIM_OPTIM_H

#include "lather/comm.h"
#include "lather/ext/optim.h"

/* Shows a counter under the name "NAME.PARAM". */
lt_status lt_optim_visit_number(const lt_state_visitor *visitor, const char *name,
                                const char *param, int64_t *value);

/* The range of a counter of that name after so many attempts. attempt < 2^62. */
void lt_optim_number_range(const char *name, int64_t attempt, int64_t *low, int64_t *high);

/* step.c: the numbers of steps. */
lt_status lt_optim_make_scalars(lt_optim *o);
/* Waits for the device. */
lt_status lt_optim_read_scalars(const lt_optim *o, lt_scalars *s);
/* Of parameters with a gradient. */
void lt_optim_count_updates(lt_optim *o, int64_t by);

/* Returns true for a matrix stored [in,out], as GPT-2's Conv1D, not [out,in]; decided by fan_in and fan_out. */
static inline bool lt_optim_is_in_out(const lt_param *p)
{
    const lt_shape s = lt_tensor_shape(p->value);
    return s.ndim == 2 && p->fan_in != p->fan_out && p->fan_in == s.dim[0]
           && p->fan_out == s.dim[1];
}

/* missed.c, without effect unless lt_optim_count_per_param() was called. */
/* Counts this step for parameters without a gradient, unless it is skipped. Before ops->step, after grad_norm. */
LT_MUST_CHECK lt_status lt_optim_count_missed(lt_optim *o);
/* Sets slots' updates from the counts on the device (to_missed: the other way round). Waits for the device. */
LT_MUST_CHECK lt_status lt_optim_convert_counts(lt_optim *o, int64_t applied, bool to_missed);

/* step.c: entries of the backend also write the 16-bit copies that it keeps of weights, or not any more. */
void lt_optim_keep_casts(const lt_optim *o, bool on);
/* Before a step: copies of values that were written since the last one. */
lt_status lt_optim_refresh_casts(lt_optim *o);

/* result.c */
void lt_optim_free_results(lt_optim *o);
/* Whether results are in flight. */
bool lt_optim_has_results(const lt_optim *o);

/* part_norms.c: grad_norm's numbers, where the norm is that of parts. Collective, if divided. */
LT_MUST_CHECK lt_status lt_optim_norm_of_parts(lt_optim *o);
void lt_optim_free_part_norms(lt_optim *o);
/* The norm is that of count boxes' norms: of slot k's gradient in place at[k], or another rank counts it. Takes at.
 * Collective over comm in each step. */
enum { LT_BOX_OF_OTHERS = -1 };
/* Whether it updates boxes of parameters, lt_placed_attach_boxes(). */
bool lt_optim_has_boxes(const lt_optim *o);
LT_MUST_CHECK lt_status lt_optim_norm_by_boxes(lt_optim *o, lt_comm *comm, int64_t *at,
                                               size_t count);

/* shard_params.c: around an update; without effect where parameters are not divided. */
LT_MUST_CHECK lt_status lt_optim_begin_owned_update(lt_optim *o);
void lt_optim_end_owned_update(lt_optim *o);

/* shard.c: of a divided optimizer. */
void lt_shard_free(lt_optim *optim);

/* State is made when it is first used: only then it is known which rank owns it. */
lt_status lt_optim_make_state(const lt_optim *o);
/* Whether the slot has its optimizer's slot_state[index], here or at its owner. */
bool lt_optim_has_state(const lt_optim *o, const lt_slot *slot, int index);
/* state_dtype.c: bytes of a slot's state, here or at its owner. */
int64_t lt_optim_slot_state_bytes(const lt_optim *o, const lt_slot *slot);
/* Makes the slot's quantized state. */
lt_status lt_optim_make_quantized(const lt_optim *o, lt_slot *slot);
/* ops->step, with quantized state opened for some slots at a time. */
lt_status lt_optim_step_slots(lt_optim *o);
/* As lt_optim_items(); all: also of parameters that another rank updates. */
size_t lt_optim_fill_items(lt_optim *self, bool all);

#endif
