/* Keeps decoded images in memory, up to a number of bytes. */
#ifndef LT_DATA_IMAGE_CACHE_H
#define LT_DATA_IMAGE_CACHE_H

#include "lather/ext/dataset.h"
#include "lather/loader.h"

typedef struct lt_image_cache lt_image_cache;

/* Creates an empty cache. count: samples of the data set; bytes: capacity. Errors: LT_E_NOMEM. */
lt_status lt_image_cache_new(lt_image_cache **out, int64_t count, int64_t bytes);
void lt_image_cache_free(lt_image_cache **cache);

/* Looks up the sample's pixels and label, borrowed until the cache is freed, and counts a hit or a miss. Returns false
 * if it is not cached. */
bool lt_image_cache_find(lt_image_cache *cache, int64_t index, lt_record *out);
/* Returns true if the sample is cached; does not count a hit or a miss. */
bool lt_image_cache_has(const lt_image_cache *cache, int64_t index);
/* Decodes the whole image, applies the EXIF orientation if transform asks for it, and caches the result. Does nothing
 * if the image exceeds the remaining capacity, is corrupt, or would have other pixels with fast decoding
 * (lt_transform.fast). */
void lt_image_cache_add(lt_image_cache *cache, int64_t index, const lt_record *record, int channels,
                        const lt_transform *transform);

typedef struct lt_image_cache_counts {
    int64_t hits, misses, bytes;
} lt_image_cache_counts;
lt_image_cache_counts lt_image_cache_statistics(const lt_image_cache *cache);

#endif
