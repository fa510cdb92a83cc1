/* Partition of a parameter into blocks by the settings that match its name and by its shape. */
#ifndef LT_OPTIM_SHAMPOO_PARTITION_H
#define LT_OPTIM_SHAMPOO_PARTITION_H

#include "optim/registry/splits.h"
#include "optim/shampoo/block.h"

#include "lather/ext/optim.h"

typedef struct lt_partition {
    lt_split split;          /* parts of a joined parameter */
    lt_merged merged;        /* merged shape of one part */
    bool whole[LT_MAX_DIMS]; /* merged dimensions that are not split and have no factor */
    bool diagonal;           /* blocks of the parameter keep only the diagonal of their factors */
    int64_t limit;           /* largest dimension of a block of the parameter */
} lt_partition;

/* Computes the partitions of all slots. Errors: LT_E_ARG (the parameter cannot be partitioned as configured; names
 * it), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_partition_params(const lt_shampoo_config *config, const lt_optim *optim,
                                            lt_partition *partition);

/* A block: the index of its part, and its region of that part. */
typedef struct lt_partition_block {
    int part;
    lt_region region;
} lt_partition_block;
/* Returns the number of blocks of all parts, and block number index; the blocks of a part are consecutive. */
int64_t lt_partition_count_blocks(const lt_partition *partition);
lt_partition_block lt_partition_block_at(const lt_partition *partition, int64_t index);
/* Returns the offset of a region of a part in the parameter's merged indices; parts are consecutive along one
 * dimension. */
lt_shape lt_partition_offset(const lt_partition *partition, int part, const lt_region *region);
/* Returns the number of merged dimensions that may have a factor. */
int lt_partition_count_factor_dims(const lt_partition *partition);

#endif
