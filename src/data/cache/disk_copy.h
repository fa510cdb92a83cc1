/* One object's copy in a disk cache: complete and verified, or absent. An object is a file, or a
 * piece of a large one. */
#ifndef LT_DATA_DISK_COPY_H
#define LT_DATA_DISK_COPY_H

#include "lather/ext/dataset.h"

#include <stdatomic.h>
#include <sys/stat.h>

/* The object that is copied, with the size and time of its file. */
typedef struct lt_disk_object {
    const char *path; /* borrowed */
    struct stat info;
    uint64_t offset, bytes; /* the part of the file; all of it after lt_disk_object_stat() */
    bool any_owner;         /* copies are shared with other users, in both directions */
} lt_disk_object;

/* Whose files a cache uses: of this user (and root), or of any user. */
enum { LT_DISK_MODE_OWN = 0644, LT_DISK_MODE_ANY = 0666 };
/* Opens a file of the cache by lt_shared_open(), or with any_owner by lt_shared_open_any(). */
lt_status lt_disk_open(int *fd, const char *path, int flags, bool any_owner);

/* stat() of the file. False: it is no regular file, or absent. */
bool lt_disk_object_stat(lt_disk_object *out, const char *path);
/* Whether size and time of the file are those of object. */
bool lt_disk_object_is_current(const lt_disk_object *object);

/* What a process knows of a copy: its checksum, once it was compared. Starts as 0. */
typedef atomic_uint_fast64_t lt_disk_known;

/* Path of the copy in folder; lt_free() it. */
char *lt_disk_copy_path(const char *folder, const lt_disk_object *object);
/* Bytes of a copy on the disk, in blocks. */
int64_t lt_disk_copy_bytes(const lt_disk_object *object);
/* Records that an open copy is used, for the choice of what is evicted. Where it may not be
 * written, others keep it. */
void lt_disk_copy_note(int fd);
/* Opens a copy whose checksum is right; it is compared with the bytes unless known says what it is.
 * Records the time of use. -1: absent, or of another size, time or checksum (*damaged). */
int lt_disk_copy_open(const char *copy, const lt_disk_object *object, lt_disk_known *known,
                      bool *damaged);
/* The same, and reads all of it. The copy's bytes are read once. */
bool lt_disk_copy_read(const char *copy, const lt_disk_object *object, lt_record *record,
                       bool *damaged);

/* A copy being written: COPY.part, locked by its writer. */
typedef struct lt_disk_copy_writer {
    int fd;
    char *temp;
    const char *copy; /* borrowed */
    bool any_owner;
} lt_disk_copy_writer;

/* Waits while another thread or process is writing it. LT_END: it exists now, or the wait took too
 * long. Errors: LT_E_IO, LT_E_NOMEM. */
lt_status lt_disk_copy_begin(lt_disk_copy_writer *w, const char *copy, bool any_owner);
/* Writes the object's bytes and the tail, and renames COPY.part; w is cleared in any case. */
lt_status lt_disk_copy_finish(lt_disk_copy_writer *w, const lt_disk_object *object,
                              const void *bytes);
/* Removes COPY.part. */
void lt_disk_copy_abandon(lt_disk_copy_writer *w);

#endif
