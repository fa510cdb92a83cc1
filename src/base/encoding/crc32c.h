/* CRC-32C (Castagnoli): checksum of checkpoints and of TensorBoard records. */
#ifndef LT_BASE_CRC32C_H
#define LT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues a CRC, initially 0, over bytes of data. */
uint32_t lt_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The two implementations of lt_crc32c(), for the test that compares them; the first requires SSE4.2. */
uint32_t lt_crc32c_hardware(uint32_t crc, const void *data, size_t bytes);
uint32_t lt_crc32c_tables(uint32_t crc, const void *data, size_t bytes);
/* Returns true if this CPU has the CRC-32C instruction, of SSE4.2. */
int lt_crc32c_has_hardware(void);

#endif
