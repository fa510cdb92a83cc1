/* Disk cache: copies of a data set's files in a folder on a local disk, for files on a network.
 * Several processes may share the folder: one of them copies a file. */
#ifndef LT_DATA_DISK_CACHE_H
#define LT_DATA_DISK_CACHE_H

#include "lather/ext/dataset.h"

typedef struct lt_disk_cache lt_disk_cache;

/* shards: large files, of which samples are parts. A folder that cannot be written to is no
 * failure: one warning, and files are read where they are. "shared:FOLDER": other users may write there, and copies of
 * any owner are read. Errors: LT_E_IO (others may write there, or made what is there), LT_E_NOMEM. */
lt_status lt_disk_cache_new(lt_disk_cache **out, const char *folder, size_t shards);
/* The folder holds at most so many bytes from now on; 0: any number. Where space is wanted, copies
 * go that were not used since this cache was made, the least recently used first. */
void lt_disk_cache_limit(lt_disk_cache *cache, int64_t bytes);
/* At most so many copies of pieces stay open, so that small samples are read fast; default 256. */
void lt_disk_cache_keep_open(lt_disk_cache *cache, int copies);
/* Stops copying; complete copies stay. */
void lt_disk_cache_free(lt_disk_cache **out);

/* lt_file_read() through the cache; cache NULL: without one. A copy is used if size and time are
 * the file's and its checksum is right. One that is missing is made, and waited for while another
 * process makes it. */
lt_status lt_disk_cache_read(lt_disk_cache *cache, const char *path, lt_record *record);
/* lt_file_read_part() of shard number i, whose path is borrowed until the cache is freed. Shards
 * are copied in pieces of 1 MiB: those that hold the part at once, the others by a thread. Size and
 * time of the shard's file are read by the first call. */
lt_status lt_disk_cache_read_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                                  uint64_t size, lt_record *record);
/* lt_file_ahead() of what would be read. */
void lt_disk_cache_ahead(lt_disk_cache *cache, const char *path);
void lt_disk_cache_ahead_part(lt_disk_cache *cache, size_t i, const char *path, uint64_t offset,
                              uint64_t size);
/* Waits until all shards that were requested are copied, or cannot be. */
void lt_disk_cache_wait(lt_disk_cache *cache);

/* hits: samples read from copies; misses: not only; copies: files and pieces copied by this process;
 * reads: times that it opened a file to read from it; evictions: copies that it removed to make
 * space. */
typedef struct lt_disk_cache_counts {
    int64_t hits, misses, copies, reads, evictions;
} lt_disk_cache_counts;
lt_disk_cache_counts lt_disk_cache_statistics(const lt_disk_cache *cache);

#endif
