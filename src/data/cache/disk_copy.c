/* A copy is the object's bytes, the file's path, and a tail with the file's size and time, the
 * object's place in it and a checksum over all of it. The checksum rejects what a crash, a full disk
 * or another file of the same hash left, so nothing is synced. A copy is written as COPY.part and
 * renamed. Its time of change is when it was last used.
 *
 * The writer holds a lock (flock) on COPY.part, which the kernel releases with the process. Another
 * process may rename the file between our open() and flock(): then COPY.part is another inode than
 * the locked one. */

#include "data/cache/disk_copy.h"

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "base/hash.h"
#include "base/shared_file.h"
#include "data/files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef struct tail {
    uint64_t size; /* of the file */
    uint64_t offset, bytes;
    int64_t second, nano;
    uint32_t path_bytes;
    uint32_t crc; /* of the object's bytes, the path, and this struct with 0 here */
    char magic[8];
} tail;

static const char magic[8] = "LTLOCAL2";

bool lt_disk_object_stat(lt_disk_object *out, const char *path)
{
    *out = (lt_disk_object){.path = path};
    if (stat(path, &out->info) || !S_ISREG(out->info.st_mode))
        return false;
    out->bytes = (uint64_t)out->info.st_size;
    return true;
}

bool lt_disk_object_is_current(const lt_disk_object *s)
{
    lt_disk_object now;
    return lt_disk_object_stat(&now, s->path) && now.info.st_size == s->info.st_size
           && now.info.st_mtim.tv_sec == s->info.st_mtim.tv_sec
           && now.info.st_mtim.tv_nsec == s->info.st_mtim.tv_nsec;
}

char *lt_disk_copy_path(const char *folder, const lt_disk_object *object)
{
    const uint64_t low = (UINT64_C(1) << 56) - 1;
    uint64_t h = lt_fnv1a_text(LT_FNV1A_BEGIN, object->path);
    if (object->offset)
        h = lt_fnv1a(h, &object->offset, sizeof object->offset);
    return lt_format("%s/%02x/%014" PRIx64, folder, (unsigned)(h >> 56), h & low);
}

/* The tail of a copy of the object, whose bytes have this checksum. */
static tail make_tail(const lt_disk_object *object, uint32_t crc)
{
    tail t = {.size = (uint64_t)object->info.st_size,
              .offset = object->offset,
              .bytes = object->bytes,
              .second = object->info.st_mtim.tv_sec,
              .nano = object->info.st_mtim.tv_nsec,
              .path_bytes = (uint32_t)strlen(object->path)};
    memcpy(t.magic, magic, sizeof magic);
    crc = lt_crc32c(crc, object->path, t.path_bytes);
    t.crc = lt_crc32c(crc, &t, sizeof t);
    return t;
}

/* Bytes after the object's own: the path and the tail. */
static size_t extra_bytes(const lt_disk_object *object)
{
    return strlen(object->path) + sizeof(tail);
}

int64_t lt_disk_copy_bytes(const lt_disk_object *object)
{
    const uint64_t block = 4096, bytes = object->bytes + extra_bytes(object);
    return (int64_t)((bytes + block - 1) / block * block);
}

lt_status lt_disk_open(int *fd, const char *path, int flags, bool any_owner)
{
    return any_owner ? lt_shared_open_any(fd, path, flags, LT_DISK_MODE_ANY)
                     : lt_shared_open(fd, path, flags, LT_DISK_MODE_OWN);
}

/* Opens a copy; returns -1 if it is absent, or is not a file of this cache (*damaged). */
static int open_copy(const char *copy, const lt_disk_object *object, bool *damaged)
{
    int fd;
    *damaged = lt_disk_open(&fd, copy, O_RDONLY, object->any_owner) && errno == EPERM;
    return fd;
}

static bool has_size(int fd, const lt_disk_object *object)
{
    struct stat info;
    return !fstat(fd, &info) && (uint64_t)info.st_size == object->bytes + extra_bytes(object);
}

/* Whether extra holds the path and tail of a copy whose bytes have this checksum. */
static bool is_right(const uint8_t *extra, const lt_disk_object *object, uint32_t crc)
{
    const tail want = make_tail(object, crc);
    return !memcmp(extra, object->path, want.path_bytes)
           && !memcmp(extra + want.path_bytes, &want, sizeof want);
}

void lt_disk_copy_note(int fd)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    clock_gettime(CLOCK_REALTIME, &times[1]);
    (void)futimens(fd, times);
}

bool lt_disk_copy_read(const char *copy, const lt_disk_object *object, lt_record *record,
                       bool *damaged)
{
    size_t size = (size_t)object->bytes, all = size + extra_bytes(object);
    int fd = open_copy(copy, object, damaged);
    if (fd < 0)
        return false;
    bool ok = has_size(fd, object) && !lt_record_reserve(record, all)
              && !lt_read_at(fd, copy, record->bytes, all, 0)
              && is_right(record->bytes + size, object, lt_crc32c(0, record->bytes, size));
    if (ok)
        lt_disk_copy_note(fd);
    close(fd);
    record->size = ok ? size : 0;
    *damaged = !ok;
    return ok;
}

/* The checksum of the object's bytes in its copy; false: they cannot be read. */
static bool sum_bytes(int fd, const char *copy, const lt_disk_object *object, uint32_t *crc)
{
    uint8_t *bytes = lt_alloc_aligned(64, (size_t)object->bytes);
    bool ok = bytes && !lt_read_at(fd, copy, bytes, (size_t)object->bytes, 0);
    if (ok)
        *crc = lt_crc32c(0, bytes, (size_t)object->bytes);
    lt_free(bytes);
    return ok;
}

static bool is_whole(int fd, const char *copy, const lt_disk_object *object, lt_disk_known *known)
{
    const uint64_t compared = UINT64_C(1) << 32, k = atomic_load(known);
    uint8_t *extra = lt_alloc(extra_bytes(object), 1);
    uint32_t crc = (uint32_t)k;
    bool ok = extra && !lt_read_at(fd, copy, extra, extra_bytes(object), object->bytes);
    /* another process may have put another copy there: then its bytes are summed too */
    if (ok && !((k & compared) && is_right(extra, object, crc))) {
        ok = sum_bytes(fd, copy, object, &crc) && is_right(extra, object, crc);
        atomic_store(known, ok ? compared | crc : 0);
    }
    lt_free(extra);
    return ok;
}

int lt_disk_copy_open(const char *copy, const lt_disk_object *object, lt_disk_known *known,
                      bool *damaged)
{
    int fd = open_copy(copy, object, damaged);
    if (fd < 0)
        return -1;
    if (has_size(fd, object) && is_whole(fd, copy, object, known)) {
        lt_disk_copy_note(fd);
        return fd;
    }
    close(fd);
    *damaged = true;
    return -1;
}

/* --- Writing --- */

static lt_status open_temp(lt_disk_copy_writer *w)
{
    const int flags = O_RDWR | O_CREAT;
    lt_status st = lt_disk_open(&w->fd, w->temp, flags, w->any_owner);
    if (!st || errno != ENOENT)
        return st;
    char *folder = lt_format("%.*s", (int)(strrchr(w->copy, '/') - w->copy), w->copy);
    if (folder && (!mkdir(folder, w->any_owner ? 0777 : 0755) || errno == EEXIST))
        st = lt_disk_open(&w->fd, w->temp, flags, w->any_owner);
    lt_free(folder);
    return st;
}

/* Whether temp is still the file that fd locks. */
static bool still_named(int fd, const char *temp)
{
    struct stat ours, there;
    return !fstat(fd, &ours) && !lstat(temp, &there) && ours.st_ino == there.st_ino
           && ours.st_dev == there.st_dev;
}

/* Opens COPY.part and locks it. LT_END: another writer has the lock. */
static lt_status open_locked(lt_disk_copy_writer *w)
{
    LT_TRY(open_temp(w));
    if (!flock(w->fd, LOCK_EX | LOCK_NB) && still_named(w->fd, w->temp))
        return LT_OK;
    close(w->fd);
    w->fd = -1;
    return LT_END;
}

/* The writer is waited for 10 s: it may have been stopped by a signal, or wait for a file server
 * that is gone. */
static lt_status lock(lt_disk_copy_writer *w)
{
    const long shortest = 100000, longest = 12800000, most = 10000000000;
    long waited = 0, pause = shortest;
    lt_status st;
    while ((st = open_locked(w)) == LT_END && waited < most) {
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        waited += pause;
        if (pause < longest)
            pause *= 2;
        if (!access(w->copy, F_OK))
            return LT_END;
    }
    if (st || access(w->copy, F_OK))
        return st;
    unlink(w->temp); /* another writer completed the copy meanwhile */
    return LT_END;
}

lt_status lt_disk_copy_begin(lt_disk_copy_writer *w, const char *copy, bool any_owner)
{
    *w = (lt_disk_copy_writer){.fd = -1, .copy = copy, .any_owner = any_owner};
    w->temp = lt_format("%s.part", copy);
    if (!w->temp)
        return LT_E_NOMEM;
    lt_status st = lock(w);
    if (!st && ftruncate(w->fd, 0)) /* a killed process may have left bytes */
        st = lt_fail(LT_E_IO, "%s: %s", w->temp, strerror(errno));
    if (st) {
        if (w->fd >= 0)
            close(w->fd);
        lt_free(w->temp);
        *w = (lt_disk_copy_writer){.fd = -1};
    }
    return st;
}

static lt_status put(const lt_disk_copy_writer *w, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write(w->fd, (const char *)bytes + done, size - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return lt_fail(LT_E_IO, "%s: %s", w->temp, strerror(wrote ? errno : ENOSPC));
        done += (size_t)wrote;
    }
    return LT_OK;
}

lt_status lt_disk_copy_finish(lt_disk_copy_writer *w, const lt_disk_object *object,
                              const void *bytes)
{
    const tail t = make_tail(object, lt_crc32c(0, bytes, (size_t)object->bytes));
    lt_status st = put(w, bytes, (size_t)object->bytes);
    if (!st)
        st = put(w, object->path, t.path_bytes);
    if (!st)
        st = put(w, &t, sizeof t);
    if (!st && rename(w->temp, w->copy))
        st = lt_fail(LT_E_IO, "%s: %s", w->copy, strerror(errno));
    if (st) {
        lt_disk_copy_abandon(w);
        return st;
    }
    close(w->fd);
    lt_free(w->temp);
    *w = (lt_disk_copy_writer){.fd = -1};
    return LT_OK;
}

void lt_disk_copy_abandon(lt_disk_copy_writer *w)
{
    if (w->fd >= 0) {
        unlink(w->temp); /* before the lock ends */
        close(w->fd);
    }
    lt_free(w->temp);
    *w = (lt_disk_copy_writer){.fd = -1};
}
