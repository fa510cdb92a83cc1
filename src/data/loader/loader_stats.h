/* What a loader's counters say of its caches. */
#ifndef LT_DATA_LOADER_STATS_H
#define LT_DATA_LOADER_STATS_H

#include "data/cache/picture_cache.h"
#include "data/cache/store.h"

/* Adds what they count; either may be NULL. */
void lt_loader_stats_caches(lt_loader_stats *stats, const lt_picture_cache *cache,
                            const lt_store *store);

#endif
