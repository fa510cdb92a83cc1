/* Reading of whole files. */

#include "data/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 30 }; /* an uncompressed picture of the largest size has 402 MB */

bool lt_is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static lt_status read_all(int fd, const char *path, lt_record *record)
{
    struct stat info;
    if (fstat(fd, &info))
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lt_fail(LT_E_IO, "%s: not a regular file", path);
    if (info.st_size == 0)
        return lt_fail(LT_E_FORMAT, "%s: the file is empty", path);
    if (info.st_size > MAX_BYTES)
        return lt_fail(LT_E_FORMAT, "%s: %lld bytes are more than a picture has", path,
                       (long long)info.st_size);
    LT_TRY(lt_record_reserve(record, (size_t)info.st_size));
    record->size = 0;
    while (record->size < (size_t)info.st_size) {
        ssize_t got = read(fd, record->bytes + record->size, (size_t)info.st_size - record->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
        if (got == 0)
            break; /* it shrank; the decoder judges what is there */
        record->size += (size_t)got;
    }
    return LT_OK;
}

lt_status lt_file_read(const char *path, lt_record *record)
{
    /* Without O_NONBLOCK a named pipe would block here. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    lt_status st = read_all(fd, path, record);
    close(fd);
    return st;
}

static lt_status read_part(int fd, const char *path, uint64_t offset, lt_record *record)
{
    for (size_t done = 0; done < record->size;) {
        ssize_t got = pread(fd, record->bytes + done, record->size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
        if (got == 0)
            return lt_fail(LT_E_FORMAT,
                           "%s: the file ends at %" PRIu64 ", %zu bytes from %" PRIu64
                           " on are wanted",
                           path, offset + done, record->size, offset);
        done += (size_t)got;
    }
    return LT_OK;
}

lt_status lt_file_read_part(const char *path, uint64_t offset, uint64_t size, lt_record *record)
{
    if (!size || size > MAX_BYTES)
        return lt_fail(LT_E_FORMAT, "%s: a picture of %" PRIu64 " bytes at %" PRIu64, path, size,
                       offset);
    LT_TRY(lt_record_reserve(record, (size_t)size));
    record->size = (size_t)size;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    lt_status st = read_part(fd, path, offset, record);
    close(fd);
    return st;
}
