/* How much a disk cache's folder may hold, and what goes when it is full. Processes that share the
 * folder share a count of its bytes in FOLDER/bytes. */
#ifndef LT_DATA_DISK_LIMIT_H
#define LT_DATA_DISK_LIMIT_H

#include "lather/ext/fail.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lt_disk_limit {
    const char *folder;            /* borrowed */
    bool any_owner;                /* as in lt_disk_object */
    atomic_int_fast64_t most;      /* bytes; 0: any number */
    atomic_int_fast64_t evictions; /* copies removed by this process to make space */
    atomic_bool exhausted;         /* all that may go has gone */
    int64_t opened_ns;             /* when this process began to use the folder */
} lt_disk_limit;

void lt_disk_limit_open(lt_disk_limit *limit, const char *folder, bool any_owner);
/* Fails if FOLDER/bytes is no file of this cache, with lt_disk_open()'s message. Errors: LT_E_IO. */
lt_status lt_disk_limit_check(const lt_disk_limit *limit);
/* Counts a copy that will be written, and first makes space for it: removes copies that were not
 * used since this process opened the folder, the least recently used first. False: the folder is
 * full of others. A folder that cannot be written to is not counted. */
bool lt_disk_limit_reserve(lt_disk_limit *limit, int64_t bytes);
/* A copy that was counted is not there, or no more. */
void lt_disk_limit_release(const lt_disk_limit *limit, int64_t bytes);

#endif
