/* CRC-32C, polynomial 0x1EDC6F41 (RFC 3720, appendix B.4), by the SSE4.2 instruction if the CPU has it, else by eight
 * tables (Kounavis & Berry, "A Systematic Approach to Building High Performance, Software-based, CRC Generators", ISCC
 * 2005). */

#include "crc32c.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78U : 0); /* the polynomial, reflected */
        table[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 255];
}

uint32_t lt_crc32c_tables(uint32_t crc, const void *data, size_t bytes)
{
    pthread_once(&once, make_tables);
    const unsigned char *p = data;
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word = le64toh(word) ^ crc;
        crc = 0;
        for (int t = 0; t < 8; t++)
            crc ^= table[7 - t][(word >> (8 * t)) & 255];
    }
    for (; bytes; bytes--, p++)
        crc = (crc >> 8) ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) uint32_t lt_crc32c_hardware(uint32_t crc, const void *data,
                                                              size_t bytes)
{
    const unsigned char *p = data;
    uint64_t wide = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes; bytes--, p++)
        crc = __builtin_ia32_crc32qi(crc, *p);
    return ~crc;
}

int lt_crc32c_has_hardware(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

#else

uint32_t lt_crc32c_hardware(uint32_t crc, const void *data, size_t bytes)
{
    return lt_crc32c_tables(crc, data, bytes);
}

int lt_crc32c_has_hardware(void)
{
    return 0;
}

#endif

uint32_t lt_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return lt_crc32c_has_hardware() ? lt_crc32c_hardware(crc, data, bytes)
                                    : lt_crc32c_tables(crc, data, bytes);
}
