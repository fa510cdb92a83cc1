/* Best fit with coalescing inside segments (Knuth, The Art of Computer Programming 1, 2.5).
 *
 * Invariants:
 * 1. The chunks of a segment are linked in address order and cover it without gaps.
 * 2. No two free chunks of a segment are neighbours.
 * Sizes are multiples of ALIGNMENT. Metadata lies in host memory, so a segment may be anywhere. */

#include "tensor/pool.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* Segments double from the first to the last size: small programs stay small, large ones coalesce
 * well. Host memory that was never touched costs nothing. */
static const size_t first_segment = (size_t)16 << 20, last_segment = (size_t)1 << 30;

struct lt_chunk {
    char *data;
    size_t bytes;
    bool is_free;
    lt_chunk *prev, *next; /* invariant 1; NULL at a segment's ends */
};

typedef struct segment {
    struct segment *next;
    void *data;
    size_t bytes;
    lt_chunk *first;
    uint64_t scope;
} segment;

struct lt_pool {
    const lt_backend *backend;
    void *ctx;
    pthread_mutex_t lock;
    segment *segments;
    size_t next_segment;
    lt_memory memory;
    uint64_t scope, scopes; /* the current one; how many there were */
    bool direct, frozen;
};

lt_status lt_pool_new(lt_pool **out, const lt_backend *backend, void *ctx)
{
    lt_pool *pool = lt_alloc(1, sizeof *pool);
    if (!pool)
        return LT_E_NOMEM;
    const char *mode = getenv("LATHER_POOL");
    pool->backend = backend;
    pool->ctx = ctx;
    pool->next_segment = backend->reserve ? backend->reserve : first_segment;
    pool->direct = mode && !strcmp(mode, "off");
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return LT_OK;
}

bool lt_pool_is_off(const lt_pool *pool)
{
    return pool->direct;
}

static void free_segment(lt_pool *pool, segment *s)
{
    for (lt_chunk *c = s->first, *next; c; c = next) {
        next = c->next;
        lt_free(c);
    }
    pool->backend->free(pool->ctx, s->data, s->bytes);
    lt_free(s);
}

void lt_pool_free(lt_pool **pool)
{
    if (!*pool)
        return;
    for (segment *s = (*pool)->segments, *next; s; s = next) {
        next = s->next;
        free_segment(*pool, s);
    }
    pthread_mutex_destroy(&(*pool)->lock);
    lt_free(*pool);
    *pool = NULL;
}

static lt_status add_segment(lt_pool *pool, size_t size)
{
    if (pool->frozen)
        return lt_fail(LT_E_NOMEM, "pool: %zu bytes more within a captured step", size);
    segment *s = lt_alloc(1, sizeof *s);
    lt_chunk *c = lt_alloc(1, sizeof *c);
    lt_status st = s && c ? pool->backend->alloc(pool->ctx, size, &s->data) : LT_E_NOMEM;
    if (st) {
        lt_free(s);
        lt_free(c);
        return st;
    }
    *c = (lt_chunk){.data = s->data, .bytes = size, .is_free = true};
    s->bytes = size;
    s->first = c;
    s->scope = pool->scope;
    s->next = pool->segments;
    pool->segments = s;
    pool->memory.reserved += size;
    return LT_OK;
}

static void drop(lt_pool *pool, segment **at)
{
    segment *s = *at;
    *at = s->next;
    pool->memory.reserved -= s->bytes;
    free_segment(pool, s);
}

/* Segments of which nothing is in use, but for those of scopes: recorded steps know their addresses.
 * Returns whether there were any. */
static bool drop_free_segments(lt_pool *pool)
{
    bool found = false;
    for (segment **at = &pool->segments; *at;) {
        const segment *s = *at;
        if (s->scope || !s->first->is_free || s->first->next) {
            at = &(*at)->next;
            continue;
        }
        drop(pool, at);
        found = true;
    }
    return found;
}

/* As large as it is their turn to be; if that is too much for the device, as large as it must be. */
static lt_status add_next_segment(lt_pool *pool, size_t bytes)
{
    if (pool->direct)
        return add_segment(pool, bytes);
    const size_t wish = bytes > pool->next_segment ? bytes : pool->next_segment;
    lt_status st = add_segment(pool, wish);
    if (st && pool->next_segment > last_segment && !pool->frozen) { /* no reserve: in steps, then */
        pool->next_segment = first_segment;
        st = add_segment(pool, bytes > first_segment ? bytes : first_segment);
    } else if (st == LT_E_NOMEM && wish > bytes && !pool->backend->host_memory) {
        return add_segment(pool, bytes);
    }
    if (!st && pool->next_segment < last_segment)
        pool->next_segment *= 2;
    return st;
}

static lt_status grow(lt_pool *pool, size_t bytes)
{
    lt_status st = add_next_segment(pool, bytes);
    if (st == LT_E_NOMEM && !pool->frozen && drop_free_segments(pool))
        return add_segment(pool, bytes);
    return st;
}

static lt_chunk *best_fit(const lt_pool *pool, size_t bytes)
{
    lt_chunk *best = NULL;
    for (const segment *s = pool->segments; s; s = s->next)
        for (lt_chunk *c = s->scope == pool->scope ? s->first : NULL; c; c = c->next)
            if (c->is_free && c->bytes >= bytes && (!best || c->bytes < best->bytes))
                best = c;
    return best;
}

/* Leaves the rest of a larger chunk free. */
static lt_status split(lt_chunk *c, size_t bytes)
{
    if (c->bytes == bytes)
        return LT_OK;
    lt_chunk *rest = lt_alloc(1, sizeof *rest);
    if (!rest)
        return LT_E_NOMEM;
    *rest = (lt_chunk){c->data + bytes, c->bytes - bytes, true, c, c->next};
    if (c->next)
        c->next->prev = rest;
    c->next = rest;
    c->bytes = bytes;
    return LT_OK;
}

static lt_status take(lt_pool *pool, size_t bytes, lt_chunk **out)
{
    lt_chunk *c = pool->direct ? NULL : best_fit(pool, bytes);
    if (!c) {
        LT_TRY(grow(pool, bytes));
        c = best_fit(pool, bytes);
        LT_ASSERT(c);
    }
    LT_TRY(split(c, bytes));
    c->is_free = false;
    pool->memory.used += bytes;
    if (pool->memory.used > pool->memory.peak)
        pool->memory.peak = pool->memory.used;
    *out = c;
    return LT_OK;
}

lt_status lt_pool_alloc(lt_pool *pool, size_t bytes, lt_chunk **out)
{
    bytes = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    pthread_mutex_lock(&pool->lock);
    lt_status st = take(pool, bytes, out);
    pthread_mutex_unlock(&pool->lock);
    return st;
}

/* Invariant 2: c takes its free right neighbour in. */
static void join_next(lt_chunk *c)
{
    lt_chunk *next = c->next;
    if (!c->is_free || !next || !next->is_free)
        return;
    c->bytes += next->bytes;
    c->next = next->next;
    if (c->next)
        c->next->prev = c;
    lt_free(next);
}

static void drop_segment_of(lt_pool *pool, lt_chunk *c)
{
    segment **at = &pool->segments;
    while ((*at)->first != c)
        at = &(*at)->next;
    drop(pool, at);
}

void lt_pool_give_back(lt_pool *pool, lt_chunk *chunk)
{
    pthread_mutex_lock(&pool->lock);
    pool->memory.used -= chunk->bytes;
    chunk->is_free = true;
    if (pool->direct) {
        drop_segment_of(pool, chunk);
    } else {
        join_next(chunk);
        if (chunk->prev)
            join_next(chunk->prev);
    }
    pthread_mutex_unlock(&pool->lock);
}

uint64_t lt_pool_new_scope(lt_pool *pool)
{
    return ++pool->scopes;
}

uint64_t lt_pool_enter(lt_pool *pool, uint64_t scope)
{
    pthread_mutex_lock(&pool->lock);
    uint64_t before = pool->scope;
    pool->scope = scope;
    pthread_mutex_unlock(&pool->lock);
    return before;
}

void lt_pool_end_scope(lt_pool *pool, uint64_t scope)
{
    pthread_mutex_lock(&pool->lock);
    for (segment *s = pool->segments; s; s = s->next)
        if (s->scope == scope)
            s->scope = 0;
    pthread_mutex_unlock(&pool->lock);
}

void lt_pool_freeze(lt_pool *pool, bool frozen)
{
    pthread_mutex_lock(&pool->lock);
    pool->frozen = frozen;
    pthread_mutex_unlock(&pool->lock);
}

void *lt_chunk_data(const lt_chunk *chunk)
{
    return chunk->data;
}

lt_memory lt_pool_memory(const lt_pool *pool)
{
    return pool->memory;
}

void lt_pool_reset_peak(lt_pool *pool)
{
    pool->memory.peak = pool->memory.used;
}
