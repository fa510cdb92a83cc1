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

/** Creates a folder and its parents; one that exists is no error. Errors: LT_E_IO, LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_make_folders(const char *path);

/** Finds a file or folder relative to the program, so that an installation can be moved: FOLDER/in_source in any folder
 *  above a build, or FOLDER/installed where the program is in FOLDER/bin. path has size bytes. Errors: LT_E_IO, naming
 *  both. */
LT_API LT_MUST_CHECK lt_status lt_file_find_near_program(char *path, size_t size,
                                                         const char *in_source,
                                                         const char *installed);

#endif
