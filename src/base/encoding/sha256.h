/* SHA-256 and HMAC-SHA256 (FIPS 180-4; RFC 2104). */
#ifndef LT_BASE_SHA256_H
#define LT_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { LT_SHA256_BYTES = 32 };

void lt_sha256(uint8_t out[LT_SHA256_BYTES], const void *data, size_t bytes);
void lt_hmac_sha256(uint8_t out[LT_SHA256_BYTES], const void *key, size_t key_bytes,
                    const void *data, size_t bytes);

#endif
