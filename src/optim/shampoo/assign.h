/* Cost model of blocks, and their assignment to ranks. */
#ifndef LT_OPTIM_SHAMPOO_ASSIGN_H
#define LT_OPTIM_SHAMPOO_ASSIGN_H

#include "optim/shampoo/shampoo.h"

extern const lt_part_ops lt_shampoo_parts;
/* Modelled time of a step; reads the block's box and factors' kinds. */
double lt_block_nanoseconds(const lt_shampoo_config *config, const lt_block *block);
/* Its components: a step without roots, and all its roots once. */
double lt_block_step_nanoseconds(const lt_shampoo_config *config, const lt_block *block);
double lt_block_refresh_nanoseconds(const lt_block *block);
/* Modelled cost of the block's roots, in n^3 of its factors. */
double lt_block_root_cost(const lt_block *block);

#endif
