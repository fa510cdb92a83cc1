/* POSIX regular expressions within limits: the C library's regcomp() recurses at each parenthesis and copies operands
 * of braces. */

#include "base/pattern.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPEATS = 1000 };

lt_status lt_pattern_check_length(const char *what, size_t bytes)
{
    return bytes < LT_PATTERN_BYTES
               ? LT_OK
               : lt_fail(LT_E_ARG, "%s: pattern of %zu bytes, at most %d are allowed", what, bytes,
                         LT_PATTERN_BYTES - 1);
}

/* Returns the larger number of "{2,5}" or "{2,}"; 1 if it is not a repetition. */
static double max_repetitions(const char *brace)
{
    char *end;
    const double least = strtod(brace + 1, &end);
    return fmax(1, fmax(least, *end == ',' ? strtod(end + 1, &end) : 0));
}

/* Checks the product of all repetitions: nested braces multiply. */
static lt_status check_repeats(const char *what, const char *pattern)
{
    double product = 1;
    for (const char *c = pattern; *c; c++) {
        if (*c == '{')
            product *= max_repetitions(c);
        if (*c == '\\' && strchr("123456789", c[1]) && c[1])
            return lt_fail(LT_E_ARG, "%s: '%s': back-references are not supported", what, pattern);
        c += *c == '\\' && c[1];
    }
    return product <= MAX_REPEATS
               ? LT_OK
               : lt_fail(LT_E_ARG, "%s: '%s': %g repetitions by braces, at most %d are allowed",
                         what, pattern, product, MAX_REPEATS);
}

lt_status lt_pattern_compile(const char *what, const char *pattern, regex_t *out)
{
    char why[128];
    LT_TRY(lt_pattern_check_length(what, strlen(pattern)));
    LT_TRY(check_repeats(what, pattern));
    int error = regcomp(out, pattern, REG_EXTENDED | REG_NOSUB);
    if (!error)
        return LT_OK;
    regerror(error, out, why, sizeof why);
    return lt_fail(LT_E_ARG, "%s: invalid regular expression '%s': %s", what, pattern, why);
}
