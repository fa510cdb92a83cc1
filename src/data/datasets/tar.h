/* Tar files: their members, and a cached index of the images in them. */
#ifndef LT_DATA_TAR_H
#define LT_DATA_TAR_H

#include "data/datasets/datasets.h"

typedef enum lt_tar_kind { LT_TAR_FILE, LT_TAR_FOLDER, LT_TAR_LINK, LT_TAR_OTHER } lt_tar_kind;

/* A member of a tar file; a regular file is at bytes [offset, offset + size). */
typedef struct lt_tar_member {
    const char *name;
    uint64_t offset, size;
    lt_tar_kind kind;
} lt_tar_member;
typedef lt_status lt_tar_visit(void *context, const lt_tar_member *member);

/* Calls visit for every member in order. Errors: LT_E_IO; LT_E_FORMAT (an invalid header, or
 * the file ends within a member), naming path and offset; the visitor's own. */
lt_status lt_tar_scan(int fd, const char *path, lt_tar_visit *visit, void *context);

/* An image in a tar file. */
typedef struct lt_tar_sample {
    uint64_t offset, size;
    int64_t label;   /* from NAME.cls; -1: the class is a folder */
    uint32_t name;   /* offset in the index's text */
    uint32_t folder; /* bytes of the name before its last slash */
} lt_tar_sample;

typedef struct lt_tar_index {
    lt_tar_sample *sample;
    size_t count;
    /* NUL-terminated names of the samples, then of folders ("FOLDER/") that directly hold no image */
    char *text;
    size_t text_size;
    size_t folders; /* offset of the folders' names in text */
    lt_left_out left_out;
} lt_tar_index;

/* Reads the index from PATH.index if it is complete and of the tar file's present size and time;
 * else scans the tar file and writes PATH.index or, if its folder is read-only, a file in the
 * user's cache. Errors: as lt_tar_scan(). */
lt_status lt_tar_index_open(lt_tar_index *out, const char *path);
/* The same without a cached index; out starts as {0} and must be cleared in any case. */
lt_status lt_tar_index_build(lt_tar_index *out, int fd, const char *path);
void lt_tar_index_clear(lt_tar_index *index);

/* Whether path is FOLDER/NAME.tar, not hidden. */
bool lt_is_tar(const char *path);
/* Every tar file of a folder whose name has part in it, by name; *count 0: there is none. Free each
 * path and the list with lt_free(). */
lt_status lt_tar_list(char ***out, size_t *count, const char *folder, const char *part);

#endif
