/* Who copies what, and when. A file that is a sample is written as it was read. A shard is copied by a thread of
 * the store's; what another process is copying at the moment is looked at again later.
 *
 * Invariants, under the mutex: a shard goes from NEW to ASKED to SETTLED; its fd is set at most once, before
 * SETTLED, and closed only when the store is freed, so that readers need no lock. */

#include "data/cache/store.h"

#include "base/alloc.h"
#include "base/commit.h"
#include "base/file.h"
#include "data/cache/local.h"
#include "data/files/files.h"

#include "lather/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum stage { NEW, ASKED, SETTLED } stage;

typedef struct shard {
    const char *path;
    atomic_int stage;
    atomic_int fd; /* of the copy; -1: none yet */
    bool busy;     /* another process copies it: look again later */
} shard;

struct lt_store {
    char *folder;
    shard *shard;
    size_t shards;
    atomic_bool off; /* nothing more is written */
    atomic_bool stop;
    atomic_int_fast64_t hits, misses, copies;
    pthread_mutex_t mutex;
    pthread_cond_t work, settled;
    pthread_t thread;
    bool started;
};

/* Says once that copies cannot be written. */
static void give_up(lt_store *s)
{
    if (!atomic_exchange(&s->off, true))
        lt_log(LT_LOG_WARN, "data", "cache in %s: %s: going on without it", s->folder,
               lt_error_message());
}

/* --- Shards --- */

static lt_status copy_bytes(const lt_store *s, const lt_local_source *source, int fd,
                            lt_local_writer *w, uint8_t *piece, size_t piece_bytes)
{
    uint64_t size = (uint64_t)source->info.st_size;
    for (uint64_t at = 0; at < size; at += piece_bytes) {
        size_t bytes = size - at < piece_bytes ? (size_t)(size - at) : piece_bytes;
        if (atomic_load(&s->stop))
            return LT_END;
        if (lt_read_at(fd, source->path, piece, bytes, at))
            return LT_END; /* the source's fault: whoever reads it will say so */
        LT_TRY(lt_local_write(w, piece, bytes));
    }
    return lt_local_same(source) ? LT_OK : LT_END;
}

/* LT_END: the source cannot be read as it was, or it was stopped. Errors: LT_E_IO, of the copy. */
static lt_status copy_file(const lt_store *s, const lt_local_source *source, lt_local_writer *w)
{
    enum { PIECE = 1 << 20 };
    int fd;
    struct stat info;
    if (lt_file_descriptor(&fd, &info, source->path)) {
        lt_local_abandon(w);
        return LT_END;
    }
    uint8_t *piece = lt_alloc_aligned(64, PIECE);
    lt_status st = piece ? copy_bytes(s, source, fd, w, piece, PIECE) : LT_E_NOMEM;
    lt_free(piece);
    close(fd);
    if (st) {
        lt_local_abandon(w);
        return st;
    }
    return lt_local_finish(w, source);
}

/* The copy's descriptor; -1 if there is none, and then *busy tells whether another makes it. */
static int get_copy(lt_store *s, const char *path, bool *busy)
{
    lt_local_source source;
    lt_local_writer w;
    *busy = false;
    char *copy = lt_local_path(s->folder, path);
    if (!copy || !lt_local_look(&source, path)) {
        lt_free(copy);
        return -1;
    }
    int fd = lt_local_open(copy, &source, &s->stop);
    if (fd < 0 && !atomic_load(&s->off) && !atomic_load(&s->stop)) {
        lt_status st = lt_local_begin(&w, copy);
        *busy = st == LT_END;
        if (!st)
            st = copy_file(s, &source, &w);
        if (st && st != LT_END)
            give_up(s);
        if (!st) {
            atomic_fetch_add(&s->copies, 1);
            fd = lt_local_open(copy, &source, &s->stop);
        }
    }
    lt_free(copy);
    return fd;
}

/* A shard that was asked for, before those that another process copies; NULL: none. */
static shard *next_shard(const lt_store *s)
{
    shard *waiting = NULL;
    for (size_t i = 0; i < s->shards; i++) {
        shard *h = &s->shard[i];
        if (atomic_load(&h->stage) == ASKED && !h->busy)
            return h;
        if (atomic_load(&h->stage) == ASKED)
            waiting = h;
    }
    return waiting;
}

/* With the mutex locked: some time, or until the store is freed. */
static void wait_a_while(lt_store *s)
{
    const long pause = 50000000, second = 1000000000;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += pause;
    if (until.tv_nsec >= second) {
        until.tv_nsec -= second;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&s->work, &s->mutex, &until);
}

static void *run(void *context)
{
    lt_store *s = context;
    pthread_mutex_lock(&s->mutex);
    while (!atomic_load(&s->stop)) {
        shard *h = next_shard(s);
        if (!h) {
            pthread_cond_wait(&s->work, &s->mutex);
            continue;
        }
        if (h->busy)
            wait_a_while(s);
        pthread_mutex_unlock(&s->mutex);
        bool busy;
        int fd = get_copy(s, h->path, &busy);
        pthread_mutex_lock(&s->mutex);
        h->busy = busy;
        if (busy)
            continue;
        atomic_store(&h->fd, fd);
        atomic_store(&h->stage, SETTLED);
        pthread_cond_broadcast(&s->settled);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static void ask(lt_store *s, shard *h, const char *path)
{
    pthread_mutex_lock(&s->mutex);
    if (atomic_load(&h->stage) == NEW) {
        h->path = path;
        atomic_store(&h->stage, s->started ? ASKED : SETTLED);
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->mutex);
}

lt_status lt_store_read_part(lt_store *s, size_t i, const char *path, uint64_t offset,
                             uint64_t size, lt_record *record)
{
    if (!s)
        return lt_file_read_part(path, offset, size, record);
    LT_ASSERT(i < s->shards);
    shard *h = &s->shard[i];
    if (atomic_load(&h->stage) == NEW)
        ask(s, h, path);
    int fd = atomic_load(&h->fd);
    if (fd >= 0 && size && size <= LT_FILE_MOST) {
        LT_TRY(lt_record_reserve(record, (size_t)size));
        record->size = (size_t)size;
        if (!lt_read_at(fd, path, record->bytes, (size_t)size, offset)) {
            atomic_fetch_add(&s->hits, 1);
            return LT_OK;
        }
    }
    atomic_fetch_add(&s->misses, 1);
    return lt_file_read_part(path, offset, size, record);
}

void lt_store_ahead_part(lt_store *s, size_t i, const char *path, uint64_t offset, uint64_t size)
{
    int fd = s ? atomic_load(&s->shard[i].fd) : -1;
    if (fd >= 0)
        (void)posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
    else
        lt_file_ahead(path, offset, size);
}

/* --- Files --- */

static void save(lt_store *s, const char *copy, const lt_local_source *source,
                 const lt_record *record)
{
    lt_local_writer w;
    if (atomic_load(&s->off) || record->size != (size_t)source->info.st_size
        || !lt_local_same(source))
        return;
    lt_status st = lt_local_begin(&w, copy);
    if (st == LT_END)
        return;
    if (!st) {
        st = lt_local_write(&w, record->bytes, record->size);
        if (st)
            lt_local_abandon(&w);
        else
            st = lt_local_finish(&w, source);
    }
    if (st)
        give_up(s);
    else
        atomic_fetch_add(&s->copies, 1);
}

lt_status lt_store_read(lt_store *s, const char *path, lt_record *record)
{
    lt_local_source source;
    if (!s || !lt_local_look(&source, path))
        return lt_file_read(path, record);
    char *copy = lt_local_path(s->folder, path);
    if (!copy)
        return LT_E_NOMEM;
    lt_status st = LT_OK;
    if (lt_local_read(copy, &source, record)) {
        atomic_fetch_add(&s->hits, 1);
    } else {
        atomic_fetch_add(&s->misses, 1);
        st = lt_file_read(path, record);
        if (!st)
            save(s, copy, &source, record);
    }
    lt_free(copy);
    return st;
}

void lt_store_ahead(lt_store *s, const char *path)
{
    char *copy = s ? lt_local_path(s->folder, path) : NULL;
    lt_file_ahead(copy && !access(copy, R_OK) ? copy : path, 0, 0);
    lt_free(copy);
}

/* --- The store --- */

static void start_thread(lt_store *s)
{
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->started = !pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

lt_status lt_store_new(lt_store **out, const char *folder, size_t shards)
{
    lt_store *s = lt_alloc(1, sizeof *s);
    if (!s)
        return LT_E_NOMEM;
    s->folder = lt_strdup(folder);
    s->shard = lt_alloc(shards, sizeof *s->shard);
    if (!s->folder || !s->shard) {
        lt_free(s->folder);
        lt_free(s->shard);
        lt_free(s);
        return LT_E_NOMEM;
    }
    s->shards = shards;
    for (size_t i = 0; i < shards; i++)
        atomic_store(&s->shard[i].fd, -1);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->settled, NULL);
    if (lt_commit_make_folders(folder))
        give_up(s);
    if (shards)
        start_thread(s);
    *out = s;
    return LT_OK;
}

void lt_store_free(lt_store **store)
{
    lt_store *s = *store;
    *store = NULL;
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    atomic_store(&s->stop, true);
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
    if (s->started)
        pthread_join(s->thread, NULL);
    for (size_t i = 0; i < s->shards; i++)
        if (atomic_load(&s->shard[i].fd) >= 0)
            close(atomic_load(&s->shard[i].fd));
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->settled);
    pthread_mutex_destroy(&s->mutex);
    lt_free(s->folder);
    lt_free(s->shard);
    lt_free(s);
}

void lt_store_wait(lt_store *s)
{
    pthread_mutex_lock(&s->mutex);
    for (size_t i = 0; i < s->shards; i++)
        while (atomic_load(&s->shard[i].stage) == ASKED)
            pthread_cond_wait(&s->settled, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

lt_store_counts lt_store_statistics(const lt_store *s)
{
    return (lt_store_counts){.hits = atomic_load(&s->hits),
                             .misses = atomic_load(&s->misses),
                             .copies = atomic_load(&s->copies)};
}
