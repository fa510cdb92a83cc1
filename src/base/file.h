/* Opening of regular files by descriptor. */
#ifndef LT_BASE_FILE_H
#define LT_BASE_FILE_H

#include "lather/ext/file.h"

#include <sys/stat.h>

/* As lt_file_open(); *info is what fstat() says. The caller closes *fd; -1 on failure. */
LT_MUST_CHECK lt_status lt_file_descriptor(int *fd, struct stat *info, const char *path);

#endif
