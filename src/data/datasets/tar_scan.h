/* Lists the members of a tar file. */
#ifndef LT_DATA_TAR_SCAN_H
#define LT_DATA_TAR_SCAN_H

#include "lather/ext/fail.h"

#include <stdint.h>

typedef enum lt_tar_kind { LT_TAR_FILE, LT_TAR_FOLDER, LT_TAR_LINK, LT_TAR_OTHER } lt_tar_kind;

/* A member of a tar file; the contents of a regular file are bytes [offset, offset + size). */
typedef struct lt_tar_member {
    const char *name;
    uint64_t offset, size;
    lt_tar_kind kind;
} lt_tar_member;
typedef lt_status lt_tar_visit(void *context, const lt_tar_member *member);

/* Calls visit for every member in order. Errors: LT_E_IO; LT_E_FORMAT with path and offset (an invalid header, or the
 * file ends within a member); those of visit. */
lt_status lt_tar_scan(int fd, const char *path, lt_tar_visit *visit, void *context);

#endif
