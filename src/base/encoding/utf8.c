/* UTF-8, and escaping of names from files. */

#include "base/encoding/utf8.h"

#include "lather/detail/text.h"

#include <stdbool.h>
#include <string.h>

/* --- UTF-8: The Unicode Standard 15, table 3-7, well-formed sequences --- */

/* Returns the length of the sequence that a lead byte begins, or 0 if it is not a lead byte. */
static int sequence_bytes(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

int lt_utf8_length(const char *at, const char *end)
{
    const unsigned char *c = (const unsigned char *)at;
    int bytes = at < end ? sequence_bytes(c[0]) : 0;
    if (end - at < bytes)
        return 0;
    unsigned char least = c[0] == 0xe0 ? 0xa0 : c[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = c[0] == 0xed ? 0x9f : c[0] == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < bytes; i++, least = 0x80, most = 0xbf)
        if (c[i] < least || c[i] > most)
            return 0;
    return bytes;
}

int lt_utf8_encode(char *to, uint32_t code)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(bytes == 1 ? code : lead[bytes] | code);
    return bytes;
}

uint32_t lt_utf8_decode(const char *at, int *bytes)
{
    static const unsigned char mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const unsigned char *c = (const unsigned char *)at;
    *bytes = c[0] < 0x80 ? 1 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    uint32_t code = c[0] & mask[*bytes];
    for (int i = 1; i < *bytes; i++)
        code = code << 6 | (c[i] & 0x3fU);
    return code;
}

/* --- Escapes --- */

enum { ESCAPE_BYTES = 4 }; /* \xHH */

/* Returns true for characters that affect surrounding text (Unicode 15, section 23.2): the separators U+2028 and U+2029
 * end a line; marks (U+061C, U+200E, U+200F), embeddings and overrides (to U+202E) and isolates reorder it. */
static bool changes_layout(const unsigned char *c, int bytes)
{
    if (bytes == 2)
        return c[0] == 0xd8 && c[1] == 0x9c;
    if (bytes != 3 || c[0] != 0xe2)
        return false;
    return (c[1] == 0x80 && (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae)))
           || (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9);
}

/* Returns true if a character (bytes 0: invalid) is printed without an escape. */
static bool is_printable(const unsigned char *c, int bytes)
{
    if (bytes == 1)
        return c[0] >= 0x20 && c[0] != 0x7f && c[0] != '\\';
    if (bytes == 2 && c[0] == 0xc2 && c[1] < 0xa0) /* C1 */
        return false;
    return bytes > 0 && !changes_layout(c, bytes);
}

/* Escapes the character at `at` to out (at least 4 * 4 bytes) and sets *bytes to its length. Returns the bytes
 * written. */
static size_t escape_one(char *out, const char *at, const char *end, int *bytes)
{
    static const char digit[] = "0123456789abcdef";
    const unsigned char *c = (const unsigned char *)at;
    size_t length = 0;
    int whole = lt_utf8_length(at, end);
    *bytes = whole ? whole : 1;
    if (is_printable(c, whole)) {
        memcpy(out, at, (size_t)whole);
        return (size_t)whole;
    }
    if (*c == '\\') {
        out[0] = out[1] = '\\';
        return 2;
    }
    for (int i = 0; i < *bytes; i++, length += ESCAPE_BYTES) {
        out[length] = '\\';
        out[length + 1] = 'x';
        out[length + 2] = digit[c[i] >> 4];
        out[length + 3] = digit[c[i] & 15];
    }
    return length;
}

static const char *escape_text(char *out, size_t size, const char *text, bool backslash)
{
    char one[4 * ESCAPE_BYTES];
    const char *end = text + strlen(text);
    size_t used = 0;
    for (int bytes = 0; text < end; text += bytes) {
        size_t length = escape_one(one, text, end, &bytes);
        if (*text == '\\' && !backslash)
            length = 1;
        if (used + length >= size)
            break;
        memcpy(out + used, one, length);
        used += length;
    }
    if (size)
        out[used] = 0;
    return out;
}

const char *lt_text_escape(char *out, size_t size, const char *text)
{
    return escape_text(out, size, text, true);
}

const char *lt_text_line(char *out, size_t size, const char *text)
{
    return escape_text(out, size, text, false);
}

size_t lt_text_escape_bytes(const char *text)
{
    char one[4 * ESCAPE_BYTES];
    const char *end = text + strlen(text);
    size_t size = 1;
    for (int bytes = 0; text < end; text += bytes)
        size += escape_one(one, text, end, &bytes);
    return size;
}
