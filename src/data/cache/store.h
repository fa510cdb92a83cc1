/* Copies of a data set's files in a folder on a disk of this machine, for files that lie far away.
 * Several processes may share the folder: a file is copied by one of them. */
#ifndef LT_DATA_STORE_H
#define LT_DATA_STORE_H

#include "lather/ext/dataset.h"

typedef struct lt_store lt_store;

/* shards: large files, of which samples are parts. A folder that cannot be written to is no failure:
 * that is said once, and files are read where they are. Errors: LT_E_NOMEM. */
lt_status lt_store_new(lt_store **out, const char *folder, size_t shards);
/* Stops copying; what is whole stays. */
void lt_store_free(lt_store **store);

/* lt_file_read() through the store; store NULL: just that. A copy is used if it is of the file as it is
 * now, and its checksum holds. */
lt_status lt_store_read(lt_store *store, const char *path, lt_record *record);
/* lt_file_read_part() of shard number i, whose path is lent until the store is freed. The first call has it
 * copied by a thread; until that is done, and its checksum was compared, the file itself is read. */
lt_status lt_store_read_part(lt_store *store, size_t i, const char *path, uint64_t offset,
                             uint64_t size, lt_record *record);
/* lt_file_ahead() of what would be read. */
void lt_store_ahead(lt_store *store, const char *path);
void lt_store_ahead_part(lt_store *store, size_t i, const char *path, uint64_t offset,
                         uint64_t size);
/* Until all shards that were asked for are copied, or cannot be. */
void lt_store_wait(lt_store *store);

/* Counts: samples read from copies, from the files themselves; files copied by this process. */
typedef struct lt_store_counts {
    int64_t hits, misses, copies;
} lt_store_counts;
lt_store_counts lt_store_statistics(const lt_store *store);

#endif
