/** Run folders: their lock, the id of their run, and renaming an old run in one. */
#ifndef LATHER_DETAIL_RUN_FOLDER_H
#define LATHER_DETAIL_RUN_FOLDER_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"

#include <stddef.h>

enum { LT_RUN_ID = 33 }; /**< bytes of a run's id: 32 hexadecimal digits and a NUL */

/** Makes an id for a new run: 128 random bits of the operating system, so that equal seeds give different ids.
 *  Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_new_id(char id[LT_RUN_ID]);
/** Reads the id of the run in a folder from its env.json; "" if it has none, as in earlier versions. */
LT_API void lt_run_read_id(const char *folder, char id[LT_RUN_ID]);

/** Returns true if a folder holds the records, checkpoints or weights of a run. */
LT_API bool lt_run_is_used(const char *folder);
/** Renames the files of a run in folder to FOLDER/old-1, old-2, ..., and writes that path into to of size bytes;
 *  "" if there were none. Other files are not renamed. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_run_rename_old(const char *folder, char *to, size_t size);

/** Exclusive right to write to a run folder, held by one process at a time. */
typedef struct lt_run_lock lt_run_lock;

typedef struct lt_run_lock_config {
    const char
        *name; /**< name of the lock file in the folder, one for each kind of right; NULL: "lock" */
    const char *doing; /**< participle for messages, "is being written by ..."; NULL: "written" */
    bool is_new;       /**< reject a folder that holds a run */
    /** ranks that write one folder: rank 0 locks it for all; NULL: this one alone */
    lt_comm *comm;
} lt_run_lock_config;

/** Locks FOLDER/lock, a record lock that the system releases with the process and that works over NFS; makes the
 *  folder if necessary. Where the file system has no locks, warns and succeeds. Collective. config NULL: any
 *  folder, this process alone. Errors: LT_E_IO (another process writes there, which the message names), LT_E_ARG
 *  (is_new), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_run_lock_open(lt_run_lock **out, const char *folder,
                                                const lt_run_lock_config *config);
/** Returns true if a process holds FOLDER/lock now; false where the file system has no locks. */
LT_API bool lt_run_lock_is_held(const char *folder);
/** Removes the lock file, and the folder if lt_run_lock_open() made it and it is empty. */
LT_API void lt_run_lock_close(lt_run_lock **lock);

#endif
