/** Escaping of names for display and for files; lists of numbers. */
#ifndef LATHER_DETAIL_TEXT_H
#define LATHER_DETAIL_TEXT_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stddef.h>

/**
 * Escapes text for a terminal, a line of a list and a JSON string: control characters (C0, DEL, C1), line
 * separators, characters that change the direction of text, and bytes that are not UTF-8 become `\xHH`, byte by
 * byte; a backslash becomes two. Other characters are unchanged. The mapping is injective.
 *
 * Owns    writes at most size bytes to out, its NUL included; truncated after a complete character
 * Errors  none: returns out, for use as an argument of printf()
 */
LT_API const char *lt_text_escape(char *out, size_t size, const char *text);

/**
 * Escapes a message into one line: like lt_text_escape(), but a backslash is unchanged, so that escaped
 * text is not escaped again. lt_fail() and lt_log() apply it to their messages.
 *
 * Owns    writes at most size bytes to out, its NUL included; out is not text
 * Errors  none: returns out
 */
LT_API const char *lt_text_line(char *out, size_t size, const char *text);

/** Returns the bytes that lt_text_escape() needs for text, the NUL included. */
LT_API size_t lt_text_escape_bytes(const char *text);

/**
 * The inverse of lt_text_escape(). out may be text itself: the result is never longer.
 *
 * Owns    writes at most strlen(text) + 1 bytes to out
 * Errors  LT_E_FORMAT: a backslash before anything but a backslash or xHH, or `\x00`
 */
LT_API LT_MUST_CHECK lt_status lt_text_unescape(char *out, const char *text);

/** Parses "0.5,0" into value: nonnegative numbers. Returns their number, or -1 if the text is invalid or has more
 *  than most. */
LT_API int lt_text_numbers(const char *text, double *value, int most);

#endif
