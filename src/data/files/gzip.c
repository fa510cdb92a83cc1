/* Reads plain and gzip streams with zlib, or plain ones with its stub no_zlib/zlib.h. */

#include "base/alloc.h"
#include "base/file.h"
#include "data/files/files.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    DEFLATE_RATIO = 1032,   /* largest possible ratio: 258 bytes from 2 bits (RFC 1951, 3.2.5) */
    USUAL_RATIO = 100,      /* largest accepted ratio of a large file; MNIST has 5 */
    SMALL = 256 * (1 << 20) /* bytes that any file may inflate to, if DEFLATE_RATIO permits */
};

struct lt_stream_in {
    gzFile file;
    uint64_t bound;
    char path[]; /* for messages */
};

lt_status lt_file_stream_open(lt_stream_in **out, const char *path)
{
    struct stat info;
    int fd;
    LT_TRY(lt_file_open_descriptor(&fd, &info, path));
    size_t length = strlen(path) + 1;
    lt_stream_in *in = lt_alloc(sizeof *in + length, 1);
    if (in)
        in->file = gzdopen(fd, "rb");
    if (!in || !in->file) {
        close(fd);
        lt_free(in);
        return lt_fail(LT_E_NOMEM, "%s: no memory for a stream", path);
    }
    memcpy(in->path, path, length);
    in->bound = (uint64_t)info.st_size;
    const bool is_gzip = !gzdirect(in->file);
    if (is_gzip && !*zlibVersion()) {
        lt_file_stream_close(&in);
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: reading gzip needs zlib, which this build lacks (meson option 'zlib')",
                       path);
    }
    if (is_gzip) {
        uint64_t usual = in->bound * USUAL_RATIO, best = in->bound * DEFLATE_RATIO;
        in->bound = usual > SMALL ? usual : best < SMALL ? best : SMALL;
    }
    *out = in;
    return LT_OK;
}

lt_status lt_file_stream_read(lt_stream_in *in, void *to, size_t bytes)
{
    unsigned char *at = to;
    while (bytes > 0) {
        unsigned ask = bytes > INT_MAX ? INT_MAX : (unsigned)bytes;
        int got = gzread(in->file, at, ask);
        int code = Z_OK;
        if (got < 0) {
            const char *why = gzerror(in->file, &code);
            return lt_fail(code == Z_ERRNO ? LT_E_IO : LT_E_FORMAT, "%s: %s", in->path, why);
        }
        if (got == 0)
            return lt_fail(LT_E_FORMAT, "%s: the file ends too early", in->path);
        at += got;
        bytes -= (size_t)got;
    }
    return LT_OK;
}

bool lt_file_stream_at_end(lt_stream_in *in)
{
    return gzgetc(in->file) == -1;
}

uint64_t lt_file_stream_size_bound(const lt_stream_in *in)
{
    return in->bound;
}

void lt_file_stream_close(lt_stream_in **in)
{
    lt_stream_in *s = *in;
    *in = NULL;
    if (!s)
        return;
    gzclose(s->file);
    lt_free(s);
}
