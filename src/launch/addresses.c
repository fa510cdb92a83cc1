/* Addresses of services, and the files in which they are published. */

#include "base/clock.h"
#include "base/shared_file.h"
#include "launch/launch.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void lt_launch_make_listen_address(const lt_launch_place *place, const char *label, int index,
                                   char *out, size_t size)
{
    if (place->platform == LT_LAUNCH_THREADS)
        snprintf(out, size, "inproc://%s/%s.%d", place->files, label, index);
    else if (place->platform == LT_LAUNCH_LOCAL)
        snprintf(out, size, "ipc://%s/%s.%d.socket", place->files, label, index);
    else
        snprintf(out, size, "tcp://0.0.0.0:0");
}

void lt_launch_address_path(const lt_launch_place *place, const char *label, int index, char *out,
                            size_t size)
{
    snprintf(out, size, "%s/%s.%d.address", place->files, label, index);
}

/* Rejects files of other users: the owner of a parent folder could replace the launch's folder and its commands. */
lt_status lt_launch_open_file(FILE **out, const char *path)
{
    struct stat info;
    int fd;
    LT_TRY(lt_shared_open_any_owner(&fd, path, O_RDONLY, 0));
    lt_status st = fstat(fd, &info) ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno)) : LT_OK;
    if (!st && info.st_uid != geteuid())
        st = lt_fail(LT_E_IO, "%s: belongs to user %u, not to user %u, who runs this node", path,
                     (unsigned)info.st_uid, (unsigned)geteuid());
    if (!st && !(*out = fdopen(fd, "r")))
        st = lt_fail(LT_E_NOMEM, "%s: no memory for a stream", path);
    if (st) {
        close(fd);
        errno = EPERM;
    }
    return st;
}

lt_status lt_launch_publish_address(const lt_launch_place *place, const char *label, int index,
                                    const char *address)
{
    char path[2 * LT_LAUNCH_PATH];
    lt_launch_address_path(place, label, index, path, sizeof path);
    return lt_file_save(path, address, strlen(address));
}

lt_status lt_launch_wait_for_address(const lt_launch_place *place, const char *label, int index,
                                     double timeout, char *out, size_t size)
{
    enum { AGAIN_US = 2000 };
    char path[2 * LT_LAUNCH_PATH];
    const double deadline = lt_clock_seconds() + timeout;
    lt_launch_address_path(place, label, index, path, sizeof path);
    for (;;) {
        FILE *file = NULL;
        const lt_status st = lt_launch_open_file(&file, path);
        if (st && errno == EPERM)
            return st;
        const size_t got = file ? fread(out, 1, size - 1, file) : 0;
        if (file)
            fclose(file);
        out[got] = 0;
        if (got)
            return LT_OK;
        if (lt_clock_seconds() > deadline)
            return lt_fail(LT_E_COMM, "launch: %s.%d published no address within %.0f s", label,
                           index, timeout);
        usleep(AGAIN_US);
    }
}
