/* Stub of gzip.c for builds without zlib: reads plain files only. */

#include "base/alloc.h"
#include "base/file.h"
#include "data/files/files.h"

#include <string.h>

struct lt_stream_in {
    FILE *file;
    uint64_t bound;
    char path[];
};

static lt_status check_plain(lt_stream_in *in)
{
    int a = getc(in->file), b = getc(in->file);
    rewind(in->file);
    if (a == 0x1F && b == 0x8B)
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: reading gzip needs zlib, which this build lacks (meson option 'zlib')",
                       in->path);
    return LT_OK;
}

lt_status lt_stream_open(lt_stream_in **out, const char *path)
{
    struct stat info;
    FILE *file;
    LT_TRY(lt_file_open(&file, path));
    size_t length = strlen(path) + 1;
    lt_stream_in *in = lt_alloc(sizeof *in + length, 1);
    if (!in) {
        fclose(file);
        return LT_E_NOMEM;
    }
    memcpy(in->path, path, length);
    in->file = file;
    in->bound = fstat(fileno(file), &info) ? 0 : (uint64_t)info.st_size;
    lt_status st = check_plain(in);
    if (st) {
        lt_stream_close(&in);
        return st;
    }
    *out = in;
    return LT_OK;
}

lt_status lt_stream_read(lt_stream_in *in, void *to, size_t bytes)
{
    if (fread(to, 1, bytes, in->file) == bytes)
        return LT_OK;
    if (ferror(in->file))
        return lt_fail(LT_E_IO, "%s: read error", in->path);
    return lt_fail(LT_E_FORMAT, "%s: the file ends too early", in->path);
}

bool lt_stream_ended(lt_stream_in *in)
{
    return getc(in->file) == EOF;
}

uint64_t lt_stream_bound(const lt_stream_in *in)
{
    return in->bound;
}

void lt_stream_close(lt_stream_in **in)
{
    lt_stream_in *s = *in;
    *in = NULL;
    if (!s)
        return;
    if (s->file)
        fclose(s->file);
    lt_free(s);
}
