/* Reads the text of the King James Bible from /usr/lib/bible.data of Debian's bible-kjv-text, whose
 * copyright has expired: a table of windows of 64 KiB, each compressed by itself.
 *
 *   "EC02Compressed Data File" and zeros, 84 bytes
 *   bytes of a window, number of windows, where each begins: 32 bits each, the high byte first
 *   windows: LZW without a header; the last one is shorter */

#include "data/tokens/kjv.h"

#include "base/alloc.h"
#include "base/big_endian.h"
#include "base/file.h"
#include "data/files/files.h"
#include "data/tokens/lzw.h"

#include "lather/ext/fail.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE_AT = 84, COUNT_AT = 88, TABLE_AT = 92, WINDOW = 1 << 16, MOST = 4096, NUMBER = 4 };

static uint32_t number_at(const uint8_t *file, size_t at)
{
    return (uint32_t)lt_big_endian(file + at, NUMBER);
}

static lt_status check(const uint8_t *file, size_t bytes, const char *name)
{
    static const char magic[] = "EC02Compressed Data File";
    if (bytes < TABLE_AT || memcmp(file, magic, strlen(magic)) != 0)
        return lt_fail(LT_E_FORMAT, "%s: not the data of Debian's bible-kjv-text", name);
    const uint32_t size = number_at(file, SIZE_AT), count = number_at(file, COUNT_AT);
    if (size != WINDOW || !count || count > MOST || bytes < TABLE_AT + (size_t)count * NUMBER)
        return lt_fail(LT_E_FORMAT, "%s: %u windows of %u bytes; want 1 .. %d of %d", name, count,
                       size, MOST, WINDOW);
    return LT_OK;
}

static lt_status decode(lt_lzw *w, const uint8_t *file, size_t file_bytes, const char *name,
                        char *out, size_t *bytes)
{
    const uint32_t count = number_at(file, COUNT_AT);
    for (uint32_t i = 0; i < count; i++) {
        const size_t begin = number_at(file, TABLE_AT + (size_t)i * NUMBER),
                     end = i + 1 == count ? file_bytes
                                          : number_at(file, TABLE_AT + (size_t)(i + 1) * NUMBER);
        const int64_t got =
            begin > end || end > file_bytes
                ? -1
                : lt_lzw_decode(w, file + begin, end - begin, (uint8_t *)out + *bytes, WINDOW);
        if (got < 0)
            return lt_fail(LT_E_FORMAT, "%s: window %u of %u is damaged", name, i, count);
        *bytes += (size_t)got;
    }
    return LT_OK;
}

lt_status lt_kjv_decode(const void *file, size_t file_bytes, const char *name, char **out,
                        size_t *bytes)
{
    LT_TRY(check(file, file_bytes, name));
    *bytes = 0;
    char *text = lt_alloc(number_at(file, COUNT_AT), WINDOW);
    lt_lzw *w = lt_alloc(1, sizeof *w);
    lt_status st = text && w ? decode(w, file, file_bytes, name, text, bytes) : LT_E_NOMEM;
    lt_free(w);
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
