/** What holds the memory of tensors when they hold most. */
#ifndef LATHER_DETAIL_MEMORY_USE_H
#define LATHER_DETAIL_MEMORY_USE_H

/* Not a stable interface: may change in any release. */

#include "lather/device.h"

/** What an operation held: when is "forward", "again" (outputs made again in backward), "backward"
 *  (gradients, scratch) or "gradients" (of parameters, which this operation wrote first). name and when are
 *  NULL for what no operation took: parameters, state of optimizers, batches. They live as long as the library. */
typedef struct lt_memory_use {
    const char *name, *when;
    size_t bytes;
} lt_memory_use;

/** Who held how much when lt_memory.used was largest (lt_memory.peak is their sum), the largest first, at most
 *  count of them. Returns how many there are. */
LT_API int lt_device_memory_uses(const lt_device *device, lt_memory_use *out, int count);

/** Bytes that kernels of the device "cpu" have read and written in this process: each operand of a pass over memory once,
 *  whatever the caches held, and what a fused form leaves in them not at all. Of convolutions, norms of images, pooling,
 *  sums, normalisation and casts; products of matrices and optimizers are not counted. */
LT_API int64_t lt_memory_moved(void);

#endif
