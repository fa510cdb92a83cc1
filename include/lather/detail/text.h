/** Text of a command line and of files: how names are shown and stored, and lists of numbers. */
#ifndef LATHER_DETAIL_TEXT_H
#define LATHER_DETAIL_TEXT_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stddef.h>

/**
 * Text that a terminal, a line of a list and a JSON string can hold: control characters (C0, DEL,
 * C1), separators of lines, characters that change the direction of text, and bytes that are not UTF-8
 * become `\xHH`, byte by byte; a backslash becomes two. All else stays. Two texts that differ give two that differ.
 *
 * Owns    writes at most size bytes to out, its NUL included; cut behind a whole character
 * Errors  none: returns out, so that it can stand in a call of printf()
 */
LT_API const char *lt_text_escape(char *out, size_t size, const char *text);

/**
 * A message of several texts, in one line: as lt_text_escape(), but a backslash stays one, so that
 * what was escaped before is not escaped again. What lt_fail() and lt_log() are given passes it.
 *
 * Owns    writes at most size bytes to out, its NUL included; out is not text
 * Errors  none: returns out
 */
LT_API const char *lt_text_line(char *out, size_t size, const char *text);

/** Bytes that lt_text_escape() needs for text, the NUL included. */
LT_API size_t lt_text_escape_bytes(const char *text);

/**
 * The bytes that lt_text_escape() was given. out may be text itself: the result is never longer.
 *
 * Owns    writes at most strlen(text) + 1 bytes to out
 * Errors  LT_E_FORMAT: a backslash before anything but a backslash or xHH, or `\x00`
 */
LT_API LT_MUST_CHECK lt_status lt_text_unescape(char *out, const char *text);

/** "0.5,0" into value: numbers of 0 or more. How many there are, or -1: something else, or more than
 *  most. */
LT_API int lt_text_numbers(const char *text, double *value, int most);

#endif
