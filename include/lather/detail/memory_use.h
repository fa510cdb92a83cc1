/** Breakdown of tensor memory at its peak, and memory traffic of cpu kernels. */
#ifndef LATHER_DETAIL_MEMORY_USE_H
#define LATHER_DETAIL_MEMORY_USE_H

/* Not a stable interface: may change in any release. */

#include "lather/device.h"

/** Memory of one operation. when is "forward", "again" (outputs recomputed in backward), "backward" (gradients,
 *  scratch) or "gradients" (gradients of parameters that this operation wrote first). name and when are NULL
 *  for memory allocated outside operations: parameters, optimizer state, batches. The strings are static. */
typedef struct lt_memory_use {
    const char *name, *when;
    size_t bytes;
} lt_memory_use;

/** Returns the breakdown at the time of lt_memory.peak, which is its sum: writes at most count rows, largest
 *  first, and returns the number of rows available. */
LT_API int lt_device_memory_by_op(const lt_device *device, lt_memory_use *out, int count);

/** Returns the bytes that kernels of the device "cpu" have read and written in this process. Each operand
 *  counts once per pass over memory, whatever the caches held; results that a fused kernel keeps in cache do
 *  not count. Covers convolutions, norms of images, pooling, sums, normalisation and casts; not matrix products
 *  and optimizers. */
LT_API int64_t lt_memory_traffic(void);

#endif
