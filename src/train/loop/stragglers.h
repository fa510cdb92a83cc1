/* Steps that do not wait for stragglers: whose gradients are used, and until when micro-batches are begun. */
#ifndef LT_TRAIN_STRAGGLERS_H
#define LT_TRAIN_STRAGGLERS_H

#include "lather/stragglers.h"
#include "lather/train_step.h"

/* What there is to do with the micro-batches of a step. */
typedef struct lt_stragglers lt_stragglers;

/* Errors: LT_E_ARG, naming the flag and the numbers. */
LT_MUST_CHECK lt_status lt_stragglers_check(const lt_straggler_config *config, int ranks,
                                            int64_t grad_accum);
/* Collective, of a config that was checked. Reads config->contributors on rank 0. Errors: LT_E_IO, LT_E_FORMAT (the file names no set for
 * so many ranks), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_stragglers_new(lt_stragglers **out, const lt_straggler_config *config,
                                          lt_data_parallel *dp, lt_comm *comm, int64_t grad_accum);
void lt_stragglers_free(lt_stragglers **stragglers);
/* Of config, for lt_data_parallel_new(). */
void lt_stragglers_configure(const lt_straggler_config *config, int ranks, int64_t grad_accum,
                             lt_data_parallel_config *out);

/* A step begins. Errors: LT_E_ARG (the file of contributors has no such step). */
LT_MUST_CHECK lt_status lt_stragglers_begin(lt_stragglers *s, int64_t step);
/* Whether micro-batch number micro is to be begun. */
bool lt_stragglers_goes_on(const lt_stragglers *s, int64_t micro);
/* Returns true if updates may leave out whole ranks (backup workers), false if single micro-batches. */
bool lt_stragglers_drops_ranks(const lt_stragglers *s);
/* So many micro-batches were computed by now; before their gradients are exchanged. Errors: LT_E_DEVICE. */
LT_MUST_CHECK lt_status lt_stragglers_computed(lt_stragglers *s, int64_t count);
/* Whether what this rank computed in the running step is used. */
bool lt_stragglers_is_used(const lt_stragglers *s);
/* Behind the gradients' exchange: begins, and ends, what ranks tell each other of a step. Collective. Errors: LT_E_ARG
 * (the deadline is below one micro-batch, on all ranks), LT_E_COMM. */
LT_MUST_CHECK lt_status lt_stragglers_send(lt_stragglers *s);
LT_MUST_CHECK lt_status lt_stragglers_end(lt_stragglers *s, double seconds);

/* Latencies are to be recorded anew, where the deadline is by them. */
void lt_stragglers_renew(lt_stragglers *s);

/* Of the last step: "0 2 3", the ranks in the set, or "4 4 3 4", each rank's micro-batches; and the record's event. */
const char *lt_stragglers_text(const lt_stragglers *s);
const char *lt_stragglers_event(const lt_stragglers *s);
const char *lt_stragglers_by(const lt_stragglers *s); /* the text's key */
/* Micro-batches of all ranks that were not used in it; the deadline. NAN: none; s may be NULL. */
double lt_stragglers_dropped(const lt_stragglers *s);
double lt_stragglers_deadline(const lt_stragglers *s);
/* Since the last call, the plan by which the deadline was chosen, on all ranks the same; NULL: none. */
const lt_drop_plan *lt_stragglers_new_plan(lt_stragglers *s);
/* The last failure was the same on all ranks. */
bool lt_stragglers_same_failure(const lt_stragglers *s);

#endif
