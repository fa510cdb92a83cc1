/* UTF-8 encoding. */
#ifndef LT_BASE_UTF8_H
#define LT_BASE_UTF8_H

#include <stdint.h>

/* Returns the length in bytes, 1 to 4, of the UTF-8 character at `at`, or 0 if invalid. */
int lt_utf8_length(const char *at, const char *end);
/* Decodes the valid UTF-8 character at `at`; sets *bytes to its length. */
uint32_t lt_utf8_decode(const char *at, int *bytes);
/* Encodes a character. Returns its length in bytes, 1 to 4. */
int lt_utf8_encode(char *to, uint32_t code);

#endif
