/* Exchange of sharded parameters by an all-gather of one flat buffer. */
#ifndef LT_OPTIM_SHARDING_FLAT_H
#define LT_OPTIM_SHARDING_FLAT_H

#include "shard.h"

extern const lt_shard_ops lt_flat_ops;

#endif
