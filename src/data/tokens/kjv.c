/* Reads the text of the King James Bible (out of copyright) from /usr/lib/bible.data of Debian's bible-kjv-text. The
 * file has windows of 64 KiB of text that are compressed separately; gzip expands them.
 *
 *   "EC02Compressed Data File" and zeros, 84 bytes
 *   size of a window, number of windows, offset of each window: 32 bits each, big-endian
 *   windows: output of compress without its header; the last window is shorter */

#include "data/tokens/kjv.h"

#include "base/alloc.h"
#include "base/big_endian.h"
#include "base/file.h"
#include "base/os.h"
#include "data/files/files.h"

#include "lather/ext/fail.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE_AT = 84, COUNT_AT = 88, TABLE_AT = 92, WINDOW = 1 << 16, MOST = 4096, NUMBER = 4 };

static uint32_t number_at(const uint8_t *file, size_t at)
{
    return (uint32_t)lt_read_big_endian(file + at, NUMBER);
}

static lt_status check_kjv_header(const uint8_t *file, size_t bytes, const char *name)
{
    static const char magic[] = "EC02Compressed Data File";
    if (bytes < TABLE_AT || memcmp(file, magic, strlen(magic)) != 0)
        return lt_fail(LT_E_FORMAT, "%s: not the data of Debian's bible-kjv-text", name);
    const uint32_t size = number_at(file, SIZE_AT), count = number_at(file, COUNT_AT);
    if (size != WINDOW || !count || count > MOST || bytes < TABLE_AT + (size_t)count * NUMBER)
        return lt_fail(LT_E_FORMAT, "%s: %u windows of %u bytes, want 1 .. %d windows of %d", name,
                       count, size, MOST, WINDOW);
    return LT_OK;
}

/* Runs gzip -dc from one descriptor to the other. Returns false if it failed or is not installed. */
static bool run_gzip(int from, int to)
{
    char program[] = "gzip", flags[] = "-dc", *const argv[] = {program, flags, NULL};
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = -1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, from, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, to, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!posix_spawnp(&pid, program, &files, NULL, argv, environ))
        status = lt_os_wait(pid);
    posix_spawn_file_actions_destroy(&files);
    return !status;
}

/* Expands a window after adding the header of compress (codes of up to 16 bits, block mode). Returns the size, or -1 on
 * failure. */
static int64_t expand_window(const uint8_t *window, size_t bytes, char *to)
{
    static const uint8_t header[] = {0x1f, 0x9d, 0x90};
    const int in = lt_os_memory_file("kjv.Z"), out = lt_os_memory_file("kjv");
    int64_t got = -1;
    if (in >= 0 && out >= 0 && !lt_write_at(in, "kjv.Z", header, sizeof header, 0)
        && !lt_write_at(in, "kjv.Z", window, bytes, sizeof header) && run_gzip(in, out))
        got = lseek(out, 0, SEEK_END);
    if (got > WINDOW || (got > 0 && lt_read_at(out, "kjv", to, (size_t)got, 0)))
        got = -1;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return got;
}

static lt_status decode_windows(const uint8_t *file, size_t file_bytes, const char *name, char *out,
                                size_t *bytes)
{
    const uint32_t count = number_at(file, COUNT_AT);
    for (uint32_t i = 0; i < count; i++) {
        const size_t begin = number_at(file, TABLE_AT + (size_t)i * NUMBER),
                     end = i + 1 == count ? file_bytes
                                          : number_at(file, TABLE_AT + (size_t)(i + 1) * NUMBER);
        const int64_t got = begin > end || end > file_bytes
                                ? -1
                                : expand_window(file + begin, end - begin, out + *bytes);
        if (got < 0)
            return lt_fail(
                LT_E_FORMAT,
                "%s: cannot expand window %u of %u: it is corrupt, or gzip is not installed", name,
                i, count);
        *bytes += (size_t)got;
    }
    return LT_OK;
}

lt_status lt_kjv_decode(const void *file, size_t file_bytes, const char *name, char **out,
                        size_t *bytes)
{
    LT_TRY(check_kjv_header(file, file_bytes, name));
    *bytes = 0;
    char *text = lt_alloc(number_at(file, COUNT_AT), WINDOW);
    if (!text)
        return LT_E_NOMEM;
    lt_status st = decode_windows(file, file_bytes, name, text, bytes);
    if (st)
        lt_free(text);
    else
        *out = text;
    return st;
}

lt_status lt_kjv_text(char **out, size_t *bytes)
{
    const char *path = getenv("LATHER_KJV");
    if (!path)
        path = "/usr/lib/bible.data";
    if (access(path, F_OK))
        return lt_fail(LT_E_IO,
                       "%s: no such file; install Debian's package bible-kjv-text or set "
                       "LATHER_KJV to its file bible.data",
                       path);
    lt_record file = {0};
    lt_status st = lt_file_read(path, &file);
    if (!st)
        st = lt_kjv_decode(file.bytes, file.size, path, out, bytes);
    lt_free(file.bytes);
    return st;
}
