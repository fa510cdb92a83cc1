/* Safe opening of files whose names the program chooses, in folders that other users may write: these may have
 * planted a link, a pipe or a file. Paths given by the user are opened by base/file.h and may be links. */
#ifndef LT_BASE_SHARED_FILE_H
#define LT_BASE_SHARED_FILE_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* Calls open() with O_NOFOLLOW, O_NONBLOCK, O_CLOEXEC and O_NOCTTY; truncates only after the
 * checks. An existing file must be a regular file of this user, root or the folder's owner; for
 * reading, not writable by other users; for writing, without further hard links. On failure *fd
 * is -1 and errno is from open(), or EPERM if the file is rejected. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_shared_open(int *fd, const char *path, int flags, mode_t mode);
/* lt_shared_open() without checks of owner and mode, for a folder that the user shares on purpose. */
LT_MUST_CHECK lt_status lt_shared_open_any_owner(int *fd, const char *path, int flags, mode_t mode);
/* Opens a stream like fopen(): 'w' truncates, 'a' appends; both create. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_shared_open_stream(FILE **out, const char *path, char mode);

/* A file written as PATH.tmp-PID and renamed when complete. */
typedef struct lt_replacement {
    FILE *file;
    char *path, *temp;
} lt_replacement;
/* Opens the temporary file for writing. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_replacement_open(lt_replacement *r, const char *path);
/* Closes the file and renames it to path, replacing a file or link there; synced: after fsync(). If status is a
 * failure, removes it instead. Clears r in any case. Returns status, or LT_E_IO. */
LT_MUST_CHECK lt_status lt_replacement_close(lt_replacement *r, lt_status status, bool synced);
/* Replaces the file's contents by data, not synced. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_shared_save(const char *path, const void *data, size_t bytes);

/* Creates a folder and its parents; path may be a link to one if it is owned by this user, root or the owner of its
 * folder. Errors: LT_E_IO, LT_E_ARG. */
LT_MUST_CHECK lt_status lt_make_shared_folder(const char *path);

/* Fails unless path is a folder (or a link to one) of this user or root that other users cannot write; a private group,
 * with the owner's number, may. Not needed directly after mkdir(), as a file server may map owners. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_check_private_folder(const char *path);

/* Returns "a file", "a folder", "a symbolic link", ... for st_mode. */
const char *lt_file_kind(mode_t mode);

#endif
