/* A step over all blocks. */
#ifndef LT_OPTIM_SHAMPOO_STEP_H
#define LT_OPTIM_SHAMPOO_STEP_H

#include "optim/shampoo/shampoo.h"

lt_status lt_shampoo_step(lt_optim *self, const lt_scalars *scalars);
/* The step in two graphs with host work between them. */
extern const lt_host_phase_ops lt_shampoo_host_phase;
bool lt_shampoo_is_capturable(const lt_optim *self);

#endif
