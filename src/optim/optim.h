/* Inside of optimizers. */
#ifndef LT_OPTIM_OPTIM_H
#define LT_OPTIM_OPTIM_H

#include "lather/ext/optim.h"

/* Shows a counter under the name "NAME.PARAM". */
lt_status lt_optim_visit_number(const lt_state_visitor *visitor, const char *name,
                                const char *param, int64_t *value);

/* numbers.c: what a counter of that name may be behind so many attempts. attempt < 2^62. */
void lt_optim_number_range(const char *name, int64_t attempt, int64_t *low, int64_t *high);

/* step.c: the numbers of steps. */
lt_status lt_optim_make_scalars(lt_optim *o);
/* Waits for the device. */
lt_status lt_optim_read_scalars(const lt_optim *o, lt_scalars *s);
/* Of parameters with a gradient. */
void lt_optim_count_updates(lt_optim *o, int64_t by);

/* copies.c: entries write what passes keep of weights, from here on; or no more. */
void lt_optim_follow(const lt_optim *o, bool on);
/* Before a step: values that others wrote since. */
lt_status lt_optim_renew(lt_optim *o);

/* result.c */
void lt_optim_free_results(lt_optim *o);
/* Whether results were sent and not taken. */
bool lt_optim_results_wait(const lt_optim *o);

/* State is made when it is first wanted, as only then it is known which rank has it. */
lt_status lt_optim_make_state(const lt_optim *o);
/* As lt_optim_items(); all: also of parameters that another rank updates. */
size_t lt_optim_fill_items(lt_optim *self, bool all);

#endif
