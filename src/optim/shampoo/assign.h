/* Cost model of Shampoo's blocks, by which they are assigned to ranks. */
#ifndef LT_OPTIM_SHAMPOO_ASSIGN_H
#define LT_OPTIM_SHAMPOO_ASSIGN_H

#include "optim/shampoo/shampoo.h"

extern const lt_part_ops lt_shampoo_parts;
/* Returns the modelled nanoseconds of a step of the block, refreshes included at their frequency. */
double lt_block_nanoseconds(const lt_shampoo_config *config, const lt_block *block);
/* Returns the modelled nanoseconds of a step without refresh, and of one refresh of all its roots. */
double lt_block_step_nanoseconds(const lt_shampoo_config *config, const lt_block *block);
double lt_block_refresh_nanoseconds(const lt_block *block);
/* Returns the modelled cost of the block's inverse roots: the sum of n^3 over its factors. */
double lt_block_root_cost(const lt_block *block);

#endif
