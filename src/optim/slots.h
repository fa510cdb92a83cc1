/* Private declarations of all optimizers: slots and their state, step scalars, cached casts, step counts per
 * parameter, results. */
#ifndef LT_OPTIM_SLOTS_H
#define LT_OPTIM_SLOTS_H

#include "lather/ext/optim.h"

/* Fills self->item as lt_optim_collect_items() does; all: includes parameters that another rank updates. */
size_t lt_optim_fill_items(lt_optim *self, bool all);
/* Returns true if the slot has its optimizer's slot_state[index], here or at its owner. */
bool lt_optim_slot_has_state(const lt_optim *o, const lt_slot *slot, int index);
/* Runs one batched kernel with the step's scalars; does nothing for count 0. */
LT_MUST_CHECK lt_status lt_optim_run_vec_jobs(const lt_optim *o, const lt_vec_job *job,
                                              size_t count);
/* Reads a number of the master dtype or f64. Waits for the device. */
LT_MUST_CHECK lt_status lt_optim_read_device_scalar(const lt_optim *o, const lt_view *at,
                                                    double *value);
/* Adds up an f64 tensor over the ranks that share the state, for optimizers with visits_numbers. */
LT_MUST_CHECK lt_status lt_optim_sum_over_owners(const lt_optim *o, lt_tensor *sum);
/* Adds `by` to the count of updates of parameters with a gradient. */
void lt_optim_add_to_update_counts(lt_optim *o, int64_t by);

/* Returns true if the slot has weight decay, applied by the optimizer or around it. */
bool lt_optim_slot_decays(const lt_optim *o, const lt_slot *slot);

/* Returns true if the first update of a parameter is due. */
bool lt_optim_has_first_update(const lt_optim *o);

/* Returns the slot's state in *out, dequantized to *temporary, which the caller frees, if it is quantized. */
LT_MUST_CHECK lt_status lt_optim_expand_state(const lt_slot *slot, int index, lt_tensor **temporary,
                                              lt_tensor **out);
/* Computes |m| / |sqrt(v)| of state 0 and 1, Euclidean norms after bias correction; NaN if v is 0. Waits for the
 * device. */
LT_MUST_CHECK lt_status lt_optim_moment_ratio(const lt_optim *o, const lt_slot *slot, double beta1,
                                              double beta2, double *ratio);

/* An update_size entry for methods that divide each element by the root of its second moment. */
lt_update_size lt_optim_normalized_size(const lt_optim *self, const lt_slot *slot);

/* Passes a counter to the visitor under the name "NAME.PARAM". */
lt_status lt_optim_visit_counter(const lt_state_visitor *visitor, const char *name,
                                 const char *param, int64_t *value);
/* Passes the bits of a double as an integer, as checkpoints store numbers as integers; param NULL: under the name alone. */
lt_status lt_optim_visit_double(const lt_state_visitor *visitor, const char *name,
                                const char *param, double *value);
/* Sets the valid range of a counter of that name after `attempt` attempts, which are below 2^62. */
void lt_optim_counter_range(const char *name, int64_t attempt, int64_t *low, int64_t *high);

/* Returns true for a matrix stored [in,out], as GPT-2's Conv1D, not [out,in]; decided by fan_in and fan_out. */
static inline bool lt_optim_weight_is_in_by_out(const lt_param *p)
{
    const lt_shape s = lt_tensor_shape(p->value);
    return s.ndim == 2 && p->fan_in != p->fan_out && p->fan_in == s.dim[0]
           && p->fan_out == s.dim[1];
}

LT_MUST_CHECK lt_status lt_optim_make_scalars(lt_optim *o);
void lt_optim_free_scalars(lt_optim *o);
/* Queues the copy of the scalars that the host sets for a step. */
LT_MUST_CHECK lt_status lt_optim_send_scalars(lt_optim *o, const lt_step *step);
/* Reads the step's scalars from the device; waits for it. */
LT_MUST_CHECK lt_status lt_optim_read_scalars(const lt_optim *o, lt_scalars *s);

/* Makes the backend's update kernels write the cached casts of weights too (on), or stop doing so. */
void lt_optim_fuse_cast_updates(const lt_optim *o, bool on);
/* Rebuilds, before a step, the casts of weights that were written since the last one. */
LT_MUST_CHECK lt_status lt_optim_refresh_casts(lt_optim *o);

/* Counts this step as missed by parameters without a gradient, unless it is skipped. Call after grad_norm, before
 * ops->step. */
LT_MUST_CHECK lt_status lt_optim_count_missed(lt_optim *o);
/* Sets the slots' updates from the counts on the device, or (to_missed) the counts from the updates. Waits for the
 * device. */
LT_MUST_CHECK lt_status lt_optim_convert_counts(lt_optim *o, int64_t applied, bool to_missed);

/* Makes the state of all slots. Called at its first use, when the owners are known. */
LT_MUST_CHECK lt_status lt_optim_make_state(const lt_optim *o);
void lt_optim_free_results(lt_optim *o);
/* Returns true while results of steps are being copied to the host. */
bool lt_optim_has_results_in_flight(const lt_optim *o);

/* Returns the bytes of a slot's state, on this rank or at its owner. */
int64_t lt_optim_slot_state_bytes(const lt_optim *o, const lt_slot *slot);
/* Makes the slot's quantized state. */
LT_MUST_CHECK lt_status lt_optim_make_quantized_state(const lt_optim *o, lt_slot *slot);
/* Runs ops->step, with quantized state dequantized for some slots at a time. */
LT_MUST_CHECK lt_status lt_optim_step_slots(lt_optim *o);

#endif
