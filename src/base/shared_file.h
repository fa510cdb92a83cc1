/* Files that the program itself names, in folders where other users may write: they may have put a link, a pipe or a
 * file of theirs there. Names that the user gave are opened by base/file.h and may be links. */
#ifndef LT_BASE_SHARED_FILE_H
#define LT_BASE_SHARED_FILE_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* open() with O_NOFOLLOW, O_NONBLOCK, O_CLOEXEC and O_NOCTTY added; O_TRUNC takes effect after the checks. What this
 * call did not create must be a regular file of this user, of root or of the folder's owner; opened for reading only,
 * no other user may be able to write it; opened for writing, it must have one name. *fd is -1 on failure, with errno
 * from open(), or EPERM if the file is rejected. Errors: LT_E_IO (what is there, and what was wanted). */
LT_MUST_CHECK lt_status lt_shared_open(int *fd, const char *path, int flags, mode_t mode);
/* lt_shared_open() without the checks of owner and mode, for a folder that the user shares on purpose. */
LT_MUST_CHECK lt_status lt_shared_open_any(int *fd, const char *path, int flags, mode_t mode);
/* fopen() by lt_shared_open(): 'w' truncates, 'a' appends; both create. Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_shared_stream(FILE **out, const char *path, char mode);

/* A file that appears under its name when it is whole: written as PATH.tmp-PID. */
typedef struct lt_replacement {
    FILE *file;
    char *path, *temp;
} lt_replacement;
/* Errors: LT_E_IO, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_replacement_open(lt_replacement *r, const char *path);
/* Closes the file and gives it its name, in place of what had it, a link too; synced: it is on the disk before. With a
 * status of failure the old file is unchanged. Clears r in any case. Returns that status, or LT_E_IO. */
LT_MUST_CHECK lt_status lt_replacement_close(lt_replacement *r, lt_status status, bool synced);
/* The three in one. */
LT_MUST_CHECK lt_status lt_shared_save(const char *path, const void *data, size_t bytes);

/* Makes a folder, and its parents; path may be a link to one, but of this user, of root or of the folder that it is in.
 * Errors: LT_E_IO, LT_E_ARG. */
LT_MUST_CHECK lt_status lt_shared_folder(const char *path);

/* Fails unless path is a folder, or a link to one, of this user or of root that no other user may write: not by mode,
 * nor by its group, but for the group whose number is the owner's (a user's private group). It needs no check right
 * after mkdir(): a file server may map its owner. Errors: LT_E_IO (owner or mode, and what was wanted). */
LT_MUST_CHECK lt_status lt_private_folder(const char *path);

/* "a file", "a folder", "a symbolic link", ..., by st_mode. */
const char *lt_file_kind(mode_t mode);

#endif
