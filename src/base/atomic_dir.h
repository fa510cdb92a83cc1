/* Atomic creation of folders: written under a temporary name, synced, then renamed, so that after a crash a folder is
 * complete or absent. Also file-system helpers. */
#ifndef LT_BASE_ATOMIC_DIR_H
#define LT_BASE_ATOMIC_DIR_H

#include "lather/ext/file.h"

#include <stdbool.h>

/* A folder being written. Initialise with {0}. */
typedef struct lt_atomic_dir {
    char *path; /* final path; owned */
    char *temp; /* temporary path, PATH.tmp-PID; owned */
} lt_atomic_dir;

/* Creates the empty temporary folder. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_atomic_dir_begin(lt_atomic_dir *commit, const char *path);
/* Syncs the files and the folder, renames it to its path (replacing a folder there) and syncs the parent. Errors:
 * LT_E_IO, after removing the temporary folder. Clears commit in any case. */
LT_MUST_CHECK lt_status lt_atomic_dir_commit(lt_atomic_dir *commit);
/* Removes the temporary folder; no-op if cleared. */
void lt_atomic_dir_abandon(lt_atomic_dir *commit);

/* Creates or replaces the symbolic link path -> target atomically; syncs the parent. */
LT_MUST_CHECK lt_status lt_atomic_symlink(const char *path, const char *target);
/* Removes a folder atomically: renames it to a temporary name first. */
LT_MUST_CHECK lt_status lt_atomic_dir_remove(const char *path);
/* Removes a file or a folder recursively, not atomically; it may be missing. Does not follow links. */
LT_MUST_CHECK lt_status lt_remove_tree(const char *path);
/* Removes temporary entries NAME.tmp-PID of this user's dead processes from a folder. names: NULL-terminated fnmatch()
 * patterns of NAME; patterns of folders end with '/'. is_locked: no other process writes such entries, so also those of
 * living PIDs are removed. */
void lt_remove_stale_temps(const char *folder, const char *const *names, bool is_locked);
/* Syncs a file or a folder. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_sync_path(const char *path);
/* Syncs the folder that contains path. */
LT_MUST_CHECK lt_status lt_sync_parent(const char *path);

#endif
