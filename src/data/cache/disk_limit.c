/* Eviction. A run reads all of its files once an epoch, in a random order. With a plain LRU a
 * folder that holds the share f of them would have the hit rate f + (1 - f) ln(1 - f): between two
 * uses of a file lie u = 1 - xy of the others, x and y uniform, and it is still there if u < f.
 * Files that stay once they are there have the hit rate f. So a copy that was used since this
 * process opened the folder never goes; of earlier runs' the least recently used goes first.
 *
 * Invariants: the count is read and written under the lock (flock) of its file, so it is exact
 * while no process dies between counting and writing; then it is too large, until the next sweep
 * counts anew. A file that is open somewhere may be removed: it is there until it is closed. */

#include "data/cache/disk_limit.h"

#include "base/alloc.h"
#include "data/cache/disk_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEX = 14, NAME_BYTES = 20, FOLDERS = 256, NANO = 1000000000, BLOCK = 4096 };

typedef struct victim {
    int64_t used_ns, bytes;
    uint8_t folder;
    char name[NAME_BYTES];
} victim;

typedef struct sweep {
    const lt_disk_limit *limit;
    int64_t total; /* bytes of all copies */
    victim *victim;
    size_t count, capacity;
} sweep;

static int64_t nanoseconds(const struct timespec *t)
{
    return (int64_t)t->tv_sec * NANO + t->tv_nsec;
}

void lt_disk_limit_open(lt_disk_limit *limit, const char *folder, bool any_owner)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    limit->folder = folder;
    limit->any_owner = any_owner;
    limit->opened_ns = nanoseconds(&now);
}

/* --- The count --- */

/* Opens FOLDER/bytes and locks it; -1: it cannot be. */
static int open_count(const lt_disk_limit *limit, bool create)
{
    char *path = lt_format("%s/bytes", limit->folder);
    int fd = -1;
    const bool failed =
        !path || lt_disk_open(&fd, path, O_RDWR | (create ? O_CREAT : 0), limit->any_owner);
    lt_free(path);
    if (!failed && flock(fd, LOCK_EX)) {
        close(fd);
        return -1;
    }
    return fd;
}

lt_status lt_disk_limit_check(const lt_disk_limit *limit)
{
    errno = 0;
    int fd = open_count(limit, false);
    if (fd >= 0)
        close(fd);
    return fd < 0 && errno == EPERM ? LT_E_IO : LT_OK;
}

static bool read_count(int fd, int64_t *total)
{
    return pread(fd, total, sizeof *total, 0) == sizeof *total && *total >= 0;
}

/* Writes the count and ends the lock. One that cannot be written is counted anew. */
static void close_count(int fd, int64_t total)
{
    if (pwrite(fd, &total, sizeof total, 0) != sizeof total && ftruncate(fd, 0))
        (void)fd; /* then it is too small by one copy */
    close(fd);
}

/* --- A sweep over all copies --- */

/* What the cache writes: 14 hexadecimal digits, and ".part" while it does. */
static bool is_copy(const char *name, bool *part)
{
    size_t digits = strspn(name, "0123456789abcdef");
    *part = !strcmp(name + digits, ".part");
    return digits == HEX && (!name[HEX] || *part);
}

/* Whether a process is writing it. */
static bool is_locked(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB);
    if (fd >= 0)
        close(fd);
    return locked;
}

static void note_copy(sweep *s, int folder, int number, const char *name)
{
    struct stat info;
    bool part;
    if (!is_copy(name, &part) || fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW))
        return;
    const int64_t bytes = ((int64_t)info.st_size + BLOCK - 1) / BLOCK * BLOCK;
    s->total += bytes;
    if (nanoseconds(&info.st_mtim) >= s->limit->opened_ns || (part && is_locked(folder, name)))
        return;
    victim *more = lt_grow(s->victim, &s->capacity, s->count + 1, sizeof *more);
    if (!more)
        return; /* then it stays */
    s->victim = more;
    victim *v = &more[s->count++];
    *v = (victim){.used_ns = nanoseconds(&info.st_mtim), .bytes = bytes, .folder = (uint8_t)number};
    memcpy(v->name, name, strlen(name) + 1);
}

static void walk(sweep *s)
{
    for (int i = 0; i < FOLDERS; i++) {
        char *path = lt_format("%s/%02x", s->limit->folder, (unsigned)i);
        DIR *folder = path ? opendir(path) : NULL;
        for (struct dirent *e; folder && (e = readdir(folder));)
            note_copy(s, dirfd(folder), i, e->d_name);
        if (folder)
            closedir(folder);
        lt_free(path);
    }
}

static int by_use(const void *a, const void *b)
{
    const victim *x = a, *y = b;
    if (x->used_ns != y->used_ns)
        return x->used_ns < y->used_ns ? -1 : 1;
    return x->folder != y->folder ? x->folder - y->folder : strcmp(x->name, y->name);
}

static bool evict(const lt_disk_limit *limit, const victim *v)
{
    char *path = lt_format("%s/%02x/%s", limit->folder, v->folder, v->name);
    bool gone = path && !unlink(path);
    lt_free(path);
    return gone;
}

/* Counts all copies, and removes what may go until at most target bytes are left, and some more,
 * so that not every copy needs a sweep. The bytes that are left. */
static int64_t clean(lt_disk_limit *limit, int64_t target)
{
    const int64_t slack = 16; /* of the limit, the part that is made free at once */
    sweep s = {.limit = limit};
    walk(&s);
    if (s.total > target) {
        if (s.count)
            qsort(s.victim, s.count, sizeof *s.victim, by_use);
        target -= atomic_load(&limit->most) / slack;
        size_t i = 0;
        for (; i < s.count && s.total > target; i++)
            if (evict(limit, &s.victim[i])) {
                s.total -= s.victim[i].bytes;
                atomic_fetch_add(&limit->evictions, 1);
            }
        atomic_store(&limit->exhausted, i == s.count);
    }
    lt_free(s.victim);
    return s.total;
}

bool lt_disk_limit_reserve(lt_disk_limit *limit, int64_t bytes)
{
    const int64_t most = atomic_load(&limit->most);
    int64_t total = 0;
    int fd = open_count(limit, most > 0);
    if (fd < 0)
        return true; /* no count is kept, or writing the copy will say why it cannot be */
    bool known = read_count(fd, &total);
    if (!most && !known) {
        close(fd);
        return true;
    }
    if (most && (!known || (total + bytes > most && !atomic_load(&limit->exhausted))))
        total = clean(limit, most - bytes);
    bool fits = !most || total + bytes <= most;
    close_count(fd, total + (fits ? bytes : 0));
    return fits;
}

void lt_disk_limit_release(const lt_disk_limit *limit, int64_t bytes)
{
    int64_t total = 0;
    int fd = open_count(limit, false);
    if (fd < 0)
        return;
    if (read_count(fd, &total))
        close_count(fd, total > bytes ? total - bytes : 0);
    else
        close(fd);
}
