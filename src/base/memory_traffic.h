/* How many bytes kernels have read and written in this process, for lt_memory_moved(). */
#ifndef LT_BASE_MOVED_H
#define LT_BASE_MOVED_H

#include <stdatomic.h>
#include <stdint.h>

extern _Atomic int64_t lt_moved_bytes;

/* From any thread. */
static inline void lt_moved_add(int64_t bytes)
{
    atomic_fetch_add_explicit(&lt_moved_bytes, bytes, memory_order_relaxed);
}

#endif
