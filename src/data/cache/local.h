/* One file's copy on a local disk: whole and right, or not there. */
#ifndef LT_DATA_LOCAL_H
#define LT_DATA_LOCAL_H

#include "lather/ext/dataset.h"

#include <stdatomic.h>
#include <sys/stat.h>

/* The file that a copy is of, as it is now. */
typedef struct lt_local_source {
    const char *path; /* borrowed */
    struct stat info;
} lt_local_source;

/* False if it is no regular file, or not there. */
bool lt_local_look(lt_local_source *out, const char *path);
/* Whether the file is still what it was. */
bool lt_local_same(const lt_local_source *source);

/* Where the copy is in folder; lt_free() it. */
char *lt_local_path(const char *folder, const char *path);
/* Reads the copy; false if there is none of the file as it is now, whole and with its checksum. */
bool lt_local_read(const char *copy, const lt_local_source *source, lt_record *record);
/* The same for large files: a descriptor to read from, or -1. *stop ends it. */
int lt_local_open(const char *copy, const lt_local_source *source, const atomic_bool *stop);

/* A copy in the making: COPY.part, locked by the one who writes it. */
typedef struct lt_local_writer {
    int fd;
    uint32_t crc;
    char *temp;
    const char *copy; /* borrowed */
} lt_local_writer;

/* LT_END: another writes it now, or it is there. Errors: LT_E_IO, LT_E_NOMEM. */
lt_status lt_local_begin(lt_local_writer *w, const char *copy);
lt_status lt_local_write(lt_local_writer *w, const void *bytes, size_t size);
/* Gives it its name; w is cleared in any case. */
lt_status lt_local_finish(lt_local_writer *w, const lt_local_source *source);
/* Removes what was written. */
void lt_local_abandon(lt_local_writer *w);

#endif
