/* The known word that a wrong one was probably meant to be. */
#ifndef LT_OPTIM_NEAREST_H
#define LT_OPTIM_NEAREST_H

#include <stddef.h>

/* The word with the fewest insertions, deletions and replacements; the first of several.
 * count >= 1. */
const char *lt_nearest(const char *text, const char *const *words, size_t count);

#endif
