/* UTF-8: The Unicode Standard 15, table 3-7, well-formed sequences. */

#include "base/json.h"

/* Bytes of the character that a lead byte begins; 0: none. */
static int sequence_bytes(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

int lt_json_utf8(const char *at, const char *end)
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

int lt_json_put_utf8(char *to, uint32_t code)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(bytes == 1 ? code : lead[bytes] | code);
    return bytes;
}
