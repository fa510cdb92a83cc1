/* The images of a tar file: an index, which is kept on the disk. */
#ifndef LT_DATA_TAR_INDEX_H
#define LT_DATA_TAR_INDEX_H

#include "data/datasets/datasets.h"

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

#endif
