/* Defines the byte counter of memory_traffic.h. */

#include "base/memory_traffic.h"

_Atomic int64_t lt_memory_traffic_bytes;
