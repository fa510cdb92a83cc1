/* Reads whole files and byte ranges, and writes byte ranges. */

#include "data/files/files.h"

#include "base/file.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

bool lt_is_folder(const char *path)
{
    struct stat info;
    errno = 0;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static lt_status read_all(int fd, const struct stat *info, const char *path, lt_record *record)
{
    if (info->st_size == 0)
        return lt_fail(LT_E_FORMAT, "%s: the file is empty", path);
    if (info->st_size > LT_FILE_MOST)
        return lt_fail(LT_E_FORMAT, "%s: %lld bytes; an image file has at most %d", path,
                       (long long)info->st_size, LT_FILE_MOST);
    LT_TRY(lt_record_reserve(record, (size_t)info->st_size));
    record->size = 0;
    while (record->size < (size_t)info->st_size) {
        ssize_t got = read(fd, record->bytes + record->size, (size_t)info->st_size - record->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
        if (got == 0)
            break; /* another process truncated the file; the decoder will notice */
        record->size += (size_t)got;
    }
    return LT_OK;
}

lt_status lt_file_read(const char *path, lt_record *record)
{
    int fd;
    struct stat info;
    LT_TRY(lt_file_open_descriptor(&fd, &info, path));
    lt_status st = read_all(fd, &info, path, record);
    close(fd);
    return st;
}

lt_status lt_read_at(int fd, const char *path, void *to, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
        if (got == 0)
            return lt_fail(LT_E_FORMAT,
                           "%s: the file ends at %" PRIu64 "; cannot read %zu bytes from %" PRIu64
                           " on",
                           path, offset + done, bytes, offset);
        done += (size_t)got;
    }
    return LT_OK;
}

lt_status lt_write_at(int fd, const char *path, const void *from, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(fd, (const char *)from + done, bytes - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return lt_fail(LT_E_IO, "%s: %s", path, strerror(put ? errno : ENOSPC));
        done += (size_t)put;
    }
    return LT_OK;
}

lt_status lt_file_read_range(const char *path, uint64_t offset, uint64_t size, lt_record *record)
{
    if (!size || size > LT_FILE_MOST)
        return lt_fail(LT_E_FORMAT, "%s: image of %" PRIu64 " bytes at %" PRIu64 "; want 1 to %d",
                       path, size, offset, LT_FILE_MOST);
    LT_TRY(lt_record_reserve(record, (size_t)size));
    record->size = (size_t)size;
    int fd;
    struct stat info;
    LT_TRY(lt_file_open_descriptor(&fd, &info, path));
    lt_status st = lt_read_at(fd, path, record->bytes, record->size, offset);
    close(fd);
    return st;
}

size_t lt_find_segment(const int64_t *first, size_t count, int64_t index)
{
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void lt_file_read_ahead(const char *path, uint64_t offset, uint64_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return; /* reading the file will fail with a message */
    lt_os_read_ahead(fd, offset, size);
    close(fd);
}
