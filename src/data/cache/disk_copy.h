/* One file's copy in a disk cache: complete and verified, or absent. */
#ifndef LT_DATA_DISK_COPY_H
#define LT_DATA_DISK_COPY_H

#include "lather/ext/dataset.h"

#include <stdatomic.h>
#include <sys/stat.h>

/* The file that is copied, with its size and time. */
typedef struct lt_disk_copy_source {
    const char *path; /* borrowed */
    struct stat info;
} lt_disk_copy_source;

/* stat() of the file. False: it is no regular file, or absent. */
bool lt_disk_copy_stat(lt_disk_copy_source *out, const char *path);
/* Whether size and time of the file are those of source. */
bool lt_disk_copy_is_current(const lt_disk_copy_source *source);

/* Path of the copy in folder; lt_free() it. */
char *lt_disk_copy_path(const char *folder, const char *path);
/* Reads the copy; false: absent, of another size or time, or its checksum is wrong. */
bool lt_disk_copy_read(const char *copy, const lt_disk_copy_source *source, lt_record *record);
/* The same for large files: a descriptor to read from, or -1. Ends early once *stop is set. */
int lt_disk_copy_open(const char *copy, const lt_disk_copy_source *source, const atomic_bool *stop);

/* A copy being written: COPY.part, locked by its writer. */
typedef struct lt_disk_copy_writer {
    int fd;
    uint32_t crc;
    char *temp;
    const char *copy; /* borrowed */
} lt_disk_copy_writer;

/* LT_END: another process is writing it, or it exists. Errors: LT_E_IO, LT_E_NOMEM. */
lt_status lt_disk_copy_begin(lt_disk_copy_writer *w, const char *copy);
lt_status lt_disk_copy_write(lt_disk_copy_writer *w, const void *bytes, size_t size);
/* Writes the tail and renames COPY.part; w is cleared in any case. */
lt_status lt_disk_copy_finish(lt_disk_copy_writer *w, const lt_disk_copy_source *source);
/* Removes COPY.part. */
void lt_disk_copy_abandon(lt_disk_copy_writer *w);

#endif
