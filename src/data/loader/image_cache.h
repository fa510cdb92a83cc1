/* Decoded images in memory: the first ones read, up to a number of bytes. */
#ifndef LT_DATA_IMAGE_CACHE_H
#define LT_DATA_IMAGE_CACHE_H

#include "lather/ext/dataset.h"
#include "lather/loader.h"

typedef struct lt_image_cache lt_image_cache;

/* For samples 0 .. count-1, at most bytes of images. Errors: LT_E_NOMEM. */
lt_status lt_image_cache_new(lt_image_cache **out, int64_t count, int64_t bytes);
void lt_image_cache_free(lt_image_cache **cache);

/* The sample's pixels and label, borrowed until the cache is freed; false: not cached. Counts a hit
 * or a miss. */
bool lt_image_cache_find(lt_image_cache *cache, int64_t index, lt_record *out);
/* Whether it is cached, without counting. */
bool lt_image_cache_has(const lt_image_cache *cache, int64_t index);
/* Caches a sample that was read, decoded whole and turned as transform says; not one that exceeds
 * the capacity, cannot be decoded, or of which fast decoding (lt_transform.fast) makes other
 * pixels. */
void lt_image_cache_add(lt_image_cache *cache, int64_t index, const lt_record *record, int channels,
                        const lt_transform *transform);

typedef struct lt_image_cache_counts {
    int64_t hits, misses, bytes;
} lt_image_cache_counts;
lt_image_cache_counts lt_image_cache_statistics(const lt_image_cache *cache);

#endif
