/* PKWARE's APPNOTE.TXT 6.3: the end record at the file's end gives the central directory, whose entries give the local
 * headers, after which the data are; sizes and offsets beyond 32 bits are in the ZIP64 records. */

#include "tensor/weight_file/zip.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <string.h>

enum {
    END_BYTES = 22,
    MAX_COMMENT = 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    FIELD_BYTES = 4 /* identifier and length of an extra field */
};
#define END_SIGNATURE     0x06054b50u
#define LOCATOR_SIGNATURE 0x07064b50u
#define END64_SIGNATURE   0x06064b50u
#define ENTRY_SIGNATURE   0x02014b50u
#define LOCAL_SIGNATURE   0x04034b50u
#define IN_ZIP64          UINT32_MAX

typedef struct archive {
    const char *path, *map;
    uint64_t size;
} archive;

static uint64_t number(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | (unsigned char)at[i];
    return value;
}

static bool has(const archive *a, uint64_t offset, uint64_t bytes)
{
    return offset <= a->size && bytes <= a->size - offset;
}

static lt_status fail(const archive *a, const char *what)
{
    return lt_fail(LT_E_FORMAT, "%s: ZIP archive of %llu bytes: %s", a->path,
                   (unsigned long long)a->size, what);
}

/* Finds the end record, which only a comment may follow. */
static lt_status find_end(const archive *a, uint64_t *offset)
{
    for (uint64_t i = END_BYTES; i <= a->size && i <= END_BYTES + MAX_COMMENT; i++)
        if (number(a->map + (a->size - i), 4) == END_SIGNATURE) {
            *offset = a->size - i;
            return LT_OK;
        }
    return fail(a, "no directory at its end: truncated");
}

/* Reads offset and size of the central directory. */
static lt_status find_directory(const archive *a, uint64_t *offset, uint64_t *bytes)
{
    uint64_t end = 0;
    LT_TRY(find_end(a, &end));
    *bytes = number(a->map + end + 12, 4);
    *offset = number(a->map + end + 16, 4);
    const char *locator = end >= LOCATOR_BYTES ? a->map + (end - LOCATOR_BYTES) : NULL;
    if (locator && number(locator, 4) == LOCATOR_SIGNATURE) {
        const uint64_t at = number(locator + 8, 8);
        if (!has(a, at, END64_BYTES) || number(a->map + at, 4) != END64_SIGNATURE)
            return fail(a, "its ZIP64 record is outside the file");
        *bytes = number(a->map + at + 40, 8);
        *offset = number(a->map + at + 48, 8);
    }
    return has(a, *offset, *bytes) ? LT_OK : fail(a, "its directory is outside the file");
}

/* Replaces the fields that do not fit in 32 bits by those of the ZIP64 extra field, in this order. */
static lt_status read_zip64(const archive *a, const char *extra, uint64_t bytes,
                            uint64_t *const field[3])
{
    while (bytes >= FIELD_BYTES) {
        const uint64_t id = number(extra, 2), length = number(extra + 2, 2);
        extra += FIELD_BYTES;
        bytes -= FIELD_BYTES;
        if (length > bytes)
            break;
        for (uint64_t i = 0, at = 0; id == 1 && i < 3 && at + 8 <= length; i++)
            if (*field[i] == IN_ZIP64) {
                *field[i] = number(extra + at, 8);
                at += 8;
            }
        extra += length;
        bytes -= length;
    }
    return *field[2] == IN_ZIP64 ? fail(a, "a member without offset") : LT_OK;
}

/* Finds the data of a member after its local header. */
static lt_status find_data(const archive *a, lt_zip_member *m, uint64_t local, uint64_t bytes)
{
    if (!has(a, local, LOCAL_BYTES) || number(a->map + local, 4) != LOCAL_SIGNATURE)
        return fail(a, "a member without local header");
    const uint64_t data =
        local + LOCAL_BYTES + number(a->map + local + 26, 2) + number(a->map + local + 28, 2);
    if (!has(a, data, bytes))
        return lt_fail(LT_E_FORMAT, "%s: '%.*s': %llu bytes at %llu, outside the file of %llu",
                       a->path, (int)(m->name_bytes < 100 ? m->name_bytes : 100), m->name,
                       (unsigned long long)bytes, (unsigned long long)data,
                       (unsigned long long)a->size);
    m->data = a->map + data;
    m->bytes = (size_t)bytes;
    return LT_OK;
}

/* Reads the entry at *offset of the central directory, and advances *offset. */
static lt_status read_entry(lt_zip *zip, const archive *a, uint64_t *offset)
{
    const char *entry = a->map + *offset;
    if (!has(a, *offset, ENTRY_BYTES) || number(entry, 4) != ENTRY_SIGNATURE)
        return fail(a, "an invalid entry in its directory");
    const uint64_t name = number(entry + 28, 2), extra = number(entry + 30, 2);
    const uint64_t length = ENTRY_BYTES + name + extra + number(entry + 32, 2);
    if (!has(a, *offset, length))
        return fail(a, "an entry of its directory outside the file");
    *offset += length;
    uint64_t bytes = number(entry + 24, 4), stored = number(entry + 20, 4);
    uint64_t local = number(entry + 42, 4);
    LT_TRY(read_zip64(a, entry + ENTRY_BYTES + name, extra,
                      (uint64_t *const[3]){&bytes, &stored, &local}));
    LT_TRY(LT_GROW(&zip->member, &zip->capacity, zip->count + 1));
    lt_zip_member *m = &zip->member[zip->count++];
    *m = (lt_zip_member){.name = entry + ENTRY_BYTES, .name_bytes = (size_t)name};
    const bool is_stored = !(number(entry + 8, 2) & 1) && !number(entry + 10, 2) && bytes == stored;
    return is_stored ? find_data(a, m, local, bytes) : LT_OK;
}

static int compare(const void *a, const void *b)
{
    const lt_zip_member *x = a, *y = b;
    const size_t bytes = x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes;
    const int order = memcmp(x->name, y->name, bytes);
    return order ? order : (x->name_bytes > y->name_bytes) - (x->name_bytes < y->name_bytes);
}

lt_status lt_zip_open(lt_zip *zip, const char *path, const char *map, size_t size)
{
    const archive a = {path, map, size};
    uint64_t offset = 0, bytes = 0;
    LT_TRY(find_directory(&a, &offset, &bytes));
    for (const uint64_t end = offset + bytes; offset < end;)
        LT_TRY(read_entry(zip, &a, &offset));
    if (zip->count)
        qsort(zip->member, zip->count, sizeof *zip->member, compare);
    for (size_t i = 1; i < zip->count; i++)
        if (!compare(&zip->member[i - 1], &zip->member[i]))
            return fail(&a, "two members have one name");
    return LT_OK;
}

const lt_zip_member *lt_zip_find(const lt_zip *zip, const char *name, size_t bytes)
{
    const lt_zip_member key = {.name = name, .name_bytes = bytes};
    return zip->count ? bsearch(&key, zip->member, zip->count, sizeof key, compare) : NULL;
}

const lt_zip_member *lt_zip_find_below(const lt_zip *zip, const char *name)
{
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < zip->count; i++) {
        const lt_zip_member *m = &zip->member[i];
        const char *slash = memchr(m->name, '/', m->name_bytes);
        const size_t folder = slash ? (size_t)(slash - m->name) + 1 : 0;
        if (slash && m->name_bytes - folder == bytes && !memcmp(m->name + folder, name, bytes))
            return m;
    }
    return NULL;
}
