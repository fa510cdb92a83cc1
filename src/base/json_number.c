/* The grammar of JSON numbers (RFC 8259, section 6). */

#include "base/json.h"

static const char *skip_digits(const char *c, const char *end)
{
    while (c < end && *c >= '0' && *c <= '9')
        c++;
    return c;
}

const char *lt_json_number_end(const char *c, const char *end, bool *is_integer)
{
    *is_integer = true;
    c += c < end && *c == '-';
    const char *digits = skip_digits(c, end);
    if (digits == c || (*c == '0' && digits > c + 1))
        return NULL;
    c = digits;
    if (c < end && *c == '.') {
        *is_integer = false;
        digits = skip_digits(c + 1, end);
        if (digits == c + 1)
            return NULL;
        c = digits;
    }
    if (c < end && (*c == 'e' || *c == 'E')) {
        *is_integer = false;
        c++;
        c += c < end && (*c == '+' || *c == '-');
        digits = skip_digits(c, end);
        if (digits == c)
            return NULL;
        c = digits;
    }
    return c;
}
