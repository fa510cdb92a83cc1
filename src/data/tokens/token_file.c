/* Reads and writes token files. Reads ids with pread(): truncation is an error, whereas a mapped file would raise
 * SIGBUS. */

#include "data/tokens/token_file.h"

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "base/file.h"
#include "data/files/files.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(lt_token_header) == 72, "the struct has no padding");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files need a little-endian machine"
#endif

enum { ALIGN = 64, MOST_NAME = 1 << 24 }; /* bytes */

static uint64_t chunks_of(uint64_t count)
{
    return count / LT_TOKEN_CHUNK + (count % LT_TOKEN_CHUNK != 0);
}

/* --- Reading --- */

bool lt_is_token_file(const char *path)
{
    char magic[sizeof((lt_token_header *)0)->magic];
    struct stat info;
    int fd = -1;
    if (lt_file_open_descriptor(&fd, &info, path))
        return false;
    const bool is = info.st_size >= (off_t)sizeof magic
                    && !lt_read_at(fd, path, magic, sizeof magic, 0)
                    && !memcmp(magic, LT_TOKEN_MAGIC, sizeof magic);
    close(fd);
    return is;
}

static lt_status check_fields(const lt_token_header *h, const char *path)
{
    if (memcmp(h->magic, LT_TOKEN_MAGIC, sizeof h->magic) != 0)
        return lt_fail(LT_E_FORMAT, "%s: not a token file", path);
    if (h->order != LT_TOKEN_ORDER || h->version != LT_TOKEN_VERSION)
        return lt_fail(LT_E_FORMAT, "%s: token file has version %u, this program reads %d", path,
                       h->version, LT_TOKEN_VERSION);
    if (h->self_crc != lt_crc32c(0, h, offsetof(lt_token_header, self_crc)))
        return lt_fail(LT_E_FORMAT, "%s: the header is corrupt (wrong checksum)", path);
    if (!h->size || h->size > INT_MAX || h->end >= h->size || (h->width != 2 && h->width != 4)
        || !h->name_bytes || h->name_bytes > MOST_NAME)
        return lt_fail(LT_E_FORMAT,
                       "%s: invalid header: a vocabulary of %u ids of %u bytes, end of text %u, a "
                       "name of %u bytes",
                       path, h->size, h->width, h->end, h->name_bytes);
    return LT_OK;
}

static lt_status check_size(const lt_token_header *h, const char *path, uint64_t file_size)
{
    const uint64_t table = chunks_of(h->count) * sizeof(uint32_t);
    if (h->count > file_size / h->width || h->ids < sizeof *h + h->name_bytes || h->ids > file_size
        || h->ids + h->count * h->width + table != file_size)
        return lt_fail(LT_E_FORMAT,
                       "%s: the file has %" PRIu64 " bytes; its header has %" PRIu64
                       " ids of %u bytes from %" PRIu64 " on",
                       path, file_size, h->count, h->width, h->ids);
    return LT_OK;
}

static lt_status read_table(lt_token_file *f)
{
    const lt_token_header *h = &f->header;
    const size_t table = (size_t)chunks_of(h->count) * sizeof *f->table;
    f->name = lt_alloc(h->name_bytes, 1);
    f->table = lt_alloc(table + 1, 1);
    if (!f->name || !f->table)
        return LT_E_NOMEM;
    LT_TRY(lt_read_at(f->fd, f->path, f->name, h->name_bytes, sizeof *h));
    LT_TRY(lt_read_at(f->fd, f->path, f->table, table, h->ids + h->count * h->width));
    if (lt_crc32c(lt_crc32c(0, f->name, h->name_bytes), f->table, table) != h->crc
        || f->name[h->name_bytes - 1])
        return lt_fail(LT_E_FORMAT, "%s: the name or the table is corrupt (wrong checksum)",
                       f->path);
    return LT_OK;
}

lt_status lt_token_file_open(lt_token_file *f, const char *path)
{
    struct stat info;
    f->path = lt_strdup(path);
    if (!f->path)
        return LT_E_NOMEM;
    LT_TRY(lt_file_open_descriptor(&f->fd, &info, path));
    if (info.st_size < (off_t)sizeof f->header)
        return lt_fail(LT_E_FORMAT, "%s: %lld bytes are too few for a token file", path,
                       (long long)info.st_size);
    LT_TRY(lt_read_at(f->fd, path, &f->header, sizeof f->header, 0));
    LT_TRY(check_fields(&f->header, path));
    LT_TRY(check_size(&f->header, path, (uint64_t)info.st_size));
    return read_table(f);
}

void lt_token_file_close(lt_token_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    lt_free(f->path);
    lt_free(f->name);
    lt_free(f->table);
    *f = (lt_token_file){.fd = -1};
}

/* Converts count ids of a chunk to int32_t. first: index of the first one in the file, for messages. */
static lt_status convert_ids_to_i32(const lt_token_file *f, const void *chunk, int64_t first,
                                    int64_t count, int32_t *out)
{
    const uint16_t *narrow = chunk;
    const uint32_t *wide = chunk;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t id = f->header.width == sizeof *narrow ? narrow[i] : wide[i];
        if (id >= f->header.size)
            return lt_fail(LT_E_FORMAT, "%s: id %u at index %" PRId64 "; the vocabulary has %u ids",
                           f->path, id, first + i, f->header.size);
        out[i] = (int32_t)id;
    }
    return LT_OK;
}

lt_status lt_token_file_read(const lt_token_file *f, int64_t first, int64_t count, int32_t *out)
{
    const lt_token_header *h = &f->header;
    const int64_t all = (int64_t)h->count;
    uint32_t chunk[LT_TOKEN_CHUNK];
    LT_ASSERT(first >= 0 && count >= 0 && count <= all - first);
    while (count > 0) {
        const int64_t number = first / LT_TOKEN_CHUNK, begin = number * LT_TOKEN_CHUNK;
        const int64_t size = all - begin < LT_TOKEN_CHUNK ? all - begin : LT_TOKEN_CHUNK;
        const int64_t left = begin + size - first, take = count < left ? count : left;
        const size_t bytes = (size_t)size * h->width;
        LT_TRY(lt_read_at(f->fd, f->path, chunk, bytes, h->ids + (uint64_t)begin * h->width));
        if (lt_crc32c(0, chunk, bytes) != f->table[number])
            return lt_fail(LT_E_FORMAT,
                           "%s: ids %" PRId64 " .. %" PRId64 " are corrupt (wrong checksum)",
                           f->path, begin, begin + size - 1);
        LT_TRY(convert_ids_to_i32(f, (const char *)chunk + (size_t)(first - begin) * h->width,
                                  first, take, out));
        first += take;
        count -= take;
        out += take;
    }
    return LT_OK;
}

/* --- Writing --- */

static lt_status write_at(const lt_token_writer *w, const void *from, size_t bytes, uint64_t offset)
{
    return lt_write_at(fileno(w->file.file), w->file.path, from, bytes, offset);
}

lt_status lt_token_writer_open(lt_token_writer *w, const char *path, const lt_vocabulary *v)
{
    const size_t name = strlen(v->tokenizer) + 1;
    *w = (lt_token_writer){.vocabulary = *v};
    if (v->end < 0)
        return lt_fail(LT_E_ARG, "%s: the vocabulary of %s has no end-of-text id", path,
                       v->tokenizer);
    if (name > MOST_NAME)
        return lt_fail(LT_E_ARG, "%s: the name of the tokenizer has %zu bytes, want at most %d",
                       path, name, MOST_NAME);
    w->header = (lt_token_header){.magic = {'L', 'A', 'T', 'H', 'T', 'O', 'K', 'S'},
                                  .version = LT_TOKEN_VERSION,
                                  .order = LT_TOKEN_ORDER,
                                  .hash = v->hash,
                                  .size = (uint32_t)v->size,
                                  .end = (uint32_t)v->end,
                                  .width = v->size <= UINT16_MAX + 1 ? 2 : 4,
                                  .name_bytes = (uint32_t)name,
                                  .ids = (sizeof w->header + name + ALIGN - 1) / ALIGN * ALIGN};
    w->chunk = lt_alloc(LT_TOKEN_CHUNK, w->header.width);
    lt_status st = w->chunk ? lt_replacement_open(&w->file, path) : LT_E_NOMEM;
    if (st)
        lt_token_writer_abandon(w);
    return st;
}

static lt_status write_chunk(lt_token_writer *w)
{
    const lt_token_header *h = &w->header;
    const size_t bytes = w->used * h->width;
    if (!w->used)
        return LT_OK;
    LT_TRY(LT_GROW(&w->table, &w->capacity, w->chunks + 1));
    w->table[w->chunks++] = lt_crc32c(0, w->chunk, bytes);
    w->used = 0;
    return write_at(w, w->chunk, bytes, h->ids + (h->count - bytes / h->width) * h->width);
}

lt_status lt_token_writer_add(lt_token_writer *w, const int32_t *id, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t wide = (uint32_t)id[i];
        LT_ASSERT(wide < w->header.size);
        memcpy(w->chunk + w->used * w->header.width, &wide, w->header.width); /* little-endian */
        w->used++;
        w->header.count++;
        if (w->used == LT_TOKEN_CHUNK)
            LT_TRY(write_chunk(w));
    }
    return LT_OK;
}

lt_status lt_token_writer_begin_document(lt_token_writer *w)
{
    const int32_t end = (int32_t)w->header.end;
    w->header.documents++;
    return lt_token_writer_add(w, &end, 1);
}

static lt_status write_header_and_table(lt_token_writer *w)
{
    static const char zeros[ALIGN];
    lt_token_header *h = &w->header;
    const char *name = w->vocabulary.tokenizer;
    const uint64_t name_end = sizeof *h + h->name_bytes;
    LT_TRY(write_chunk(w));
    const size_t table = w->chunks * sizeof *w->table;
    h->crc = lt_crc32c(lt_crc32c(0, name, h->name_bytes), w->table, table);
    h->self_crc = lt_crc32c(0, h, offsetof(lt_token_header, self_crc));
    LT_TRY(write_at(w, w->table, table, h->ids + h->count * h->width));
    LT_TRY(write_at(w, name, h->name_bytes, sizeof *h));
    LT_TRY(write_at(w, zeros, h->ids - name_end, name_end));
    return write_at(w, h, sizeof *h, 0);
}

lt_status lt_token_writer_finish(lt_token_writer *w)
{
    lt_status st = lt_replacement_close(&w->file, write_header_and_table(w), true);
    lt_token_writer_abandon(w);
    return st;
}

void lt_token_writer_abandon(lt_token_writer *w)
{
    if (w->file.file)
        (void)!lt_replacement_close(&w->file, LT_END, false);
    lt_free(w->chunk);
    lt_free(w->table);
    *w = (lt_token_writer){0};
}
