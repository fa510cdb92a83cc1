/* Shampoo's entries for --optim-stats. */
#ifndef LT_OPTIM_SHAMPOO_OPTIM_STATS_H
#define LT_OPTIM_SHAMPOO_OPTIM_STATS_H

#include "optim/shampoo/shampoo.h"

lt_stat_block_fn lt_shampoo_stat_block;
lt_stat_factor_fn lt_shampoo_stat_factor;
lt_describe_fn lt_shampoo_describe;

#endif
