/* Edit distance: Wagner & Fischer, "The string-to-string correction problem", JACM 1974. */

#include "base/nearest.h"

#include <string.h>

enum { LONGEST = 64 }; /* longer texts are compared by their first characters */

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

size_t lt_edit_distance(const char *a, size_t bytes, const char *b)
{
    size_t row[LONGEST + 1], n = bytes < LONGEST ? bytes : LONGEST, m = strnlen(b, LONGEST);
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[m];
}

const char *lt_nearest(const char *text, const char *const *words, size_t count)
{
    const char *best = words[0];
    size_t bytes = strlen(text);
    for (size_t i = 1; i < count; i++)
        if (lt_edit_distance(text, bytes, words[i]) < lt_edit_distance(text, bytes, best))
            best = words[i];
    return best;
}
