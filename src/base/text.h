/* Suggestions for misspelled words, and hexadecimal digits, in addition to lather/detail/text.h. */
#ifndef LT_BASE_TEXT_H
#define LT_BASE_TEXT_H

#include <stddef.h>

/* Returns the Levenshtein distance between the first `bytes` bytes of a and b. */
size_t lt_edit_distance(const char *a, size_t bytes, const char *b);

/* Returns the word of smallest edit distance to text, the first of several. count >= 1. */
const char *lt_nearest_word(const char *text, const char *const *words, size_t count);

/* Writes two lower-case hexadecimal digits per byte and a NUL: 2 * bytes + 1 characters. */
void lt_text_hex(char *out, const unsigned char *data, size_t bytes);

#endif
