/* 64-bit XXH3 from the xxHash library. */

#include "data/pack/pack.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t lt_hash64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

bool lt_has_xxhash(void)
{
    return true;
}
