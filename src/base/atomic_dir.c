/* Atomic folders: write under a temporary name, fsync files and folder, rename, fsync the parent. Pillai et al., "All
 * File Systems Are Not Created Equal", OSDI 2014. */

#include "base/atomic_dir.h"

#include "base/alloc.h"
#include "base/os.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lt_status io_error(const char *path)
{
    return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
}

lt_status lt_sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return io_error(path);
    int failed = fsync(fd);
    /* Some file systems cannot sync a folder; nothing more can be done then. */
    if (failed && (errno == EINVAL || errno == ENOTSUP))
        failed = 0;
    lt_status st = failed ? io_error(path) : LT_OK;
    close(fd);
    return st;
}

lt_status lt_sync_parent(const char *path)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash)
        return lt_sync_path(".");
    slash[slash == parent] = 0; /* "/" is its own parent */
    return lt_sync_path(parent);
}

/* Calls fn with the path of each entry; stops at the first failure. */
static lt_status each_entry(const char *folder, lt_status (*fn)(const char *path))
{
    DIR *dir = opendir(folder);
    if (!dir)
        return io_error(folder);
    lt_status st = LT_OK;
    const struct dirent *entry;
    while (!st && (entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char *path = lt_format("%s/%s", folder, entry->d_name);
        st = path ? fn(path) : LT_E_NOMEM;
        lt_free(path);
    }
    closedir(dir);
    return st;
}

lt_status lt_remove_tree(const char *path)
{
    struct stat info;
    if (lstat(path, &info))
        return errno == ENOENT ? LT_OK : io_error(path);
    if (!S_ISDIR(info.st_mode))
        return unlink(path) ? io_error(path) : LT_OK;
    LT_TRY(each_entry(path, lt_remove_tree));
    return rmdir(path) ? io_error(path) : LT_OK;
}

static char *temporary_name(const char *path)
{
    return lt_format("%s.tmp-%ld", path, (long)getpid());
}

static void free_paths(lt_atomic_dir *commit)
{
    lt_free(commit->path);
    lt_free(commit->temp);
    *commit = (lt_atomic_dir){0};
}

lt_status lt_atomic_dir_begin(lt_atomic_dir *commit, const char *path)
{
    lt_atomic_dir c = {.path = lt_strdup(path), .temp = temporary_name(path)};
    lt_status st = c.path && c.temp ? lt_remove_tree(c.temp) : LT_E_NOMEM;
    if (!st && mkdir(c.temp, 0777))
        st = io_error(c.temp);
    if (st)
        free_paths(&c);
    else
        *commit = c;
    return st;
}

/* Renames the temporary folder; exchanges it with an existing one, which is then removed. */
static lt_status rename_to_final(const lt_atomic_dir *c)
{
    if (!rename(c->temp, c->path))
        return LT_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return io_error(c->path);
    if (!lt_os_exchange(c->temp, c->path))
        return lt_remove_tree(c->temp);
    LT_TRY(lt_atomic_dir_remove(c->path)); /* no exchange on this file system: not atomic */
    return rename(c->temp, c->path) ? io_error(c->path) : LT_OK;
}

lt_status lt_atomic_dir_commit(lt_atomic_dir *commit)
{
    lt_status st = each_entry(commit->temp, lt_sync_path);
    if (!st)
        st = lt_sync_path(commit->temp);
    if (!st)
        st = rename_to_final(commit);
    if (!st)
        st = lt_sync_parent(commit->path);
    if (st) {
        lt_atomic_dir_abandon(commit);
        return st;
    }
    free_paths(commit);
    return LT_OK;
}

void lt_atomic_dir_abandon(lt_atomic_dir *commit)
{
    if (commit->temp && lt_remove_tree(commit->temp))
        commit->temp[0] = 0; /* left to lt_remove_stale_temps() of a later run */
    free_paths(commit);
}

lt_status lt_atomic_symlink(const char *path, const char *target)
{
    char *temp = temporary_name(path);
    if (!temp)
        return LT_E_NOMEM;
    unlink(temp);
    lt_status st = LT_OK;
    if (symlink(target, temp) || rename(temp, path)) {
        st = io_error(path);
        unlink(temp);
    }
    lt_free(temp);
    return st ? st : lt_sync_parent(path);
}

lt_status lt_atomic_dir_remove(const char *path)
{
    char *temp = lt_format("%s.old.tmp-%ld", path, (long)getpid());
    if (!temp)
        return LT_E_NOMEM;
    lt_status st = lt_remove_tree(temp);
    if (!st && rename(path, temp))
        st = io_error(path);
    if (!st)
        st = lt_remove_tree(temp);
    lt_free(temp);
    return st;
}

static bool may_live(long pid)
{
    return pid != (long)getpid() && (!kill((pid_t)pid, 0) || errno != ESRCH);
}

/* Returns true if entry is this user's NAME.tmp-PID with one of the names, and PID is dead or this process, which is
 * not saving now. is_locked: any PID counts as dead, as a living process of that number is unrelated. */
static bool is_stale(int folder, const char *entry, const char *const *names, bool is_locked)
{
    static const char mark[] = ".tmp-";
    char *end, name[NAME_MAX + 2];
    struct stat info;
    const char *at = strstr(entry, mark);
    if (!at || !isdigit((unsigned char)at[sizeof mark - 1]))
        return false;
    const long pid = strtol(at + sizeof mark - 1, &end, 10);
    if (*end || pid <= 0 || (!is_locked && may_live(pid)))
        return false;
    if (fstatat(folder, entry, &info, AT_SYMLINK_NOFOLLOW) || info.st_uid != geteuid())
        return false;
    snprintf(name, sizeof name, "%.*s%s", (int)(at - entry), entry,
             S_ISDIR(info.st_mode) ? "/" : "");
    while (*names && fnmatch(*names, name, 0))
        names++;
    return *names != NULL;
}

void lt_remove_stale_temps(const char *folder, const char *const *names, bool is_locked)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char *path = is_stale(dirfd(dir), entry->d_name, names, is_locked)
                         ? lt_format("%s/%s", folder, entry->d_name)
                         : NULL;
        if (path && lt_remove_tree(path))
            (void)path; /* best effort */
        lt_free(path);
    }
    if (dir)
        closedir(dir);
}

lt_status lt_make_folders(const char *path)
{
    char part[PATH_MAX];
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof part)
        return lt_fail(LT_E_ARG, "folder name of %zu bytes, want 1 to %zu", bytes, sizeof part - 1);
    for (size_t i = 1; i <= bytes; i++) {
        if (path[i] && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            return io_error(part);
    }
    struct stat info;
    if (stat(path, &info))
        return io_error(path);
    return S_ISDIR(info.st_mode) ? LT_OK : lt_fail(LT_E_IO, "%s: not a folder", path);
}
