/* See moved.h. */

#include "base/moved.h"

_Atomic int64_t lt_moved_bytes;
