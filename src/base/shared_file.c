/* Safe opening of files in shared folders. Tries O_EXCL first: a created file is known to be this user's, even if a
 * file server maps its owner. The folder's owner is trusted, as in Linux's protected_regular, since they could
 * replace any file in it. */

#include "base/shared_file.h"

#include "base/alloc.h"
#include "base/atomic_dir.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *lt_file_kind(mode_t mode)
{
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

enum { MODE = 07777 };

static lt_status rejected_error(const char *path, const char *what)
{
    return lt_fail(LT_E_IO, "%s: %s, but the program creates this file itself: remove it", path,
                   what);
}

/* Reports a failed open(). ELOOP: the last component is a link; ENXIO: a pipe without a reader, or a socket. */
static lt_status open_error(const char *path, int why)
{
    struct stat info;
    const bool is_kind = (why == ELOOP || why == ENXIO) && !lstat(path, &info);
    lt_status st = is_kind ? rejected_error(path, lt_file_kind(info.st_mode))
                           : lt_fail(LT_E_IO, "%s: %s", path, strerror(why));
    errno = is_kind ? EPERM : why;
    return st;
}

static bool is_of_folder_owner(const char *path, uid_t owner)
{
    char folder[PATH_MAX];
    struct stat info;
    const char *slash = strrchr(path, '/');
    const int bytes = slash ? (int)(slash - path) + 1 : 1;
    if (bytes >= PATH_MAX)
        return false;
    snprintf(folder, sizeof folder, "%.*s", bytes, slash ? path : ".");
    return !stat(folder, &info) && info.st_uid == owner;
}

static bool is_writable_by_others(const struct stat *info)
{
    const bool private_group = info->st_gid == info->st_uid;
    return info->st_mode & (private_group ? S_IWOTH : S_IWGRP | S_IWOTH);
}

static lt_status check_owner(const struct stat *info, const char *path, int access)
{
    if (info->st_uid != geteuid() && info->st_uid != 0 && !is_of_folder_owner(path, info->st_uid))
        return lt_fail(LT_E_IO,
                       "%s: belongs to user %u, not to user %u, who runs this: remove it, or work "
                       "in a folder of your own",
                       path, (unsigned)info->st_uid, (unsigned)geteuid());
    if (access == O_RDONLY && is_writable_by_others(info))
        return lt_fail(LT_E_IO, "%s: has mode %04o, so other users may write it: chmod go-w", path,
                       (unsigned)info->st_mode & MODE);
    return LT_OK;
}

static lt_status check_opened_file(int fd, const char *path, int access, bool any_owner)
{
    struct stat info;
    if (fstat(fd, &info))
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return rejected_error(path, lt_file_kind(info.st_mode));
    if (access != O_RDONLY && info.st_nlink > 1)
        return rejected_error(path, "has another name (a hard link)");
    return any_owner ? LT_OK : check_owner(&info, path, access);
}

static lt_status open_checked(int *out, const char *path, int flags, mode_t mode, bool any_owner)
{
    const int added = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, created = O_CREAT | O_EXCL;
    int fd = -1;
    *out = -1;
    do { /* repeats if an existing file is removed between the two calls */
        if (flags & O_CREAT && (fd = open(path, flags | created | added, mode)) >= 0) {
            *out = fd;
            return LT_OK;
        }
        if (flags & O_CREAT && (errno != EEXIST || flags & O_EXCL))
            return open_error(path, errno);
        fd = open(path, (flags & ~(O_CREAT | O_TRUNC)) | added);
    } while (fd < 0 && errno == ENOENT && flags & O_CREAT);
    if (fd < 0)
        return open_error(path, errno);
    lt_status st = check_opened_file(fd, path, flags & O_ACCMODE, any_owner);
    if (!st && flags & O_TRUNC && ftruncate(fd, 0))
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    if (st) {
        close(fd);
        errno = EPERM;
        return st;
    }
    *out = fd;
    return LT_OK;
}

lt_status lt_shared_open(int *fd, const char *path, int flags, mode_t mode)
{
    return open_checked(fd, path, flags, mode, false);
}

lt_status lt_shared_open_any_owner(int *fd, const char *path, int flags, mode_t mode)
{
    return open_checked(fd, path, flags, mode, true);
}

lt_status lt_shared_open_stream(FILE **out, const char *path, char mode)
{
    const bool append = mode == 'a';
    int fd;
    LT_TRY(lt_shared_open(&fd, path, O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC), 0666));
    *out = fdopen(fd, append ? "ab" : "wb");
    if (*out)
        return LT_OK;
    close(fd);
    return lt_fail(LT_E_NOMEM, "%s: no memory for a stream", path);
}

lt_status lt_replacement_open(lt_replacement *r, const char *path)
{
    *r = (lt_replacement){.path = lt_strdup(path),
                          .temp = lt_format("%s.tmp-%ld", path, (long)getpid())};
    lt_status st = r->path && r->temp ? lt_shared_open_stream(&r->file, r->temp, 'w') : LT_E_NOMEM;
    if (st == LT_E_IO && errno != EPERM)
        st = lt_fail(st, "%s: %s", path, strerror(errno));
    if (st) {
        lt_free(r->path);
        lt_free(r->temp);
    }
    return st;
}

lt_status lt_replacement_close(lt_replacement *r, lt_status status, bool synced)
{
    bool failed = !status && (fflush(r->file) || ferror(r->file));
    failed = failed || (!status && synced && fsync(fileno(r->file)));
    failed = (fclose(r->file) && !status) || failed;
    if (failed || (!status && rename(r->temp, r->path)))
        status = lt_fail(LT_E_IO, "%s: %s", r->path, strerror(errno));
    if (status)
        unlink(r->temp);
    lt_free(r->path);
    lt_free(r->temp);
    *r = (lt_replacement){0};
    return status;
}

lt_status lt_shared_save(const char *path, const void *data, size_t bytes)
{
    lt_replacement r;
    LT_TRY(lt_replacement_open(&r, path));
    fwrite(data, 1, bytes, r.file); /* errors are reported by lt_replacement_close() */
    return lt_replacement_close(&r, LT_OK, false);
}

lt_status lt_make_shared_folder(const char *path)
{
    struct stat info;
    if (!lstat(path, &info) && S_ISLNK(info.st_mode))
        LT_TRY(check_owner(&info, path, O_WRONLY));
    return lt_make_folders(path);
}

lt_status lt_check_private_folder(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return lt_fail(LT_E_IO, "%s: not a folder, but %s", path, lt_file_kind(info.st_mode));
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return lt_fail(LT_E_IO,
                       "%s: belongs to user %u, not to user %u, who runs this: name a folder of "
                       "your own",
                       path, (unsigned)info.st_uid, (unsigned)geteuid());
    if (is_writable_by_others(&info))
        return lt_fail(LT_E_IO,
                       "%s: has mode %04o, so other users may write there: chmod go-w, or name a "
                       "folder of your own in it",
                       path, (unsigned)info.st_mode & MODE);
    return LT_OK;
}
