/* Caching allocator: best fit with coalescing inside segments (Knuth, The Art of Computer Programming 1,
 * 2.5).
 *
 * Invariants:
 *   1. The chunks of a segment are linked in address order and cover it completely.
 *   2. No two free chunks of a segment are adjacent.
 *   3. Free chunks of all segments are in one list, so that a search skips the many in use.
 * Sizes are multiples of ALIGNMENT. Metadata is in host memory, so a segment may be anywhere. */

#include "tensor/caching_allocator.h"

#include "base/alloc.h"
#include "tensor/memory_use.h"

#include "lather/ext/fail.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* Segments double from the first to the last size: small programs need little memory, and large ones
 * coalesce well. Host memory that was never touched costs nothing. */
static const size_t first_segment = (size_t)16 << 20, last_segment = (size_t)1 << 30;

typedef struct segment segment;

struct lt_chunk {
    char *data;
    size_t bytes;
    bool is_free;
    int owner;             /* index in lt_allocator.uses of the operation that allocated it */
    lt_chunk *prev, *next; /* adjacent chunks in address order; NULL at the ends of a segment */
    segment *segment;
    lt_chunk *free_prev, *free_next; /* links of the list of free chunks */
};

struct segment {
    struct segment *next;
    void *data;
    size_t bytes;
    lt_chunk *first;
    uint64_t scope;
};

struct lt_allocator {
    const lt_backend *backend;
    void *ctx;
    pthread_mutex_t lock;
    segment *segments;
    lt_chunk *free;
    size_t next_segment;
    lt_memory memory;
    lt_memory_uses uses;
    uint64_t scope, scopes; /* the current scope, and the number of scopes so far */
    bool direct, frozen;
};

lt_status lt_allocator_new(lt_allocator **out, const lt_backend *backend, void *ctx)
{
    lt_allocator *allocator = NULL;
    LT_TRY(LT_ALLOC(&allocator, 1));
    const char *mode = getenv("LATHER_POOL");
    allocator->backend = backend;
    allocator->ctx = ctx;
    allocator->next_segment = backend->reserve ? backend->reserve : first_segment;
    allocator->direct = mode && !strcmp(mode, "off");
    pthread_mutex_init(&allocator->lock, NULL);
    *out = allocator;
    return LT_OK;
}

bool lt_allocator_is_off(const lt_allocator *allocator)
{
    return allocator->direct;
}

static void add_to_free_list(lt_allocator *allocator, lt_chunk *c)
{
    c->is_free = true;
    c->free_prev = NULL;
    c->free_next = allocator->free;
    if (c->free_next)
        c->free_next->free_prev = c;
    allocator->free = c;
}

static void remove_from_free_list(lt_allocator *allocator, lt_chunk *c)
{
    c->is_free = false;
    if (c->free_next)
        c->free_next->free_prev = c->free_prev;
    if (c->free_prev)
        c->free_prev->free_next = c->free_next;
    else
        allocator->free = c->free_next;
}

static void free_segment(lt_allocator *allocator, segment *s)
{
    for (lt_chunk *c = s->first, *next; c; c = next) {
        next = c->next;
        if (c->is_free)
            remove_from_free_list(allocator, c);
        lt_free(c);
    }
    allocator->backend->free(allocator->ctx, s->data, s->bytes);
    lt_free(s);
}

void lt_allocator_free(lt_allocator **allocator)
{
    if (!*allocator)
        return;
    for (segment *s = (*allocator)->segments, *next; s; s = next) {
        next = s->next;
        free_segment(*allocator, s);
    }
    pthread_mutex_destroy(&(*allocator)->lock);
    lt_free(*allocator);
    *allocator = NULL;
}

static lt_status add_segment(lt_allocator *allocator, size_t size)
{
    if (allocator->frozen)
        return lt_fail(LT_E_NOMEM, "allocator: a captured step needs %zu more bytes", size);
    segment *s = lt_alloc(1, sizeof *s);
    lt_chunk *c = lt_alloc(1, sizeof *c);
    lt_status st = s && c ? allocator->backend->alloc(allocator->ctx, size, &s->data) : LT_E_NOMEM;
    if (st) {
        lt_free(s);
        lt_free(c);
        return st;
    }
    *c = (lt_chunk){.data = s->data, .bytes = size, .segment = s};
    add_to_free_list(allocator, c);
    s->bytes = size;
    s->first = c;
    s->scope = allocator->scope;
    s->next = allocator->segments;
    allocator->segments = s;
    allocator->memory.reserved += size;
    return LT_OK;
}

static void remove_segment(lt_allocator *allocator, segment **at)
{
    segment *s = *at;
    *at = s->next;
    allocator->memory.reserved -= s->bytes;
    free_segment(allocator, s);
}

/* Frees segments without chunks in use, except those of scopes, because captured graphs use their addresses.
 * Returns true if there were any. */
static bool free_unused_segments(lt_allocator *allocator)
{
    bool found = false;
    for (segment **at = &allocator->segments; *at;) {
        const segment *s = *at;
        if (s->scope || !s->first->is_free || s->first->next) {
            at = &(*at)->next;
            continue;
        }
        remove_segment(allocator, at);
        found = true;
    }
    return found;
}

/* Adds a segment; sizes grow geometrically. If the device lacks memory for that, adds one of exactly
 * `bytes`. */
static lt_status add_growing_segment(lt_allocator *allocator, size_t bytes)
{
    if (allocator->direct)
        return add_segment(allocator, bytes);
    const size_t wish = bytes > allocator->next_segment ? bytes : allocator->next_segment;
    lt_status st = add_segment(allocator, wish);
    if (st && allocator->next_segment > last_segment
        && !allocator->frozen) { /* the reserve failed: grow in steps */
        allocator->next_segment = first_segment;
        st = add_segment(allocator, bytes > first_segment ? bytes : first_segment);
    } else if (st == LT_E_NOMEM && wish > bytes && !allocator->backend->host_memory) {
        return add_segment(allocator, bytes);
    }
    if (!st && allocator->next_segment < last_segment)
        allocator->next_segment *= 2;
    return st;
}

static lt_status add_segment_or_reclaim(lt_allocator *allocator, size_t bytes)
{
    lt_status st = add_growing_segment(allocator, bytes);
    if (st == LT_E_NOMEM && !allocator->frozen && free_unused_segments(allocator))
        return add_segment(allocator, bytes);
    return st;
}

/* True for a smaller chunk or, of equal size, a lower address, whatever the order of the list. */
static bool fits_better(const lt_chunk *c, const lt_chunk *best)
{
    return !best || c->bytes < best->bytes || (c->bytes == best->bytes && c->data < best->data);
}

static lt_chunk *find_best_fit(const lt_allocator *allocator, size_t bytes)
{
    lt_chunk *best = NULL;
    for (lt_chunk *c = allocator->free; c; c = c->free_next)
        if (c->bytes >= bytes && c->segment->scope == allocator->scope && fits_better(c, best))
            best = c;
    return best;
}

/* Returns the rest of a larger chunk to the free list. */
static lt_status split_chunk(lt_allocator *allocator, lt_chunk *c, size_t bytes)
{
    if (c->bytes == bytes)
        return LT_OK;
    lt_chunk *rest = NULL;
    LT_TRY(LT_ALLOC(&rest, 1));
    *rest = (lt_chunk){.data = c->data + bytes,
                       .bytes = c->bytes - bytes,
                       .prev = c,
                       .next = c->next,
                       .segment = c->segment};
    add_to_free_list(allocator, rest);
    if (c->next)
        c->next->prev = rest;
    c->next = rest;
    c->bytes = bytes;
    return LT_OK;
}

static void record_peak(lt_allocator *allocator)
{
    allocator->memory.peak = allocator->memory.used;
    lt_memory_uses_record_peak(&allocator->uses);
}

static lt_status allocate_chunk(lt_allocator *allocator, size_t bytes, lt_chunk **out)
{
    lt_chunk *c = allocator->direct ? NULL : find_best_fit(allocator, bytes);
    if (!c) {
        LT_TRY(add_segment_or_reclaim(allocator, bytes));
        c = find_best_fit(allocator, bytes);
        LT_ASSERT(c);
    }
    LT_TRY(split_chunk(allocator, c, bytes));
    remove_from_free_list(allocator, c);
    c->owner = lt_memory_uses_add(&allocator->uses, bytes);
    allocator->memory.used += bytes;
    if (allocator->memory.used > allocator->memory.peak)
        record_peak(allocator);
    *out = c;
    return LT_OK;
}

lt_status lt_allocator_alloc(lt_allocator *allocator, size_t bytes, lt_chunk **out)
{
    bytes = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
    pthread_mutex_lock(&allocator->lock);
    lt_status st = allocate_chunk(allocator, bytes, out);
    pthread_mutex_unlock(&allocator->lock);
    return st;
}

/* Merges c with the chunk after it if both are free (invariant 2). */
static void merge_with_next(lt_allocator *allocator, lt_chunk *c)
{
    lt_chunk *next = c->next;
    if (!c->is_free || !next || !next->is_free)
        return;
    remove_from_free_list(allocator, next);
    c->bytes += next->bytes;
    c->next = next->next;
    if (c->next)
        c->next->prev = c;
    lt_free(next);
}

static void remove_segment_of_chunk(lt_allocator *allocator, lt_chunk *c)
{
    segment **at = &allocator->segments;
    while ((*at)->first != c)
        at = &(*at)->next;
    remove_segment(allocator, at);
}

void lt_chunk_free(lt_allocator *allocator, lt_chunk *chunk)
{
    pthread_mutex_lock(&allocator->lock);
    allocator->memory.used -= chunk->bytes;
    allocator->uses.now[chunk->owner] -= chunk->bytes;
    add_to_free_list(allocator, chunk);
    if (allocator->direct) {
        remove_segment_of_chunk(allocator, chunk);
    } else {
        merge_with_next(allocator, chunk);
        if (chunk->prev)
            merge_with_next(allocator, chunk->prev);
    }
    pthread_mutex_unlock(&allocator->lock);
}

uint64_t lt_allocator_new_scope(lt_allocator *allocator)
{
    return ++allocator->scopes;
}

uint64_t lt_allocator_enter_scope(lt_allocator *allocator, uint64_t scope)
{
    pthread_mutex_lock(&allocator->lock);
    uint64_t before = allocator->scope;
    allocator->scope = scope;
    pthread_mutex_unlock(&allocator->lock);
    return before;
}

void lt_allocator_end_scope(lt_allocator *allocator, uint64_t scope)
{
    pthread_mutex_lock(&allocator->lock);
    for (segment *s = allocator->segments; s; s = s->next)
        if (s->scope == scope)
            s->scope = 0;
    pthread_mutex_unlock(&allocator->lock);
}

void lt_allocator_freeze(lt_allocator *allocator, bool frozen)
{
    pthread_mutex_lock(&allocator->lock);
    allocator->frozen = frozen;
    pthread_mutex_unlock(&allocator->lock);
}

void *lt_chunk_data(const lt_chunk *chunk)
{
    return chunk->data;
}

lt_memory lt_allocator_memory(const lt_allocator *allocator)
{
    return allocator->memory;
}

const lt_memory_uses *lt_allocator_memory_uses(const lt_allocator *allocator)
{
    return &allocator->uses;
}

void lt_allocator_reset_peak(lt_allocator *allocator)
{
    record_peak(allocator);
}
