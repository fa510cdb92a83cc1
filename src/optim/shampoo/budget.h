/* How often roots are computed so that they take no more than a share of the step's time. */
#ifndef LT_OPTIM_SHAMPOO_BUDGET_H
#define LT_OPTIM_SHAMPOO_BUDGET_H

#include "optim/shampoo/shampoo.h"

/* The longest interval that a budget chooses: older roots are none of the present factors. */
enum { LT_LONGEST_INTERVAL = 1000 };

/* Steps between new roots so that r seconds for all of them take at most `budget` of the time, t being the
 * seconds of a step without them: the least f with r / f <= budget (t + r / f), a multiple of `multiple`, in
 * [1, LT_LONGEST_INTERVAL] where a multiple lies there. */
int64_t lt_budget_interval(double r, double t, double budget, int64_t multiple);

/* Of count numbers, which it sorts. */
double lt_budget_median(double *x, int64_t count);

/* At the beginning of a step: what the one before took, and when it is time, the choice. Without effect
 * without a budget. Collective in the step that chooses, if the optimizer is divided. */
LT_MUST_CHECK lt_status lt_shampoo_keep_budget(lt_shampoo *s);

/* Shows the chosen interval, 0 before; loading one, it is that of the next step. */
LT_MUST_CHECK lt_status lt_shampoo_visit_budget(lt_shampoo *s, const lt_state_visitor *visitor);

#endif
