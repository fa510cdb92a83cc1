/* Counter of the bytes that kernels read and write in this process, for lt_memory_traffic(). */
#ifndef LT_BASE_MEMORY_TRAFFIC_H
#define LT_BASE_MEMORY_TRAFFIC_H

#include <stdatomic.h>
#include <stdint.h>

extern _Atomic int64_t lt_memory_traffic_bytes;

/* Adds to the counter. Thread-safe. */
static inline void lt_memory_traffic_add(int64_t bytes)
{
    atomic_fetch_add_explicit(&lt_memory_traffic_bytes, bytes, memory_order_relaxed);
}

#endif
