/* Characters, and the known word that a wrong one was probably meant to be; besides lather/text.h. */
#ifndef LT_BASE_TEXT_H
#define LT_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 character at `at`, 1 to 4; 0: it is none. */
int lt_utf8_bytes(const char *at, const char *end);
/* Writes a character; its bytes, 1 to 4. */
int lt_utf8_put(char *to, uint32_t code);

/* Insertions, deletions and replacements that make b of the first bytes of a. */
size_t lt_edit_distance(const char *a, size_t bytes, const char *b);

/* The word with the fewest of them; the first of several. count >= 1. */
const char *lt_nearest(const char *text, const char *const *words, size_t count);

#endif
