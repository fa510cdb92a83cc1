/* Steps that do not wait for slow ranks: whose gradients are used, and until when micro-batches begin. */
#ifndef LT_TRAIN_STRAGGLERS_H
#define LT_TRAIN_STRAGGLERS_H

#include "lather/stragglers.h"
#include "lather/train_step.h"

/* Decides which micro-batches of a step are computed and used. */
typedef struct lt_stragglers lt_stragglers;

/* Checks the configuration. Errors: LT_E_ARG, naming the flag and the numbers. */
LT_MUST_CHECK lt_status lt_stragglers_check(const lt_straggler_config *config, int ranks,
                                            int64_t grad_accum);
/* Starts the mitigation; config is checked. Collective. Reads config->contributors on rank
 * 0. Errors: LT_E_IO, LT_E_FORMAT (the file has no set for this many ranks), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_stragglers_new(lt_stragglers **out, const lt_straggler_config *config,
                                          lt_data_parallel *dp, lt_comm *comm, int64_t grad_accum);
void lt_stragglers_free(lt_stragglers **stragglers);
/* Sets `needed` and `micro_batches` of the config for lt_data_parallel_new(). */
void lt_stragglers_set_dp_config(const lt_straggler_config *config, int ranks, int64_t grad_accum,
                                 lt_data_parallel_config *out);

/* Begins a step. Errors: LT_E_ARG (the file of contributors has no such step). */
LT_MUST_CHECK lt_status lt_stragglers_begin(lt_stragglers *s, int64_t step);
/* Returns true if micro-batch number micro is to be computed. */
bool lt_stragglers_may_begin(const lt_stragglers *s, int64_t micro);
/* Returns true if updates may leave out whole ranks (backup workers), false if single micro-batches. */
bool lt_stragglers_drops_ranks(const lt_stragglers *s);
/* Call when `count` micro-batches are computed, before their gradients are communicated. Errors: LT_E_DEVICE. */
LT_MUST_CHECK lt_status lt_stragglers_note_computed(lt_stragglers *s, int64_t count);
/* Returns true if this rank's gradients of the running step are used. */
bool lt_stragglers_uses_gradients(const lt_stragglers *s);
/* Begin and end the exchange of a step's counts and latencies; call after that of gradients. Collective. Errors:
 * LT_E_ARG (the deadline is shorter than one micro-batch, on all ranks), LT_E_COMM. */
LT_MUST_CHECK lt_status lt_stragglers_begin_exchange(lt_stragglers *s);
LT_MUST_CHECK lt_status lt_stragglers_end_exchange(lt_stragglers *s, double seconds);

/* Records latencies again, if the deadline depends on them. */
void lt_stragglers_record_again(lt_stragglers *s);

/* Returns the last step's contributors "0 2 3", or each rank's micro-batches "4 4 3 4"; the record's event; the
 * text's key. */
const char *lt_stragglers_format_record(const lt_stragglers *s);
const char *lt_stragglers_event(const lt_stragglers *s);
const char *lt_stragglers_text_key(const lt_stragglers *s);
/* Return the unused micro-batches of all ranks in the last step; the deadline. NaN if absent; s may be
 * NULL. */
double lt_stragglers_count_dropped(const lt_stragglers *s);
double lt_stragglers_deadline(const lt_stragglers *s);
/* Returns the plan from which a new deadline was chosen since the last call, equal on all ranks; NULL if there is
 * none. */
const lt_drop_plan *lt_stragglers_take_new_plan(lt_stragglers *s);
/* Returns true if the last failure was the same on all ranks. */
bool lt_stragglers_same_failure(const lt_stragglers *s);

#endif
