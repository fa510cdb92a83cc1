/* Opening and writing of files. */

#include "base/file.h"

#include "base/os.h"
#include "base/shared_file.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static lt_status check_regular_file(int fd, struct stat *info, const char *path)
{
    if (fstat(fd, info))
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info->st_mode))
        return lt_fail(LT_E_IO, "%s: not a regular file, but %s", path,
                       lt_file_kind(info->st_mode));
    return LT_OK;
}

lt_status lt_file_open_descriptor(int *fd, struct stat *info, const char *path)
{
    /* O_NONBLOCK prevents blocking on a named pipe; it does not affect regular files. */
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *fd = -1;
    if (opened < 0)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    lt_status st = check_regular_file(opened, info, path);
    if (st)
        close(opened);
    else
        *fd = opened;
    return st;
}

lt_status lt_file_open(FILE **out, const char *path)
{
    struct stat info;
    int fd = -1;
    LT_TRY(lt_file_open_descriptor(&fd, &info, path));
    FILE *file = fdopen(fd, "rb");
    if (!file) {
        close(fd);
        return lt_fail(LT_E_NOMEM, "%s: no memory for a stream", path);
    }
    *out = file;
    return LT_OK;
}

static lt_status write_in_place(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    const bool written = !bytes || fwrite(data, 1, bytes, file) == bytes;
    if (fclose(file) || !written)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    return LT_OK;
}

lt_status lt_file_save(const char *path, const void *data, size_t bytes)
{
    struct stat info; /* lstat(): /dev/stdout is a link, possibly to a regular file */
    if (!lstat(path, &info) && !S_ISREG(info.st_mode))
        return write_in_place(path, data, bytes);
    return lt_shared_save(path, data, bytes);
}

lt_status lt_file_find_near_program(char *path, size_t size, const char *in_source,
                                    const char *installed)
{
    enum { LEVELS = 5 };
    char folder[PATH_MAX];
    const char *const names[] = {in_source, installed};
    if (!lt_os_program_path(folder, sizeof folder))
        return lt_fail(LT_E_IO, "%s: not found, as the path of this program is unknown", in_source);
    for (int level = 0; level < LEVELS; level++) {
        char *slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = 0;
        for (int i = 0; i < 2; i++) {
            int length = snprintf(path, size, "%s/%s", folder, names[i]);
            if (length > 0 && (size_t)length < size && !access(path, R_OK))
                return LT_OK;
        }
    }
    return lt_fail(LT_E_IO, "%s: not found, nor %s, in the folders above the program", in_source,
                   installed);
}
