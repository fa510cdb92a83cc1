/* Text from users: unescaping, lists of numbers, nearest known word. */

#include "lather/detail/text.h"

#include "base/text.h"

#include "lather/ext/fail.h"

#include <stdlib.h>
#include <string.h>

static int digit_value(char c)
{
    static const char digit[] = "0123456789abcdef";
    const char *at = c ? strchr(digit, c) : NULL;
    return at ? (int)(at - digit) : -1;
}

lt_status lt_text_unescape(char *out, const char *text)
{
    while (*text) {
        if (*text != '\\') {
            *out++ = *text++;
            continue;
        }
        if (text[1] == '\\') {
            *out++ = '\\';
            text += 2;
            continue;
        }
        int high = text[1] == 'x' ? digit_value(text[2]) : -1;
        int low = high >= 0 ? digit_value(text[3]) : -1;
        if (low < 0 || !(high | low))
            return lt_fail(LT_E_FORMAT, "invalid escape '%.4s', want \\xHH or \\\\", text);
        *out++ = (char)(high << 4 | low);
        text += strlen("\\xHH");
    }
    *out = 0;
    return LT_OK;
}

int lt_text_numbers(const char *text, double *value, int most)
{
    for (int count = 0; count < most;) {
        char *end;
        value[count] = strtod(text, &end);
        if (end == text || !(value[count] >= 0) || (*end && *end != ','))
            return -1;
        count++;
        if (!*end)
            return count;
        text = end + 1;
    }
    return -1;
}

/* --- Edit distance: Wagner & Fischer, "The string-to-string correction problem", JACM 1974 --- */

enum { LONGEST = 64 }; /* longer texts are compared by their first characters */

static size_t min_of_three(size_t a, size_t b, size_t c)
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
            row[j] = min_of_three(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[m];
}

const char *lt_nearest_word(const char *text, const char *const *words, size_t count)
{
    const char *best = words[0];
    size_t bytes = strlen(text);
    for (size_t i = 1; i < count; i++)
        if (lt_edit_distance(text, bytes, words[i]) < lt_edit_distance(text, bytes, best))
            best = words[i];
    return best;
}

void lt_text_hex(char *out, const unsigned char *data, size_t bytes)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        *out++ = digit[data[i] >> 4];
        *out++ = digit[data[i] & 15];
    }
    *out = 0;
}
