/* A copy is the file's bytes, its path, and a tail with the file's size and time and a checksum
 * over all of it. The checksum rejects what a crash, a full disk or another file of the same hash
 * left, so nothing is synced. A copy is written as COPY.part and renamed.
 *
 * The writer holds a lock (flock) on COPY.part, which the kernel releases with the process. Another
 * process may rename the file between our open() and flock(): then COPY.part is another inode than
 * the locked one. */

#include "data/cache/disk_copy.h"

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "data/files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct tail {
    uint64_t size; /* of the file */
    int64_t second, nano;
    uint32_t path_bytes;
    uint32_t crc; /* of the file's bytes, the path, and this struct with 0 here */
    char magic[8];
} tail;

static const char magic[8] = "LTLOCAL1";

bool lt_disk_copy_stat(lt_disk_copy_source *out, const char *path)
{
    out->path = path;
    return !stat(path, &out->info) && S_ISREG(out->info.st_mode);
}

bool lt_disk_copy_is_current(const lt_disk_copy_source *s)
{
    lt_disk_copy_source now;
    return lt_disk_copy_stat(&now, s->path) && now.info.st_size == s->info.st_size
           && now.info.st_mtim.tv_sec == s->info.st_mtim.tv_sec
           && now.info.st_mtim.tv_nsec == s->info.st_mtim.tv_nsec;
}

char *lt_disk_copy_path(const char *folder, const char *path)
{
    const uint64_t h = lt_fnv1a_text(LT_FNV1A_BEGIN, path), low = (UINT64_C(1) << 56) - 1;
    return lt_format("%s/%02x/%014" PRIx64, folder, (unsigned)(h >> 56), h & low);
}

/* The tail of a copy of source, whose bytes have this checksum. */
static tail make_tail(const lt_disk_copy_source *source, uint32_t crc)
{
    tail t = {.size = (uint64_t)source->info.st_size,
              .second = source->info.st_mtim.tv_sec,
              .nano = source->info.st_mtim.tv_nsec,
              .path_bytes = (uint32_t)strlen(source->path)};
    memcpy(t.magic, magic, sizeof magic);
    crc = lt_crc32c(crc, source->path, t.path_bytes);
    t.crc = lt_crc32c(crc, &t, sizeof t);
    return t;
}

/* Bytes after the file's own: the path and the tail. */
static size_t extra_bytes(const lt_disk_copy_source *source)
{
    return strlen(source->path) + sizeof(tail);
}

static bool has_size(int fd, const lt_disk_copy_source *source)
{
    struct stat info;
    return !fstat(fd, &info)
           && (uint64_t)info.st_size == (uint64_t)source->info.st_size + extra_bytes(source);
}

/* Whether extra holds the path and tail of a copy whose bytes have this checksum. */
static bool is_right(const uint8_t *extra, const lt_disk_copy_source *source, uint32_t crc)
{
    const tail want = make_tail(source, crc);
    return !memcmp(extra, source->path, want.path_bytes)
           && !memcmp(extra + want.path_bytes, &want, sizeof want);
}

bool lt_disk_copy_read(const char *copy, const lt_disk_copy_source *source, lt_record *record)
{
    size_t size = (size_t)source->info.st_size, all = size + extra_bytes(source);
    int fd = open(copy, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = has_size(fd, source) && !lt_record_reserve(record, all)
              && !lt_read_at(fd, copy, record->bytes, all, 0)
              && is_right(record->bytes + size, source, lt_crc32c(0, record->bytes, size));
    close(fd);
    record->size = ok ? size : 0;
    if (!ok)
        unlink(copy); /* the file has changed, or the copy is damaged */
    return ok;
}

enum { PIECE = 1 << 20 };

/* The checksum of the first size bytes; false: they cannot be read, or *stop is set. */
static bool sum_bytes(int fd, const char *path, uint64_t size, const atomic_bool *stop,
                      uint32_t *crc)
{
    uint8_t *piece = lt_alloc_aligned(64, PIECE);
    bool ok = piece;
    *crc = 0;
    for (uint64_t at = 0; ok && at < size; at += PIECE) {
        size_t bytes = size - at < PIECE ? (size_t)(size - at) : PIECE;
        ok = !atomic_load(stop) && !lt_read_at(fd, path, piece, bytes, at);
        if (ok)
            *crc = lt_crc32c(*crc, piece, bytes);
    }
    lt_free(piece);
    return ok;
}

int lt_disk_copy_open(const char *copy, const lt_disk_copy_source *source, const atomic_bool *stop)
{
    uint64_t size = (uint64_t)source->info.st_size;
    size_t more = extra_bytes(source);
    uint32_t crc;
    int fd = open(copy, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    uint8_t *extra = lt_alloc(more, 1);
    bool ok = extra && has_size(fd, source) && sum_bytes(fd, copy, size, stop, &crc)
              && !lt_read_at(fd, copy, extra, more, size) && is_right(extra, source, crc);
    lt_free(extra);
    if (ok)
        return fd;
    close(fd);
    if (!atomic_load(stop))
        unlink(copy);
    return -1;
}

/* --- Writing --- */

static int open_temp(const char *temp, const char *copy)
{
    enum { MODE = 0666, FOLDER_MODE = 0777 };
    int fd = open(temp, O_RDWR | O_CREAT | O_CLOEXEC, MODE);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    char *folder = lt_format("%.*s", (int)(strrchr(copy, '/') - copy), copy);
    if (folder && (!mkdir(folder, FOLDER_MODE) || errno == EEXIST))
        fd = open(temp, O_RDWR | O_CREAT | O_CLOEXEC, MODE);
    lt_free(folder);
    return fd;
}

/* Whether temp is still the file that fd locks. */
static bool still_named(int fd, const char *temp)
{
    struct stat ours, there;
    return !fstat(fd, &ours) && !stat(temp, &there) && ours.st_ino == there.st_ino
           && ours.st_dev == there.st_dev;
}

static lt_status lock(const lt_disk_copy_writer *w)
{
    if (flock(w->fd, LOCK_EX | LOCK_NB) || !still_named(w->fd, w->temp))
        return LT_END;
    if (access(w->copy, F_OK))
        return LT_OK;
    unlink(w->temp); /* another process completed the copy meanwhile */
    return LT_END;
}

lt_status lt_disk_copy_begin(lt_disk_copy_writer *w, const char *copy)
{
    *w = (lt_disk_copy_writer){.fd = -1, .copy = copy};
    w->temp = lt_format("%s.part", copy);
    if (!w->temp)
        return LT_E_NOMEM;
    w->fd = open_temp(w->temp, copy);
    lt_status st = w->fd < 0 ? lt_fail(LT_E_IO, "%s: %s", w->temp, strerror(errno)) : lock(w);
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

lt_status lt_disk_copy_write(lt_disk_copy_writer *w, const void *bytes, size_t size)
{
    w->crc = lt_crc32c(w->crc, bytes, size);
    return put(w, bytes, size);
}

lt_status lt_disk_copy_finish(lt_disk_copy_writer *w, const lt_disk_copy_source *source)
{
    const tail t = make_tail(source, w->crc);
    lt_status st = put(w, source->path, t.path_bytes);
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
