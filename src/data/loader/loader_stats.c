/* What a loader's counters say. */

#include "data/loader/loader_stats.h"

void lt_loader_stats_caches(lt_loader_stats *stats, const lt_picture_cache *cache,
                            const lt_store *store)
{
    lt_picture_cache_counts pictures = {0};
    lt_store_counts files = {0};
    if (cache)
        pictures = lt_picture_cache_statistics(cache);
    if (store)
        files = lt_store_statistics(store);
    stats->cache_hits = pictures.hits;
    stats->cache_misses = pictures.misses;
    stats->cache_bytes = pictures.bytes;
    stats->local_hits = files.hits;
    stats->local_misses = files.misses;
    stats->local_copies = files.copies;
}

lt_loader_stats lt_loader_stats_since(const lt_loader_stats *now, const lt_loader_stats *before)
{
    lt_loader_stats s = *now;
    s.samples -= before->samples;
    s.batches -= before->batches;
    s.bad -= before->bad;
    s.read_seconds -= before->read_seconds;
    s.decode_seconds -= before->decode_seconds;
    s.resize_seconds -= before->resize_seconds;
    s.idle_seconds -= before->idle_seconds;
    s.wait_seconds -= before->wait_seconds;
    s.starved -= before->starved;
    s.ready -= before->ready;
    s.cache_hits -= before->cache_hits;
    s.cache_misses -= before->cache_misses;
    s.local_hits -= before->local_hits;
    s.local_misses -= before->local_misses;
    s.local_copies -= before->local_copies;
    return s;
}

const char *lt_loader_bound(const lt_loader_stats *stats, double seconds)
{
    const double share = 0.03;
    return stats->wait_seconds > share * seconds ? "loader-bound" : "compute-bound";
}
