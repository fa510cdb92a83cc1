/* Exclusive right to write to a run folder: a lock on FOLDER/lock. Open file description locks (fcntl, Linux 3.15)
 * end with the process however it ends, so a stale file locks nothing. Unlike flock() they reach an NFS server,
 * and unlike F_SETLK they also exclude two holders in one process. Where a file system has only classic record
 * locks, those are used. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/file.h"
#include "base/os.h"
#include "base/shared_file.h"
#include "dist/consensus.h"

#include "lather/detail/run_folder.h"
#include "lather/detail/text.h"
#include "lather/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOLDER = 256 };

struct lt_run_lock {
    char *folder, *path; /* NULL on ranks above 0 */
    const char *doing;
    int file; /* -1 if closed */
    bool is_locked;
    bool made_folder;
};

static lt_status io_error(const char *path)
{
    return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
}

/* Fails with the holder's text, which may be missing if the holder has not written it yet. */
static lt_status fail_held_by_other(const lt_run_lock *l)
{
    char text[HOLDER] = "", shown[2 * HOLDER];
    ssize_t bytes = pread(l->file, text, sizeof text - 1, 0);
    text[bytes > 0 ? strcspn(text, "\n") : 0] = 0;
    return lt_fail(LT_E_IO, "%s: is being %s by %s", l->folder, l->doing,
                   *text ? lt_text_escape(shown, sizeof shown, text) : "another process");
}

static lt_status write_holder(const lt_run_lock *l)
{
    char text[HOLDER], host[64] = "", since[32];
    time_t now = time(NULL);
    struct tm utc;
    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    int bytes =
        snprintf(text, sizeof text, "pid %ld on %s since %s\n", (long)getpid(), host, since);
    if (ftruncate(l->file, 0) || pwrite(l->file, text, (size_t)bytes, 0) != bytes)
        return io_error(l->path);
    return LT_OK;
}

/* Returns true if the path still names the open file, which its last holder may have removed. */
static bool is_still_at_path(const lt_run_lock *l)
{
    struct stat own, named;
    return !fstat(l->file, &own) && !lstat(l->path, &named) && own.st_ino == named.st_ino
           && own.st_dev == named.st_dev;
}

/* Returns 0, or -1 with errno set. */
static int set_lock(int file)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!fcntl(file, LT_SETLK, &whole))
        return 0;
    return errno == EINVAL || errno == ENOTSUP ? fcntl(file, F_SETLK, &whole) : -1;
}

static lt_status try_lock(lt_run_lock *l)
{
    LT_TRY(lt_shared_open(&l->file, l->path, O_RDWR | O_CREAT, 0666));
    if (!set_lock(l->file)) {
        l->is_locked = is_still_at_path(l);
        return LT_OK;
    }
    if (errno == EAGAIN || errno == EACCES)
        return fail_held_by_other(l);
    lt_log(LT_LOG_WARN, "train",
           "%s: cannot be locked (%s): make sure that no other process writes to %s", l->path,
           strerror(errno), l->folder);
    l->is_locked = true;
    return LT_OK;
}

static void close_file(lt_run_lock *l)
{
    if (l->file >= 0)
        close(l->file);
    l->file = -1;
}

static lt_status lock_folder(lt_run_lock *l, bool is_new)
{
    struct stat info;
    l->made_folder = stat(l->folder, &info) && errno == ENOENT;
    LT_TRY(lt_make_folders(l->folder));
    while (!l->is_locked) {
        close_file(l);
        LT_TRY(try_lock(l));
    }
    if (is_new && lt_run_is_used(l->folder))
        return lt_fail(LT_E_ARG, "%s: holds a run", l->folder);
    return write_holder(l);
}

static lt_status lock_on_rank_0(lt_run_lock *l, const char *folder, const lt_run_lock_config *c)
{
    l->folder = lt_strdup(folder);
    l->doing = c->doing ? c->doing : "written";
    l->path = lt_format("%s/%s", folder, c->name ? c->name : "lock");
    return l->folder && l->path ? lock_folder(l, c->is_new) : LT_E_NOMEM;
}

lt_status lt_run_lock_open(lt_run_lock **out, const char *folder, const lt_run_lock_config *config)
{
    static const lt_run_lock_config any = {0};
    const lt_run_lock_config *c = config ? config : &any;
    lt_run_lock *l = lt_alloc(1, sizeof *l);
    lt_status st = l ? LT_OK : LT_E_NOMEM;
    if (l)
        l->file = -1;
    if (!st && (!c->comm || lt_comm_rank(c->comm) == 0))
        st = lock_on_rank_0(l, folder, c);
    if (c->comm)
        st = lt_comm_agree_on_status(c->comm, st);
    if (st)
        lt_run_lock_close(&l);
    else
        *out = l;
    return st;
}

bool lt_run_lock_is_held(const char *folder)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char *path = lt_format("%s/lock", folder);
    struct stat info;
    int file = -1;
    const bool asked =
        path && !lt_file_open_descriptor(&file, &info, path)
        && (!fcntl(file, LT_GETLK, &whole) || (errno == EINVAL && !fcntl(file, F_GETLK, &whole)));
    if (file >= 0)
        close(file);
    lt_free(path);
    return asked && whole.l_type != F_UNLCK;
}

void lt_run_lock_close(lt_run_lock **lock)
{
    lt_run_lock *l = *lock;
    if (!l)
        return;
    if (l->is_locked && is_still_at_path(l))
        unlink(l->path);
    close_file(l);
    if (l->made_folder)
        rmdir(l->folder); /* fails if a run was there after all */
    lt_free(l->path);
    lt_free(l->folder);
    lt_free(l);
    *lock = NULL;
}
