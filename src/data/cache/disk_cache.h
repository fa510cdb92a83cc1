/* Disk cache: copies of a data set's files in a folder on a local disk, for files on a network.
 * Several processes may share the folder: one of them copies a file. */
#ifndef LT_DATA_DISK_CACHE_H
#define LT_DATA_DISK_CACHE_H

#include "lather/ext/dataset.h"

typedef struct lt_disk_cache lt_disk_cache;

/* shards: large files, of which samples are parts. A folder that cannot be written to is no
 * failure: one warning, and files are read where they are. Errors: LT_E_NOMEM. */
lt_status lt_disk_cache_new(lt_disk_cache **out, const char *folder, size_t shards);
/* Stops copying; complete copies stay. */
void lt_disk_cache_free(lt_disk_cache **out);

/* lt_file_read() through the cache; cache NULL: without one. A copy is used if size and time are
 * the file's and its checksum is right. */
lt_status lt_disk_cache_read(lt_disk_cache *cache, const char *path, lt_record *record);
/* lt_file_read_part() of shard number i, whose path is borrowed until the cache is freed. The first
 * call starts a copy by a thread; until it is complete and its checksum was compared, the file
 * itself is read. */
lt_status lt_disk_cache_read_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                                  uint64_t size, lt_record *record);
/* lt_file_ahead() of what would be read. */
void lt_disk_cache_ahead(lt_disk_cache *cache, const char *path);
void lt_disk_cache_ahead_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                              uint64_t size);
/* Waits until all shards that were requested are copied, or cannot be. */
void lt_disk_cache_wait(lt_disk_cache *cache);

/* hits: samples read from copies; misses: from the files; copies: files copied by this process. */
typedef struct lt_disk_cache_counts {
    int64_t hits, misses, copies;
} lt_disk_cache_counts;
lt_disk_cache_counts lt_disk_cache_statistics(const lt_disk_cache *cache);

#endif
