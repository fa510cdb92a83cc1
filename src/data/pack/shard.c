/* Reads and writes the shard files of a pack. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/encoding/crc32c.h"
#include "base/file.h"
#include "data/files/files.h"
#include "data/pack/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(lt_pack_header) == 64 && sizeof(lt_pack_entry) == 48,
               "structs have no padding");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packs need a little-endian machine"
#endif

char *lt_pack_shard_path(const char *folder, int64_t index)
{
    return lt_format("%s/shard-%05" PRId64 ".pack", folder, index);
}

/* --- Reading --- */

static lt_status check_header(const lt_pack_header *h, const char *path, uint64_t file_size)
{
    if (memcmp(h->magic, LT_PACK_MAGIC, sizeof h->magic) != 0)
        return lt_fail(LT_E_FORMAT, "%s: not a shard of a pack", path);
    if (h->order != LT_PACK_ORDER || h->version != LT_PACK_VERSION)
        return lt_fail(LT_E_FORMAT, "%s: shard has version %u, this program reads %d", path,
                       h->version, LT_PACK_VERSION);
    if (h->self_crc != lt_crc32c(0, h, offsetof(lt_pack_header, self_crc)))
        return lt_fail(LT_E_FORMAT, "%s: the header is corrupt (wrong checksum)", path);
    uint64_t table = h->count * sizeof(lt_pack_entry);
    if (h->count > file_size / sizeof(lt_pack_entry) || h->table > file_size
        || h->text != h->table + table || h->text + h->text_size != file_size)
        return lt_fail(LT_E_FORMAT,
                       "%s: the file has %" PRIu64 " bytes, but %" PRIu64
                       " according to its header",
                       path, file_size, h->text + h->text_size);
    return LT_OK;
}

/* Checks that every record is before the table and every name inside the text. */
static lt_status check_entries(const lt_pack_shard *s, const lt_pack_header *h, const char *path)
{
    if (s->count && (!s->text_size || s->text[s->text_size - 1]))
        return lt_fail(LT_E_FORMAT, "%s: the names are corrupt", path);
    for (size_t i = 0; i < s->count; i++) {
        const lt_pack_entry *e = &s->entry[i];
        if (e->offset > h->table || e->size > h->table - e->offset || e->name >= s->text_size
            || e->encoding > LT_ENCODING_PIXELS)
            return lt_fail(LT_E_FORMAT, "%s: table entry %zu points outside the file", path, i);
    }
    return LT_OK;
}

static lt_status read_table(lt_pack_shard *s, int fd, const char *path, const lt_pack_header *h)
{
    s->count = (size_t)h->count;
    s->text_size = (size_t)h->text_size;
    s->entry = lt_alloc(s->count + 1, sizeof *s->entry);
    s->text = lt_alloc(s->text_size + 1, 1);
    if (!s->entry || !s->text)
        return LT_E_NOMEM;
    LT_TRY(lt_read_at(fd, path, s->entry, s->count * sizeof *s->entry, h->table));
    LT_TRY(lt_read_at(fd, path, s->text, s->text_size, h->text));
    uint32_t crc = lt_crc32c(0, s->entry, s->count * sizeof *s->entry);
    if (lt_crc32c(crc, s->text, s->text_size) != h->crc)
        return lt_fail(LT_E_FORMAT, "%s: the table is corrupt (wrong checksum)", path);
    return check_entries(s, h, path);
}

static lt_status read_shard(lt_pack_shard *s, int fd, uint64_t size, const char *path,
                            uint64_t config_hash)
{
    lt_pack_header h;
    LT_TRY(lt_read_at(fd, path, &h, sizeof h, 0));
    LT_TRY(check_header(&h, path, size));
    if (config_hash && h.config_hash != config_hash)
        return lt_fail(LT_E_ARG,
                       "%s: made from other data or with other settings; write to another folder",
                       path);
    return read_table(s, fd, path, &h);
}

lt_status lt_pack_shard_load(lt_pack_shard *out, const char *path, uint64_t config_hash)
{
    int fd;
    struct stat info;
    LT_TRY(lt_file_open_descriptor(&fd, &info, path));
    lt_pack_shard s = {0};
    lt_status st = read_shard(&s, fd, (uint64_t)info.st_size, path, config_hash);
    close(fd);
    if (st)
        lt_pack_shard_clear(&s);
    else
        *out = s;
    return st;
}

void lt_pack_shard_clear(lt_pack_shard *shard)
{
    lt_free(shard->entry);
    lt_free(shard->text);
    *shard = (lt_pack_shard){0};
}

/* --- Writing --- */

static lt_status write_at(const lt_pack_writer *w, const void *from, size_t bytes, uint64_t offset)
{
    return lt_write_at(fileno(w->file.file), w->path, from, bytes, offset);
}

lt_status lt_pack_writer_open(lt_pack_writer *w, const char *path)
{
    *w = (lt_pack_writer){.path = path, .at = sizeof(lt_pack_header)};
    return lt_replacement_open(&w->file, path);
}

lt_status lt_pack_writer_add(lt_pack_writer *w, const lt_record *record, const char *name)
{
    lt_pack_shard *s = &w->shard;
    size_t bytes = strlen(name) + 1;
    LT_TRY(LT_GROW(&s->entry, &w->capacity, s->count + 1));
    LT_TRY(LT_GROW(&s->text, &w->text_capacity, s->text_size + bytes));
    LT_TRY(write_at(w, record->bytes, record->size, w->at));
    bool pixels = record->encoding == LT_ENCODING_PIXELS;
    s->entry[s->count++] = (lt_pack_entry){
        .offset = w->at,
        .size = record->size,
        .hash = lt_hash64(record->bytes, record->size),
        .label = (uint32_t)record->label,
        .name = (uint32_t)s->text_size,
        .width = pixels ? (uint32_t)record->width : 0,
        .height = pixels ? (uint32_t)record->height : 0,
        .channels = pixels ? (uint16_t)record->channels : 0,
        .encoding = (uint16_t)record->encoding,
    };
    memcpy(s->text + s->text_size, name, bytes);
    s->text_size += bytes;
    w->at += record->size;
    return LT_OK;
}

static lt_status write_header_and_table(lt_pack_writer *w, uint64_t config_hash)
{
    const lt_pack_shard *s = &w->shard;
    size_t table = s->count * sizeof *s->entry;
    lt_pack_header h = {.version = LT_PACK_VERSION,
                        .order = LT_PACK_ORDER,
                        .config_hash = config_hash,
                        .count = s->count,
                        .table = w->at,
                        .text = w->at + table,
                        .text_size = s->text_size};
    memcpy(h.magic, LT_PACK_MAGIC, sizeof h.magic);
    h.crc = lt_crc32c(lt_crc32c(0, s->entry, table), s->text, s->text_size);
    h.self_crc = lt_crc32c(0, &h, offsetof(lt_pack_header, self_crc));
    LT_TRY(write_at(w, s->entry, table, h.table));
    LT_TRY(write_at(w, s->text, s->text_size, h.text));
    return write_at(w, &h, sizeof h, 0);
}

lt_status lt_pack_writer_finish(lt_pack_writer *w, uint64_t config_hash)
{
    lt_status st = lt_replacement_close(&w->file, write_header_and_table(w, config_hash), true);
    if (!st)
        st = lt_sync_parent(w->path);
    lt_pack_writer_abandon(w);
    return st;
}

void lt_pack_writer_abandon(lt_pack_writer *w)
{
    if (w->file.file)
        (void)!lt_replacement_close(&w->file, LT_END, false);
    lt_pack_shard_clear(&w->shard);
    *w = (lt_pack_writer){0};
}
