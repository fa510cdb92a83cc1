/* Regular expressions from users. */
#ifndef LT_BASE_PATTERN_H
#define LT_BASE_PATTERN_H

#include "lather/status.h"

#include <regex.h>

/* Compiles a POSIX extended expression without subexpression matches. what: prefix of messages. Free with regfree().
 * Errors: LT_E_ARG (invalid, back-references, too long, too many repetitions). */
LT_MUST_CHECK lt_status lt_pattern_compile(const char *what, const char *pattern, regex_t *out);

enum { LT_PATTERN_BYTES = 256 };
/* Checks the length of an expression, in bytes. Errors: LT_E_ARG if it is too long. */
LT_MUST_CHECK lt_status lt_pattern_check_length(const char *what, size_t bytes);

#endif
