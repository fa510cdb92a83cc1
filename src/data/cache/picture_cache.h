/* Decoded pictures kept in memory: those that were met first, until there is no room for another. */
#ifndef LT_DATA_PICTURE_CACHE_H
#define LT_DATA_PICTURE_CACHE_H

#include "lather/ext/dataset.h"
#include "lather/loader.h"

typedef struct lt_picture_cache lt_picture_cache;

/* For samples 0 .. count-1, at most bytes of pictures. Errors: LT_E_NOMEM. */
lt_status lt_picture_cache_new(lt_picture_cache **out, int64_t count, int64_t bytes);
void lt_picture_cache_free(lt_picture_cache **cache);

/* The sample's pixels and label, lent until the cache is freed; false: it is not there. Counts. */
bool lt_picture_cache_find(lt_picture_cache *cache, int64_t index, lt_record *out);
/* Whether it is there, without counting. */
bool lt_picture_cache_has(const lt_picture_cache *cache, int64_t index);
/* Keeps a sample that was read, decoded whole, turned as transform wants it. One for which there is no room,
 * that cannot be decoded, or of which fast decoding makes other pixels, is left out. */
void lt_picture_cache_add(lt_picture_cache *cache, int64_t index, const lt_record *record,
                          int channels, const lt_transform *transform);

typedef struct lt_picture_cache_counts {
    int64_t hits, misses, bytes;
} lt_picture_cache_counts;
lt_picture_cache_counts lt_picture_cache_statistics(const lt_picture_cache *cache);

#endif
