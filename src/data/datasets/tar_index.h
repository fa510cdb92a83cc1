/* Index of the images in a tar file, cached on disk. */
#ifndef LT_DATA_TAR_INDEX_H
#define LT_DATA_TAR_INDEX_H

#include "data/datasets/datasets.h"

/* An image in a tar file. */
typedef struct lt_tar_sample {
    uint64_t offset, size; /* position and size of the image in the tar file, in bytes */
    int64_t label;         /* class number from NAME.cls; -1 if the class is the folder */
    uint32_t name;         /* offset of the sample's name in the index's text */
    uint32_t folder;       /* length of the folder: bytes of the name before its last slash */
} lt_tar_sample;

typedef struct lt_tar_index {
    lt_tar_sample *sample;
    size_t count;
    /* NUL-terminated names of the samples, then of the folders ("FOLDER/") without an image directly in them */
    char *text;
    size_t text_size;
    size_t folders; /* offset of the folder names in text */
    lt_left_out left_out;
} lt_tar_index;

/* Reads the index from PATH.index if that is complete and matches the size and the modification time of the tar file.
 * Otherwise scans the tar file and writes PATH.index or, if the folder is read-only, a file in the user's cache folder.
 * Errors: as lt_tar_scan(). */
lt_status lt_tar_index_open(lt_tar_index *out, const char *path);
/* Scans the tar file without reading or writing an index file. out starts as {0}; clear it in any case. */
lt_status lt_tar_index_build(lt_tar_index *out, int fd, const char *path);
void lt_tar_index_clear(lt_tar_index *index);

#endif
