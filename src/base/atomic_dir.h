/* Folders that are complete or absent, whatever kills the process: made under another name, synced,
 * then renamed. */
#ifndef LT_BASE_COMMIT_H
#define LT_BASE_COMMIT_H

#include "lather/status.h"

#include <stdbool.h>

/* A folder in the making. Starts as {0}. */
typedef struct lt_commit {
    char *path; /* where it will be; owned */
    char *temp; /* where it is made: PATH.tmp-PID; owned */
} lt_commit;

/* Makes the temporary folder, empty. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_commit_begin(lt_commit *commit, const char *path);
/* Syncs its files and the folder, gives it its name (in place of what had it), syncs the parent.
 * Errors: LT_E_IO, and the temporary folder is removed. Clears commit in any case. */
LT_MUST_CHECK lt_status lt_commit_finish(lt_commit *commit);
/* Removes the temporary folder. A cleared commit is fine. */
void lt_commit_abandon(lt_commit *commit);

/* Makes PATH a symbolic link to target, or changes it, in one step; syncs the parent. */
LT_MUST_CHECK lt_status lt_commit_link(const char *path, const char *target);
/* Removes a folder: renames it to a temporary name first, so that no half of it is ever found. */
LT_MUST_CHECK lt_status lt_commit_remove(const char *path);
/* Removes a file or a folder under its own name: for what no other process reads. It may be missing. Links are removed,
 * never followed. */
LT_MUST_CHECK lt_status lt_commit_remove_tree(const char *path);
/* Removes temporary entries of this user's dead processes in a folder. names: patterns of fnmatch() for the entries that
 * the program makes there, NULL at the end; a pattern of folders ends with '/'. is_locked: no other process makes them,
 * so those of living ones are removed too. */
void lt_commit_clean(const char *folder, const char *const *names, bool is_locked);
/* Makes a folder and its parents. */
LT_MUST_CHECK lt_status lt_commit_make_folders(const char *path);
/* Syncs a file or a folder. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_commit_sync(const char *path);
/* Syncs the folder that path is in. */
LT_MUST_CHECK lt_status lt_commit_sync_parent(const char *path);

#endif
