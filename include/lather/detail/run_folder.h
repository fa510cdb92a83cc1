/** Run folders: the lock on one, the id of the run in it, and moving that run out of the way. */
#ifndef LATHER_DETAIL_RUN_FOLDER_H
#define LATHER_DETAIL_RUN_FOLDER_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"

#include <stddef.h>

enum { LT_RUN_ID = 33 }; /**< bytes of a run's id: 32 hexadecimal digits and a NUL */

/** Makes an id for a new run: 128 random bits of the operating system, so that no seed makes two runs
 *  alike. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_new_id(char id[LT_RUN_ID]);
/** The id of the run in a folder, by its env.json; "" if it has none (earlier versions wrote none). */
LT_API void lt_run_read_id(const char *folder, char id[LT_RUN_ID]);

/** Whether a folder holds the records, checkpoints or weights of a run. */
LT_API bool lt_run_is_used(const char *folder);
/** Renames what a run left in folder to FOLDER/old-1, old-2, ..., whose path goes into to of size
 *  bytes; "": there was nothing. Files that no run writes stay. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_set_aside(const char *folder, char *to, size_t size);

/** The right to write to a run folder; one process has it at a time. */
typedef struct lt_run_lock lt_run_lock;

typedef struct lt_run_lock_config {
    const char *name;  /**< of the file in the folder: another right has another; NULL: "lock" */
    const char *doing; /**< what messages say that the holder does; NULL: "written" */
    bool is_new;       /**< a folder that holds a run is refused */
    lt_comm
        *comm; /**< ranks that write one folder: rank 0 locks it for all; NULL: this one alone */
} lt_run_lock_config;

/** Locks FOLDER/lock, a record lock that the system drops with the process and that works over NFS;
 *  makes the folder if need be. Where the file system has no locks it warns and goes on. Collective.
 *  config NULL: any folder, this process alone.
 *  Errors: LT_E_IO (another process writes there: the message says which), LT_E_ARG (is_new),
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_run_lock_open(lt_run_lock **out, const char *folder,
                                                const lt_run_lock_config *config);
/** Whether a process holds FOLDER/lock now; false where the file system has no locks. */
LT_API bool lt_run_lock_is_held(const char *folder);
/** Removes the lock file, and the folder if lt_run_lock_open() made it and it is empty. */
LT_API void lt_run_lock_close(lt_run_lock **lock);

#endif
