/* Divides text into words by GPT-2's pattern:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * Radford et al., "Language models are unsupervised multitask learners", 2019; its encoder.py. */

#include "data/tokens/words.h"

#include "base/encoding/utf8.h"

#include <stdbool.h>
#include <string.h>

enum { L = LT_CHAR_LETTER, N = LT_CHAR_NUMBER };

typedef struct range {
    uint32_t first;
    uint16_t count;
    uint8_t class;
} range;

static const range ranges[] = {
#include "data/tokens/unicode_ranges.h"
};

/* Property White_Space of Unicode 15.1, PropList.txt. */
static bool is_space(uint32_t code)
{
    switch (code) {
    case 0x20:
    case 0x85:
    case 0xa0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202f:
    case 0x205f:
    case 0x3000:
        return true;
    default:
        return (code >= 0x09 && code <= 0x0d) || (code >= 0x2000 && code <= 0x200a);
    }
}

static lt_char_class class_in_table(uint32_t code)
{
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const range *r = &ranges[middle];
        if (code < r->first)
            high = middle;
        else if (code - r->first >= r->count)
            low = middle + 1;
        else
            return (lt_char_class)r->class;
    }
    return is_space(code) ? LT_CHAR_SPACE : LT_CHAR_OTHER;
}

static lt_char_class char_class_of(uint32_t code)
{
    return (code | 0x20) - 'a' < 26 ? LT_CHAR_LETTER : class_in_table(code);
}

/* Returns the bytes of the characters of this class at the beginning of text. */
static size_t class_run_bytes(lt_char_class class, const char *text, size_t bytes)
{
    size_t at = 0;
    int size;
    while (at < bytes && char_class_of(lt_utf8_decode(text + at, &size)) == class)
        at += (size_t)size;
    return at;
}

static size_t contraction_bytes(const char *text, size_t bytes)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t size = strlen(endings[i]);
        if (bytes >= size && !memcmp(text, endings[i], size))
            return size;
    }
    return 0;
}

/* Returns the bytes of a run of white space. Excludes the last character if text follows the run, unless the run is
 * only that character. */
static size_t space_run_bytes(const char *text, size_t bytes)
{
    const size_t run = class_run_bytes(LT_CHAR_SPACE, text, bytes);
    size_t last = run;
    if (run == bytes)
        return run;
    while ((text[--last] & 0xc0) == 0x80)
        continue;
    return last ? last : run;
}

size_t lt_gpt2_word_bytes(const char *text, size_t bytes)
{
    int size;
    const size_t skip = *text == ' ' && bytes > 1, ending = contraction_bytes(text, bytes);
    if (ending)
        return ending;
    const lt_char_class class = char_class_of(lt_utf8_decode(text + skip, &size));
    return class == LT_CHAR_SPACE ? space_run_bytes(text, bytes)
                                  : skip + class_run_bytes(class, text + skip, bytes - skip);
}
