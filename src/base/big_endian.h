/* Reading of big-endian integers at any alignment. */
#ifndef LT_BASE_BIG_ENDIAN_H
#define LT_BASE_BIG_ENDIAN_H

#include <stddef.h>
#include <stdint.h>

/* Returns the integer in `count` bytes, 0 to 8. */
static inline uint64_t lt_read_big_endian(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;
    while (count--)
        value = value << 8 | *bytes++;
    return value;
}

#endif
