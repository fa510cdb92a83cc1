/* No eviction: every image is read once an epoch in a random order, so any image is as likely to be
 * needed next as any other, and the hit rate is the share of the data set that fits.
 *
 * Images are decoded whole, as each epoch crops another part. A decoded window equals that part of
 * the whole image, so batches are the same with and without the cache.
 *
 * An image is written by one thread and published by an atomic pointer; it does not change after
 * that. */

#include "data/loader/image_cache.h"

#include "base/alloc.h"
#include "data/formats/exif.h"

#include <stdatomic.h>
#include <string.h>

typedef struct entry {
    lt_record record; /* its bytes lie behind this struct */
} entry;

typedef _Atomic(entry *) place;

struct lt_image_cache {
    place *place; /* [count] */
    int64_t count, limit;
    atomic_int_fast64_t used, hits, misses; /* used: bytes, including entries being filled */
};

lt_status lt_image_cache_new(lt_image_cache **out, int64_t count, int64_t bytes)
{
    lt_image_cache *c = lt_alloc(1, sizeof *c);
    if (!c)
        return LT_E_NOMEM;
    c->place = lt_alloc((size_t)count, sizeof *c->place);
    if (!c->place) {
        lt_free(c);
        return LT_E_NOMEM;
    }
    c->count = count;
    c->limit = bytes;
    *out = c;
    return LT_OK;
}

void lt_image_cache_free(lt_image_cache **cache)
{
    lt_image_cache *c = *cache;
    *cache = NULL;
    if (!c)
        return;
    for (int64_t i = 0; i < c->count; i++)
        lt_free(atomic_load(&c->place[i]));
    lt_free(c->place);
    lt_free(c);
}

bool lt_image_cache_find(lt_image_cache *c, int64_t index, lt_record *out)
{
    const entry *e = atomic_load_explicit(&c->place[index], memory_order_acquire);
    atomic_fetch_add_explicit(e ? &c->hits : &c->misses, 1, memory_order_relaxed);
    if (e)
        *out = e->record;
    return e != NULL;
}

bool lt_image_cache_has(const lt_image_cache *c, int64_t index)
{
    return atomic_load_explicit(&c->place[index], memory_order_relaxed) != NULL;
}

/* An entry for a record of so many bytes, which are not set; NULL: over the limit, or no memory. */
static entry *reserve(lt_image_cache *c, size_t bytes)
{
    int64_t all = (int64_t)(sizeof(entry) + bytes + LT_IMAGE_SPARE), used = atomic_load(&c->used);
    do
        if (used + all > c->limit)
            return NULL;
    while (!atomic_compare_exchange_weak(&c->used, &used, used + all));
    entry *e = lt_alloc_aligned(64, (size_t)all);
    if (!e) {
        atomic_fetch_sub(&c->used, all);
        return NULL;
    }
    memset(e, 0, sizeof *e);
    e->record.bytes = (uint8_t *)(e + 1);
    e->record.size = e->record.capacity = bytes;
    memset(e->record.bytes + bytes, 0, LT_IMAGE_SPARE);
    return e;
}

static void publish(lt_image_cache *c, int64_t index, entry *e)
{
    entry *none = NULL;
    if (atomic_compare_exchange_strong(&c->place[index], &none, e))
        return;
    atomic_fetch_sub(&c->used, (int64_t)(sizeof *e + e->record.size + LT_IMAGE_SPARE));
    lt_free(e); /* at an epoch's end two threads may read the same sample: the other was first */
}

/* A record that is pixels or numbers already. */
static void add_plain(lt_image_cache *c, int64_t index, const lt_record *r)
{
    entry *e = reserve(c, r->size);
    if (!e)
        return;
    uint8_t *bytes = e->record.bytes;
    memcpy(bytes, r->bytes, r->size);
    e->record = *r;
    e->record.bytes = bytes;
    e->record.capacity = r->size;
    publish(c, index, e);
}

static bool decode(const lt_record *r, int channels, const lt_transform *t, lt_window whole,
                   lt_image *decoded, lt_image *turned)
{
    if (lt_image_decode(r->bytes, r->size, &t->limits, channels, whole, decoded))
        return false;
    int turn = t->exif ? lt_exif_orientation(r->bytes, r->size) : LT_EXIF_UPRIGHT;
    return !lt_exif_turn(turn, decoded, turned); /* also takes out gaps between rows */
}

static void add_file(lt_image_cache *c, int64_t index, const lt_record *r, int channels,
                     const lt_transform *t)
{
    lt_window whole = {0};
    lt_image decoded = {0}, turned = {0};
    if (lt_image_size(r->bytes, r->size, &t->limits, &whole.width, &whole.height))
        return;
    size_t bytes = (size_t)whole.width * (size_t)whole.height * (size_t)channels;
    entry *e = reserve(c, bytes);
    if (!e)
        return;
    if (decode(r, channels, t, whole, &decoded, &turned)) {
        memcpy(e->record.bytes, turned.memory, bytes);
        e->record.encoding = LT_ENCODING_PIXELS;
        e->record.label = r->label;
        e->record.width = turned.width;
        e->record.height = turned.height;
        e->record.channels = channels;
        publish(c, index, e);
    } else {
        atomic_fetch_sub(&c->used, (int64_t)(sizeof *e + bytes + LT_IMAGE_SPARE));
        lt_free(e);
    }
    lt_image_clear(&decoded);
    lt_image_clear(&turned);
}

void lt_image_cache_add(lt_image_cache *c, int64_t index, const lt_record *record, int channels,
                        const lt_transform *transform)
{
    if (record->encoding != LT_ENCODING_FILE)
        add_plain(c, index, record);
    else if (!transform->fast || !lt_image_shrinks(record->bytes, record->size))
        add_file(c, index, record, channels, transform);
}

lt_image_cache_counts lt_image_cache_statistics(const lt_image_cache *c)
{
    return (lt_image_cache_counts){.hits = atomic_load(&c->hits),
                                   .misses = atomic_load(&c->misses),
                                   .bytes = atomic_load(&c->used)};
}
