/* Directory of a ZIP archive in memory; members must be stored, not compressed, to be read. */
#ifndef LT_TENSOR_ZIP_H
#define LT_TENSOR_ZIP_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct lt_zip_member {
    const char *name; /* not NUL-terminated */
    size_t name_bytes;
    const char *data; /* in the archive; NULL: compressed or encrypted */
    size_t bytes;
} lt_zip_member;

/* Members, sorted by name; free with lt_free(). Start with {0}. */
typedef struct lt_zip {
    lt_zip_member *member;
    size_t count, capacity;
} lt_zip;

/* Reads the directory. path is for messages. Errors: LT_E_FORMAT (truncated, a member outside the file, a name twice),
 * LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_zip_open(lt_zip *zip, const char *path, const char *map, size_t size);

/* Returns the member with that name, or NULL if absent. */
const lt_zip_member *lt_zip_find(const lt_zip *zip, const char *name, size_t bytes);

/* Returns the member whose name without its first folder is `name`, or NULL if absent. */
const lt_zip_member *lt_zip_find_below(const lt_zip *zip, const char *name);

#endif
