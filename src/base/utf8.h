/* Characters in UTF-8. */
#ifndef LT_BASE_UTF8_H
#define LT_BASE_UTF8_H

#include <stdint.h>

/* Bytes of the UTF-8 character at `at`, 1 to 4, or 0 if invalid. */
int lt_utf8_bytes(const char *at, const char *end);
/* The character at `at`, whose UTF-8 is whole; *bytes: its bytes. */
uint32_t lt_utf8_code(const char *at, int *bytes);
/* Writes a character; its bytes, 1 to 4. */
int lt_utf8_put(char *to, uint32_t code);

#endif
