/* How a parameter becomes blocks: which settings are for it, and what they make of its shape. */
#ifndef LT_OPTIM_SHAMPOO_PARTITION_H
#define LT_OPTIM_SHAMPOO_PARTITION_H

#include "optim/shampoo/block.h"

#include "lather/ext/optim.h"

typedef struct lt_partition {
    int dim, parts;          /* of a joined parameter: equal parts along dim; parts 1: it is none */
    lt_merged merged;        /* a part */
    bool whole[LT_MAX_DIMS]; /* of the merged shape: not cut, and without a factor */
    bool diagonal;           /* blocks keep the diagonal of their factors only */
    int64_t limit;           /* longest side of a block */
} lt_partition;

/* The cuts of all slots. Errors: LT_E_ARG (a part of that kind cannot be had, naming the parameter). */
LT_MUST_CHECK lt_status lt_partition_params(const lt_shampoo_config *config, const lt_optim *optim,
                                            lt_partition *partition);

/* A block: which part, and the box of it. */
typedef struct lt_partition_block {
    int part;
    lt_region region;
} lt_partition_block;
/* Blocks of all parts, those of a part together. */
int64_t lt_partition_blocks(const lt_partition *partition);
lt_partition_block lt_partition_block_at(const lt_partition *partition, int64_t index);
/* Where a box of a part begins in the parameter's merged indices: parts of one dimension follow each other. */
lt_shape lt_partition_offset(const lt_partition *partition, int part, const lt_region *region);
/* The part in the parameter's own memory. */
lt_view lt_partition_part_view(const lt_partition *partition, int part, const lt_view *parameter);
/* Merged dimensions that may have a factor. */
int lt_partition_order(const lt_partition *partition);

#endif
