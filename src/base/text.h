/* The known word that a wrong one was probably meant to be; besides lather/detail/text.h. */
#ifndef LT_BASE_TEXT_H
#define LT_BASE_TEXT_H

#include <stddef.h>

/* Insertions, deletions and replacements that make b of the first bytes of a. */
size_t lt_edit_distance(const char *a, size_t bytes, const char *b);

/* The word with the fewest of them; the first of several. count >= 1. */
const char *lt_nearest(const char *text, const char *const *words, size_t count);

#endif
