/** Opening and writing of files that a user named, for code with formats of its own. */
#ifndef LATHER_EXT_FILE_H
#define LATHER_EXT_FILE_H

#include "lather/status.h"

#include <stdio.h>

/**
 * A stream that reads a regular file. A named pipe, a device or a folder is refused at once: the
 * open of a pipe without a writer would wait for ever.
 *
 * Owns    *out is the caller's, for fclose()
 * Errors  LT_E_IO, with the path and what it is instead
 */
LT_API LT_MUST_CHECK lt_status lt_file_open(FILE **out, const char *path);

/**
 * Writes a file, which appears whole or not at all: under another name in the same folder first. A
 * link, a pipe or a device (/dev/stdout) stays what it is, and is written to in place.
 *
 * Errors  LT_E_IO, LT_E_NOMEM
 */
LT_API LT_MUST_CHECK lt_status lt_file_save(const char *path, const void *data, size_t bytes);

#endif
