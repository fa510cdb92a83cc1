/* FNV-1a, 64 bits: Fowler, Noll & Vo, draft-eastlake-fnv. For tables and comparisons within a run; neither a checksum
 * (base/encoding/crc32c.h) nor safe against chosen inputs. */
#ifndef LT_BASE_HASH_H
#define LT_BASE_HASH_H

#include "base/inline.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LT_FNV1A_BEGIN UINT64_C(0xCBF29CE484222325) /* initial hash: FNV-1a's offset basis */

/* Continues a hash, initially LT_FNV1A_BEGIN, over bytes of data. */
LT_PURE uint64_t lt_fnv1a(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *b = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001B3); /* FNV-1a's prime */
    return hash;
}

/* Continues a hash over a string, without its NUL. */
LT_PURE uint64_t lt_fnv1a_text(uint64_t hash, const char *text)
{
    return lt_fnv1a(hash, text, strlen(text));
}

#endif
