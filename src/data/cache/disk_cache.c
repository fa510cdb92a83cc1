/* When which object is copied: a file that holds one sample when it is read, a shard in pieces:
 * those that a sample wants when it is read, the others by the cache's thread. Whoever finds no
 * copy makes it under its lock and reads the original once; who comes meanwhile waits for the copy.
 * So the originals are read once on a machine, as far as the copies find space.
 *
 * Invariants, under the mutex: a shard goes from NEW to REQUESTED to SETTLED. What is known of its
 * file is set before, and not changed until the cache is freed, so that readers need no lock. A
 * piece's fd is set at most once, and closed when the cache is freed. */

#include "data/cache/disk_cache.h"

#include "base/alloc.h"
#include "base/commit.h"
#include "base/file.h"
#include "base/shared_file.h"
#include "data/cache/disk_copy.h"
#include "data/cache/disk_limit.h"
#include "data/files/files.h"

#include "lather/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Of a shard. A sample of a shard that is read at random wants few bytes around it, and a request
 * to a network file system should be worth its latency. */
enum { PIECE = 1 << 20 };

/* Another process may remove a copy that was just there: then it is made again. */
enum { TRIES = 4 };

enum { KEPT_OPEN = 256, NOTE_SECONDS = 60 };

/* In front of a folder's name. */
static const char SHARED[] = "shared:";

typedef enum stage { NEW, REQUESTED, SETTLED } stage;

typedef struct kept {
    lt_disk_known known;
    atomic_int fd;               /* of the copy, plus 1; 0: it is not kept open */
    atomic_int_fast64_t noted_s; /* when its use was last recorded */
} kept;

typedef struct shard {
    atomic_int stage;
    lt_disk_object file;
    kept *piece;
    size_t pieces;
} shard;

struct lt_disk_cache {
    char *folder;
    bool any_owner; /* shared with other users */
    shard *shard;
    size_t shards;
    lt_disk_limit limit;
    atomic_bool off; /* writing failed: no more copies */
    atomic_bool stop;
    atomic_int open, most_open; /* copies of pieces */
    atomic_int_fast64_t hits, misses, copies, reads;
    pthread_mutex_t mutex;
    pthread_cond_t work, settled;
    pthread_t thread;
    bool started;
};

/* Warns once that copies cannot be written, and stops writing them. */
static void give_up(lt_disk_cache *cache)
{
    if (!atomic_exchange(&cache->off, true))
        lt_log(LT_LOG_WARN, "data", "cache in %s: %s: going on without it", cache->folder,
               lt_error_message());
}

/* --- Making a copy --- */

/* Whether the caller is to make the copy, it exists by now, or there will be none. */
typedef enum turn { MAKE, EXISTS, NONE } turn;

static turn begin(lt_disk_cache *cache, lt_disk_copy_writer *w, const char *copy,
                  const lt_disk_object *object)
{
    const int64_t bytes = lt_disk_copy_bytes(object);
    if (atomic_load(&cache->off) || !lt_disk_limit_reserve(&cache->limit, bytes))
        return NONE;
    lt_status st = lt_disk_copy_begin(w, copy, cache->any_owner);
    if (!st)
        return MAKE;
    lt_disk_limit_release(&cache->limit, bytes);
    if (st != LT_END)
        give_up(cache);
    return st == LT_END && !access(copy, R_OK) ? EXISTS : NONE;
}

/* The object's bytes were read; NULL: they could not be. */
static void finish(lt_disk_cache *cache, lt_disk_copy_writer *w, const lt_disk_object *object,
                   const void *bytes)
{
    if (bytes && lt_disk_object_is_current(object)) {
        if (!lt_disk_copy_finish(w, object, bytes)) {
            atomic_fetch_add(&cache->copies, 1);
            return;
        }
        give_up(cache);
    } else {
        lt_disk_copy_abandon(w);
    }
    lt_disk_limit_release(&cache->limit, lt_disk_copy_bytes(object));
}

/* The file has changed since the copy was made, or the copy is damaged. If the file has changed
 * since we looked at it, the copy may be right for others. */
static void drop(lt_disk_cache *cache, const char *copy, const lt_disk_object *object)
{
    if (lt_disk_object_is_current(object) && !unlink(copy))
        lt_disk_limit_release(&cache->limit, lt_disk_copy_bytes(object));
}

/* --- Files --- */

static lt_status read_original(lt_disk_cache *cache, const char *path, lt_record *record)
{
    atomic_fetch_add(&cache->misses, 1);
    atomic_fetch_add(&cache->reads, 1);
    return lt_file_read(path, record);
}

static lt_status read_through(lt_disk_cache *cache, const char *copy, const lt_disk_object *object,
                              lt_record *record)
{
    lt_disk_copy_writer w;
    bool damaged;
    turn t = EXISTS;
    for (int i = 0; i < TRIES && t == EXISTS; i++) {
        if (lt_disk_copy_read(copy, object, record, &damaged)) {
            atomic_fetch_add(&cache->hits, 1);
            return LT_OK;
        }
        if (damaged)
            drop(cache, copy, object);
        t = begin(cache, &w, copy, object);
    }
    lt_status st = read_original(cache, object->path, record);
    if (t == MAKE)
        finish(cache, &w, object, !st && record->size == object->bytes ? record->bytes : NULL);
    return st;
}

lt_status lt_disk_cache_read(lt_disk_cache *cache, const char *path, lt_record *record)
{
    lt_disk_object object;
    if (!cache)
        return lt_file_read(path, record);
    if (!lt_disk_object_stat(&object, path) || object.bytes > LT_FILE_MOST)
        return read_original(cache, path, record);
    object.any_owner = cache->any_owner;
    char *copy = lt_disk_copy_path(cache->folder, &object);
    lt_status st = copy ? read_through(cache, copy, &object, record) : LT_E_NOMEM;
    lt_free(copy);
    return st;
}

void lt_disk_cache_ahead(lt_disk_cache *cache, const char *path)
{
    const lt_disk_object object = {.path = path};
    char *copy = cache ? lt_disk_copy_path(cache->folder, &object) : NULL;
    lt_file_ahead(copy && !access(copy, R_OK) ? copy : path, 0, 0);
    lt_free(copy);
}

/* --- Shards --- */

static lt_disk_object piece_of(const shard *h, size_t k)
{
    lt_disk_object piece = h->file;
    piece.offset = (uint64_t)k * PIECE;
    piece.bytes = h->file.bytes - piece.offset < PIECE ? h->file.bytes - piece.offset : PIECE;
    return piece;
}

/* A part of a piece, and where it is wanted. bytes 0: only the copy is. */
typedef struct wanted {
    size_t from, bytes;
    uint8_t *to;
    bool from_original; /* the piece was read from the file */
} wanted;

/* Reads a piece from the file, and copies it. False: the file could not be read. */
static bool fetch(lt_disk_cache *cache, lt_disk_copy_writer *w, const lt_disk_object *piece,
                  wanted *want)
{
    int fd = -1;
    struct stat info;
    uint8_t *bytes = lt_alloc_aligned(64, (size_t)piece->bytes);
    bool ok = bytes && !lt_file_descriptor(&fd, &info, piece->path)
              && !lt_read_at(fd, piece->path, bytes, (size_t)piece->bytes, piece->offset);
    if (fd >= 0) {
        atomic_fetch_add(&cache->reads, 1);
        close(fd);
    }
    if (ok && want->bytes)
        memcpy(want->to, bytes + want->from, want->bytes);
    want->from_original = true;
    finish(cache, w, piece, ok ? bytes : NULL);
    lt_free(bytes);
    return ok;
}

/* Keeps an open copy open, or closes it. */
static void keep(lt_disk_cache *cache, kept *p, int fd)
{
    int none = 0;
    if (atomic_fetch_add(&cache->open, 1) < atomic_load(&cache->most_open)
        && atomic_compare_exchange_strong(&p->fd, &none, fd + 1))
        return;
    atomic_fetch_sub(&cache->open, 1);
    close(fd);
}

/* False: it is not kept open. */
static bool read_open(kept *p, const char *path, const wanted *want)
{
    const int fd = atomic_load(&p->fd) - 1;
    const int64_t now = time(NULL);
    if (fd < 0 || lt_read_at(fd, path, want->to, want->bytes, want->from))
        return false;
    if (now - atomic_load(&p->noted_s) >= NOTE_SECONDS) {
        atomic_store(&p->noted_s, now);
        lt_disk_copy_note(fd);
    }
    return true;
}

static bool read_copy(lt_disk_cache *cache, kept *p, const char *copy, const lt_disk_object *object,
                      const wanted *want, bool *damaged)
{
    int fd = lt_disk_copy_open(copy, object, &p->known, damaged);
    if (fd < 0)
        return false;
    bool ok = !lt_read_at(fd, copy, want->to, want->bytes, want->from);
    atomic_store(&p->noted_s, time(NULL));
    keep(cache, p, fd);
    return ok;
}

/* False: it has no copy and gets none, or its file cannot be read, which reading it will tell. */
static bool read_piece(lt_disk_cache *cache, const shard *h, size_t k, wanted *want)
{
    const lt_disk_object object = piece_of(h, k);
    lt_disk_copy_writer w;
    bool damaged, ok = false;
    turn t = EXISTS;
    if (want->bytes && read_open(&h->piece[k], h->file.path, want))
        return true;
    char *copy = lt_disk_copy_path(cache->folder, &object);
    for (int i = 0; copy && i < TRIES && t == EXISTS && !ok; i++) {
        ok = want->bytes ? read_copy(cache, &h->piece[k], copy, &object, want, &damaged)
                         : !access(copy, R_OK);
        if (!ok && want->bytes && damaged)
            drop(cache, copy, &object);
        if (!ok)
            t = begin(cache, &w, copy, &object);
    }
    if (t == MAKE)
        ok = fetch(cache, &w, &object, want);
    lt_free(copy);
    return ok;
}

/* A shard that wants copies, or NULL. */
static shard *next_shard(const lt_disk_cache *cache)
{
    for (size_t i = 0; i < cache->shards; i++)
        if (atomic_load(&cache->shard[i].stage) == REQUESTED)
            return &cache->shard[i];
    return NULL;
}

static void *run(void *context)
{
    lt_disk_cache *cache = context;
    pthread_mutex_lock(&cache->mutex);
    while (!atomic_load(&cache->stop)) {
        shard *h = next_shard(cache);
        if (!h) {
            pthread_cond_wait(&cache->work, &cache->mutex);
            continue;
        }
        pthread_mutex_unlock(&cache->mutex);
        bool ok = true;
        for (size_t k = 0; k < h->pieces && ok && !atomic_load(&cache->stop); k++)
            ok = read_piece(cache, h, k, &(wanted){.bytes = 0});
        pthread_mutex_lock(&cache->mutex);
        atomic_store(&h->stage, SETTLED);
        pthread_cond_broadcast(&cache->settled);
    }
    pthread_mutex_unlock(&cache->mutex);
    return NULL;
}

/* Looks at the file and wakes the thread. False: there is no such file, or no memory. */
static bool request(lt_disk_cache *cache, shard *h, const char *path)
{
    pthread_mutex_lock(&cache->mutex);
    if (atomic_load(&h->stage) == NEW && lt_disk_object_stat(&h->file, path)) {
        h->file.any_owner = cache->any_owner;
        h->pieces = (size_t)((h->file.bytes + PIECE - 1) / PIECE);
        h->piece = lt_alloc(h->pieces, sizeof *h->piece);
        if (h->piece)
            atomic_store(&h->stage, cache->started ? REQUESTED : SETTLED);
        pthread_cond_signal(&cache->work);
    }
    bool ok = h->piece;
    pthread_mutex_unlock(&cache->mutex);
    return ok;
}

/* The bytes of a shard by its pieces. False: they are not all to be had so. */
static bool read_pieces(lt_disk_cache *cache, const shard *h, uint64_t offset, lt_record *record)
{
    bool from_original = false;
    if (offset > h->file.bytes || record->size > h->file.bytes - offset)
        return false;
    for (size_t done = 0; done < record->size;) {
        const uint64_t at = offset + done;
        wanted want = {.from = (size_t)(at % PIECE), .to = record->bytes + done};
        want.bytes = PIECE - want.from;
        if (want.bytes > record->size - done)
            want.bytes = record->size - done;
        if (!read_piece(cache, h, (size_t)(at / PIECE), &want))
            return false;
        from_original |= want.from_original;
        done += want.bytes;
    }
    atomic_fetch_add(from_original ? &cache->misses : &cache->hits, 1);
    return true;
}

lt_status lt_disk_cache_read_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                                  uint64_t size, lt_record *record)
{
    if (!cache)
        return lt_file_read_part(path, offset, size, record);
    LT_ASSERT(i < cache->shards);
    shard *h = &cache->shard[i];
    bool known = atomic_load(&h->stage) != NEW || request(cache, h, path);
    if (known && size && size <= LT_FILE_MOST) {
        LT_TRY(lt_record_reserve(record, (size_t)size));
        record->size = (size_t)size;
        if (read_pieces(cache, h, offset, record))
            return LT_OK;
    }
    atomic_fetch_add(&cache->misses, 1);
    atomic_fetch_add(&cache->reads, 1);
    return lt_file_read_part(path, offset, size, record);
}

void lt_disk_cache_ahead_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                              uint64_t size)
{
    char *copy = NULL;
    if (cache && atomic_load(&cache->shard[i].stage) != NEW
        && offset < cache->shard[i].file.bytes) {
        const lt_disk_object piece = piece_of(&cache->shard[i], (size_t)(offset / PIECE));
        copy = lt_disk_copy_path(cache->folder, &piece);
    }
    if (copy && !access(copy, R_OK))
        lt_file_ahead(copy, offset % PIECE, size);
    else
        lt_file_ahead(path, offset, size);
    lt_free(copy);
}

/* --- The cache --- */

static void start_thread(lt_disk_cache *cache)
{
    sigset_t all, before; /* signals are delivered to the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    cache->started = !pthread_create(&cache->thread, NULL, run, cache);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* mkdir() with that mode, and of parents with the usual one. */
static lt_status make_folder(const char *folder, mode_t mode)
{
    const char *slash = strrchr(folder, '/');
    if (mkdir(folder, mode) && errno == ENOENT && slash) {
        char *parent = lt_format("%.*s", (int)(slash - folder), folder);
        if (parent && !lt_commit_make_folders(parent))
            (void)mkdir(folder, mode);
        lt_free(parent);
    }
    return lt_commit_make_folders(folder); /* also says what is wrong */
}

/* Fails if path exists and another user made it or may write it. */
static lt_status check_subfolder(const char *path)
{
    struct stat info;
    if (lstat(path, &info))
        return LT_OK;
    if (!S_ISDIR(info.st_mode))
        return lt_fail(LT_E_IO, "%s: not a folder, but %s", path, lt_file_kind(info.st_mode));
    return lt_private_folder(path);
}

/* A folder in which other users may put files is not used without the user's word. */
static lt_status check_folder(const lt_disk_cache *cache)
{
    enum { SUBFOLDERS = 256 };
    char path[PATH_MAX];
    LT_TRY(lt_private_folder(cache->folder));
    for (unsigned i = 0; i < SUBFOLDERS; i++)
        if (snprintf(path, sizeof path, "%s/%02x", cache->folder, i) < (int)sizeof path)
            LT_TRY(check_subfolder(path));
    return LT_OK;
}

static lt_status open_folder(lt_disk_cache *cache)
{
    if (make_folder(cache->folder, cache->any_owner ? 0777 : 0755)) {
        give_up(cache);
        return LT_OK;
    }
    lt_status st = cache->any_owner ? LT_OK : check_folder(cache);
    if (!st)
        st = lt_disk_limit_check(&cache->limit);
    return st && !cache->any_owner
               ? lt_fail(st, "cache: %s; 'shared:%s' shares it with other users",
                         lt_error_message(), cache->folder)
               : st;
}

lt_status lt_disk_cache_new(lt_disk_cache **out, const char *folder, size_t shards)
{
    const size_t prefix = strlen(SHARED);
    lt_disk_cache *cache = lt_alloc(1, sizeof *cache);
    if (!cache)
        return LT_E_NOMEM;
    cache->any_owner = !strncmp(folder, SHARED, prefix);
    cache->folder = lt_strdup(folder + (cache->any_owner ? prefix : 0));
    cache->shard = lt_alloc(shards, sizeof *cache->shard);
    if (!cache->folder || !cache->shard) {
        lt_free(cache->folder);
        lt_free(cache->shard);
        lt_free(cache);
        return LT_E_NOMEM;
    }
    cache->shards = shards;
    atomic_store(&cache->most_open, KEPT_OPEN);
    lt_disk_limit_open(&cache->limit, cache->folder, cache->any_owner);
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->work, NULL);
    pthread_cond_init(&cache->settled, NULL);
    lt_status st = open_folder(cache);
    if (!st && shards)
        start_thread(cache);
    if (st)
        lt_disk_cache_free(&cache);
    else
        *out = cache;
    return st;
}

static void close_shard(shard *h)
{
    for (size_t k = 0; h->piece && k < h->pieces; k++)
        if (atomic_load(&h->piece[k].fd))
            close(atomic_load(&h->piece[k].fd) - 1);
    lt_free(h->piece);
}

void lt_disk_cache_free(lt_disk_cache **out)
{
    lt_disk_cache *cache = *out;
    *out = NULL;
    if (!cache)
        return;
    pthread_mutex_lock(&cache->mutex);
    atomic_store(&cache->stop, true);
    pthread_cond_broadcast(&cache->work);
    pthread_mutex_unlock(&cache->mutex);
    if (cache->started)
        pthread_join(cache->thread, NULL);
    for (size_t i = 0; i < cache->shards; i++)
        close_shard(&cache->shard[i]);
    pthread_cond_destroy(&cache->work);
    pthread_cond_destroy(&cache->settled);
    pthread_mutex_destroy(&cache->mutex);
    lt_free(cache->folder);
    lt_free(cache->shard);
    lt_free(cache);
}

void lt_disk_cache_wait(lt_disk_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    for (size_t i = 0; i < cache->shards; i++)
        while (atomic_load(&cache->shard[i].stage) == REQUESTED)
            pthread_cond_wait(&cache->settled, &cache->mutex);
    pthread_mutex_unlock(&cache->mutex);
}

void lt_disk_cache_keep_open(lt_disk_cache *cache, int copies)
{
    atomic_store(&cache->most_open, copies);
}

void lt_disk_cache_limit(lt_disk_cache *cache, int64_t bytes)
{
    atomic_store(&cache->limit.most, bytes);
}

lt_disk_cache_counts lt_disk_cache_statistics(const lt_disk_cache *cache)
{
    return (lt_disk_cache_counts){.hits = atomic_load(&cache->hits),
                                  .misses = atomic_load(&cache->misses),
                                  .copies = atomic_load(&cache->copies),
                                  .reads = atomic_load(&cache->reads),
                                  .evictions = atomic_load(&cache->limit.evictions)};
}
