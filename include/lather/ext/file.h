/** Opening and writing of files that the user names, for code that implements other formats. */
#ifndef LATHER_EXT_FILE_H
#define LATHER_EXT_FILE_H

#include "lather/status.h"

#include <stdio.h>

/**
 * Opens a regular file for reading. A named pipe, a device or a folder is refused immediately: opening a
 * pipe without a writer would block forever.
 *
 * Owns    *out is the caller's, for fclose()
 * Errors  LT_E_IO, with the path and its actual type
 */
LT_API LT_MUST_CHECK lt_status lt_file_open(FILE **out, const char *path);

/**
 * Writes a file atomically: to a temporary file in the same folder, which is then renamed. A link, a pipe
 * or a device (/dev/stdout) is not replaced but written to in place.
 *
 * Errors  LT_E_IO, LT_E_NOMEM
 */
LT_API LT_MUST_CHECK lt_status lt_file_save(const char *path, const void *data, size_t bytes);

#endif
