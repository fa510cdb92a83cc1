/* CRC-32C (Castagnoli): the checksum of checkpoints and of TensorBoard's records. */
#ifndef LT_BASE_CRC32C_H
#define LT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc, which begins as 0, over bytes of data. */
uint32_t lt_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The two ways it is computed, for the test that compares them; the first wants SSE4.2. */
uint32_t lt_crc32c_hardware(uint32_t crc, const void *data, size_t bytes);
uint32_t lt_crc32c_tables(uint32_t crc, const void *data, size_t bytes);
/* Whether this CPU has the instruction. */
int lt_crc32c_has_hardware(void);

#endif
