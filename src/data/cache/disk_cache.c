/* When which file is copied. A file that holds one sample is written when it is read. A shard is
 * copied by the cache's thread; one that another process is copying is tried again after a pause.
 *
 * Invariants, under the mutex: a shard goes from NEW to REQUESTED to SETTLED; its fd is set at most
 * once, before SETTLED, and closed only when the cache is freed, so that readers need no lock. */

#include "data/cache/disk_cache.h"

#include "base/alloc.h"
#include "base/commit.h"
#include "base/file.h"
#include "data/cache/disk_copy.h"
#include "data/files/files.h"

#include "lather/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum stage { NEW, REQUESTED, SETTLED } stage;

typedef struct shard {
    const char *path;
    atomic_int stage;
    atomic_int fd; /* of the copy; -1: none yet */
    bool busy;     /* another process copies it: try again later */
} shard;

struct lt_disk_cache {
    char *folder;
    shard *shard;
    size_t shards;
    atomic_bool off; /* writing failed: no more copies */
    atomic_bool stop;
    atomic_int_fast64_t hits, misses, copies;
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

/* --- Shards --- */

static lt_status copy_bytes(const lt_disk_cache *cache, const lt_disk_copy_source *source, int fd,
                            lt_disk_copy_writer *w, uint8_t *piece, size_t piece_bytes)
{
    uint64_t size = (uint64_t)source->info.st_size;
    for (uint64_t at = 0; at < size; at += piece_bytes) {
        size_t bytes = size - at < piece_bytes ? (size_t)(size - at) : piece_bytes;
        if (atomic_load(&cache->stop))
            return LT_END;
        if (lt_read_at(fd, source->path, piece, bytes, at))
            return LT_END; /* the source is at fault: its reader reports it */
        LT_TRY(lt_disk_copy_write(w, piece, bytes));
    }
    return lt_disk_copy_is_current(source) ? LT_OK : LT_END;
}

/* LT_END: the source cannot be read, has changed, or copying was stopped. Errors: LT_E_IO, of the
 * copy. */
static lt_status copy_file(const lt_disk_cache *cache, const lt_disk_copy_source *source,
                           lt_disk_copy_writer *w)
{
    enum { PIECE = 1 << 20 };
    int fd;
    struct stat info;
    if (lt_file_descriptor(&fd, &info, source->path)) {
        lt_disk_copy_abandon(w);
        return LT_END;
    }
    uint8_t *piece = lt_alloc_aligned(64, PIECE);
    lt_status st = piece ? copy_bytes(cache, source, fd, w, piece, PIECE) : LT_E_NOMEM;
    lt_free(piece);
    close(fd);
    if (st) {
        lt_disk_copy_abandon(w);
        return st;
    }
    return lt_disk_copy_finish(w, source);
}

/* The copy's descriptor; -1: none. *busy: another process is copying it. */
static int get_copy(lt_disk_cache *cache, const char *path, bool *busy)
{
    lt_disk_copy_source source;
    lt_disk_copy_writer w;
    *busy = false;
    char *copy = lt_disk_copy_path(cache->folder, path);
    if (!copy || !lt_disk_copy_stat(&source, path)) {
        lt_free(copy);
        return -1;
    }
    int fd = lt_disk_copy_open(copy, &source, &cache->stop);
    if (fd < 0 && !atomic_load(&cache->off) && !atomic_load(&cache->stop)) {
        lt_status st = lt_disk_copy_begin(&w, copy);
        *busy = st == LT_END;
        if (!st)
            st = copy_file(cache, &source, &w);
        if (st && st != LT_END)
            give_up(cache);
        if (!st) {
            atomic_fetch_add(&cache->copies, 1);
            fd = lt_disk_copy_open(copy, &source, &cache->stop);
        }
    }
    lt_free(copy);
    return fd;
}

/* A requested shard, those that another process copies last; NULL: none. */
static shard *next_shard(const lt_disk_cache *cache)
{
    shard *waiting = NULL;
    for (size_t i = 0; i < cache->shards; i++) {
        shard *h = &cache->shard[i];
        if (atomic_load(&h->stage) == REQUESTED && !h->busy)
            return h;
        if (atomic_load(&h->stage) == REQUESTED)
            waiting = h;
    }
    return waiting;
}

/* With the mutex locked: waits 50 ms, or until the cache is freed. */
static void pause_copying(lt_disk_cache *cache)
{
    const long pause = 50000000, second = 1000000000;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += pause;
    if (until.tv_nsec >= second) {
        until.tv_nsec -= second;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&cache->work, &cache->mutex, &until);
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
        if (h->busy)
            pause_copying(cache);
        pthread_mutex_unlock(&cache->mutex);
        bool busy;
        int fd = get_copy(cache, h->path, &busy);
        pthread_mutex_lock(&cache->mutex);
        h->busy = busy;
        if (busy)
            continue;
        atomic_store(&h->fd, fd);
        atomic_store(&h->stage, SETTLED);
        pthread_cond_broadcast(&cache->settled);
    }
    pthread_mutex_unlock(&cache->mutex);
    return NULL;
}

static void request(lt_disk_cache *cache, shard *h, const char *path)
{
    pthread_mutex_lock(&cache->mutex);
    if (atomic_load(&h->stage) == NEW) {
        h->path = path;
        atomic_store(&h->stage, cache->started ? REQUESTED : SETTLED);
        pthread_cond_signal(&cache->work);
    }
    pthread_mutex_unlock(&cache->mutex);
}

lt_status lt_disk_cache_read_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                                  uint64_t size, lt_record *record)
{
    if (!cache)
        return lt_file_read_part(path, offset, size, record);
    LT_ASSERT(i < cache->shards);
    shard *h = &cache->shard[i];
    if (atomic_load(&h->stage) == NEW)
        request(cache, h, path);
    int fd = atomic_load(&h->fd);
    if (fd >= 0 && size && size <= LT_FILE_MOST) {
        LT_TRY(lt_record_reserve(record, (size_t)size));
        record->size = (size_t)size;
        if (!lt_read_at(fd, path, record->bytes, (size_t)size, offset)) {
            atomic_fetch_add(&cache->hits, 1);
            return LT_OK;
        }
    }
    atomic_fetch_add(&cache->misses, 1);
    return lt_file_read_part(path, offset, size, record);
}

void lt_disk_cache_ahead_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                              uint64_t size)
{
    int fd = cache ? atomic_load(&cache->shard[i].fd) : -1;
    if (fd >= 0)
        (void)posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
    else
        lt_file_ahead(path, offset, size);
}

/* --- Files --- */

static void save(lt_disk_cache *cache, const char *copy, const lt_disk_copy_source *source,
                 const lt_record *record)
{
    lt_disk_copy_writer w;
    if (atomic_load(&cache->off) || record->size != (size_t)source->info.st_size
        || !lt_disk_copy_is_current(source))
        return;
    lt_status st = lt_disk_copy_begin(&w, copy);
    if (st == LT_END)
        return;
    if (!st) {
        st = lt_disk_copy_write(&w, record->bytes, record->size);
        if (st)
            lt_disk_copy_abandon(&w);
        else
            st = lt_disk_copy_finish(&w, source);
    }
    if (st)
        give_up(cache);
    else
        atomic_fetch_add(&cache->copies, 1);
}

lt_status lt_disk_cache_read(lt_disk_cache *cache, const char *path, lt_record *record)
{
    lt_disk_copy_source source;
    if (!cache || !lt_disk_copy_stat(&source, path))
        return lt_file_read(path, record);
    char *copy = lt_disk_copy_path(cache->folder, path);
    if (!copy)
        return LT_E_NOMEM;
    lt_status st = LT_OK;
    if (lt_disk_copy_read(copy, &source, record)) {
        atomic_fetch_add(&cache->hits, 1);
    } else {
        atomic_fetch_add(&cache->misses, 1);
        st = lt_file_read(path, record);
        if (!st)
            save(cache, copy, &source, record);
    }
    lt_free(copy);
    return st;
}

void lt_disk_cache_ahead(lt_disk_cache *cache, const char *path)
{
    char *copy = cache ? lt_disk_copy_path(cache->folder, path) : NULL;
    lt_file_ahead(copy && !access(copy, R_OK) ? copy : path, 0, 0);
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

lt_status lt_disk_cache_new(lt_disk_cache **out, const char *folder, size_t shards)
{
    lt_disk_cache *cache = lt_alloc(1, sizeof *cache);
    if (!cache)
        return LT_E_NOMEM;
    cache->folder = lt_strdup(folder);
    cache->shard = lt_alloc(shards, sizeof *cache->shard);
    if (!cache->folder || !cache->shard) {
        lt_free(cache->folder);
        lt_free(cache->shard);
        lt_free(cache);
        return LT_E_NOMEM;
    }
    cache->shards = shards;
    for (size_t i = 0; i < shards; i++)
        atomic_store(&cache->shard[i].fd, -1);
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->work, NULL);
    pthread_cond_init(&cache->settled, NULL);
    if (lt_commit_make_folders(folder))
        give_up(cache);
    if (shards)
        start_thread(cache);
    *out = cache;
    return LT_OK;
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
        if (atomic_load(&cache->shard[i].fd) >= 0)
            close(atomic_load(&cache->shard[i].fd));
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

lt_disk_cache_counts lt_disk_cache_statistics(const lt_disk_cache *cache)
{
    return (lt_disk_cache_counts){.hits = atomic_load(&cache->hits),
                                  .misses = atomic_load(&cache->misses),
                                  .copies = atomic_load(&cache->copies)};
}
