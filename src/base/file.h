/* Opening of regular files by descriptor. */
#ifndef LT_BASE_FILE_H
#define LT_BASE_FILE_H

#include "lather/ext/file.h"

#include <sys/stat.h>

/* Opens as lt_file_open(), and fills *info by fstat(). The caller closes *fd, which is -1 on failure. */
LT_MUST_CHECK lt_status lt_file_open_descriptor(int *fd, struct stat *info, const char *path);

#endif
