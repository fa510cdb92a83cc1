/* Caches the first images read, without eviction: an epoch reads every image once in random order, so all images are
 * equally likely to be needed next, and the hit rate is the fraction of the data set that fits.
 *
 * Whole images are decoded, as each epoch crops another window. A decoded window equals the same window of the whole
 * image, so batches do not depend on the cache.
 *
 * One thread writes an image and publishes it by an atomic pointer; after that it does not change. */

#include "data/loader/image_cache.h"

#include "base/alloc.h"
#include "data/formats/exif.h"

#include <stdatomic.h>
#include <string.h>

typedef struct entry {
    lt_record record; /* its bytes follow this struct in memory */
} entry;

typedef _Atomic(entry *) slot;

struct lt_image_cache {
    slot *slot; /* [count] */
    int64_t count, limit;
    atomic_int_fast64_t used, hits,
        misses; /* used: bytes, including entries that are being written */
};

lt_status lt_image_cache_new(lt_image_cache **out, int64_t count, int64_t bytes)
{
    lt_image_cache *c = NULL;
    LT_TRY(LT_ALLOC(&c, 1));
    c->slot = lt_alloc((size_t)count, sizeof *c->slot);
    if (!c->slot) {
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
        lt_free(atomic_load(&c->slot[i]));
    lt_free(c->slot);
    lt_free(c);
}

bool lt_image_cache_find(lt_image_cache *c, int64_t index, lt_record *out)
{
    const entry *e = atomic_load_explicit(&c->slot[index], memory_order_acquire);
    atomic_fetch_add_explicit(e ? &c->hits : &c->misses, 1, memory_order_relaxed);
    if (e)
        *out = e->record;
    return e != NULL;
}

bool lt_image_cache_has(const lt_image_cache *c, int64_t index)
{
    return atomic_load_explicit(&c->slot[index], memory_order_relaxed) != NULL;
}

/* Allocates an entry for a record of `bytes` bytes, which are uninitialized. Returns NULL above the limit or if out of
 * memory. */
static entry *reserve_entry(lt_image_cache *c, size_t bytes)
{
    int64_t all = (int64_t)(sizeof(entry) + bytes + LT_IMAGE_PADDING), used = atomic_load(&c->used);
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
    memset(e->record.bytes + bytes, 0, LT_IMAGE_PADDING);
    return e;
}

static void publish_entry(lt_image_cache *c, int64_t index, entry *e)
{
    entry *empty = NULL;
    if (atomic_compare_exchange_strong(&c->slot[index], &empty, e))
        return;
    atomic_fetch_sub(&c->used, (int64_t)(sizeof *e + e->record.size + LT_IMAGE_PADDING));
    lt_free(e); /* another thread cached the same sample, which can happen at the end of an epoch */
}

/* Caches a record of uncompressed pixels or numbers. */
static void add_uncompressed(lt_image_cache *c, int64_t index, const lt_record *r)
{
    entry *e = reserve_entry(c, r->size);
    if (!e)
        return;
    uint8_t *bytes = e->record.bytes;
    memcpy(bytes, r->bytes, r->size);
    e->record = *r;
    e->record.bytes = bytes;
    e->record.capacity = r->size;
    publish_entry(c, index, e);
}

static bool decode_whole_image(const lt_record *r, int channels, const lt_transform *t,
                               lt_window whole, lt_image *decoded, lt_image *oriented)
{
    if (lt_image_decode(r->bytes, r->size, &t->limits, channels, whole, decoded))
        return false;
    int orientation = t->exif ? lt_exif_orientation(r->bytes, r->size) : LT_EXIF_UPRIGHT;
    return !lt_exif_apply(orientation, decoded, oriented); /* also makes rows contiguous */
}

static void add_decoded_file(lt_image_cache *c, int64_t index, const lt_record *r, int channels,
                             const lt_transform *t)
{
    lt_window whole = {0};
    lt_image decoded = {0}, oriented = {0};
    if (lt_image_size(r->bytes, r->size, &t->limits, &whole.width, &whole.height))
        return;
    size_t bytes = (size_t)whole.width * (size_t)whole.height * (size_t)channels;
    entry *e = reserve_entry(c, bytes);
    if (!e)
        return;
    if (decode_whole_image(r, channels, t, whole, &decoded, &oriented)) {
        memcpy(e->record.bytes, oriented.memory, bytes);
        e->record.encoding = LT_ENCODING_PIXELS;
        e->record.label = r->label;
        e->record.width = oriented.width;
        e->record.height = oriented.height;
        e->record.channels = channels;
        publish_entry(c, index, e);
    } else {
        atomic_fetch_sub(&c->used, (int64_t)(sizeof *e + bytes + LT_IMAGE_PADDING));
        lt_free(e);
    }
    lt_image_clear(&decoded);
    lt_image_clear(&oriented);
}

void lt_image_cache_add(lt_image_cache *c, int64_t index, const lt_record *record, int channels,
                        const lt_transform *transform)
{
    if (record->encoding != LT_ENCODING_FILE)
        add_uncompressed(c, index, record);
    else if (!transform->fast || !lt_image_can_shrink(record->bytes, record->size))
        add_decoded_file(c, index, record, channels, transform);
}

lt_image_cache_counts lt_image_cache_statistics(const lt_image_cache *c)
{
    return (lt_image_cache_counts){.hits = atomic_load(&c->hits),
                                   .misses = atomic_load(&c->misses),
                                   .bytes = atomic_load(&c->used)};
}
