/* Reads the tar format: blocks of 512 bytes, a header before each member. Formats: POSIX.1-1988 (ustar); pax
 * (POSIX.1-2001: a member of type x has the name and the size of the next member); GNU's long names (type L) and binary
 * numbers. */

#include "data/datasets/tar_scan.h"

#include "base/alloc.h"
#include "data/files/files.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK = 512, NAME = 100, PREFIX = 155, MAX_EXTRA = 1 << 20 };

typedef struct header {
    char name[NAME], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[NAME];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[PREFIX], rest[12];
} header;
_Static_assert(sizeof(header) == BLOCK, "a header is a block");

typedef struct scan {
    int fd;
    const char *path;
    uint64_t at, end; /* offset of the next header; size of the file */
    char *long_name;  /* owned; name of the next member, NULL if in its header */
    bool has_size;
    uint64_t size; /* pax size of the next member, if has_size */
    char short_name[NAME + PREFIX + 2];
} scan;

static lt_status read_bytes(const scan *s, void *to, size_t bytes, uint64_t offset)
{
    lt_status st = lt_read_at(s->fd, s->path, to, bytes, offset);
    return st == LT_E_FORMAT ? lt_fail(
               LT_E_FORMAT, "%s: the tar file ends within a member at %" PRIu64, s->path, s->at)
                             : st;
}

/* Parses octal digits, or a GNU binary number: big-endian, with bit 7 of the first byte set. */
static bool parse_number(const char *field, size_t bytes, uint64_t *out)
{
    const unsigned char *f = (const unsigned char *)field;
    uint64_t value = 0;
    if (f[0] & 0x80) {
        value = f[0] & 0x7f;
        for (size_t i = 1; i < bytes; i++) {
            if (value >> 55)
                return false;
            value = value << 8 | f[i];
        }
        *out = value;
        return true;
    }
    size_t i = 0, digits = 0;
    while (i < bytes && f[i] == ' ')
        i++;
    for (; i < bytes && f[i] >= '0' && f[i] <= '7'; i++, digits++)
        value = value << 3 | (uint64_t)(f[i] - '0');
    *out = value;
    return digits && (i == bytes || f[i] == 0 || f[i] == ' ');
}

/* Compares the checksum: the sum of the header's bytes, with the checksum field taken as blanks. */
static bool checksum_holds(const header *h)
{
    const unsigned char *bytes = (const unsigned char *)h;
    size_t first = offsetof(header, checksum);
    uint64_t sum = 0, stored;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= first && i < first + sizeof h->checksum ? ' ' : bytes[i];
    return parse_number(h->checksum, sizeof h->checksum, &stored) && stored == sum;
}

static bool is_zero(const header *h)
{
    static const header zero;
    return !memcmp(h, &zero, BLOCK);
}

/* Stores PREFIX/NAME (ustar) or NAME in s->short_name. The fields may lack a NUL. */
static void join_name(scan *s, const header *h)
{
    bool ustar =
        !memcmp(h->magic, "ustar", 6); /* in GNU's magic a blank follows; it has no prefix */
    size_t prefix = ustar ? strnlen(h->prefix, PREFIX) : 0, name = strnlen(h->name, NAME), at = 0;
    if (prefix) {
        memcpy(s->short_name, h->prefix, prefix);
        s->short_name[prefix] = '/';
        at = prefix + 1;
    }
    memcpy(s->short_name + at, h->name, name);
    s->short_name[at + name] = 0;
}

/* Reads a member that describes the next one; adds a NUL. */
static lt_status read_extension_data(const scan *s, uint64_t size, char **out)
{
    if (size > MAX_EXTRA)
        return lt_fail(LT_E_FORMAT,
                       "%s: extended header of %" PRIu64 " bytes at %" PRIu64 ", want at most %d",
                       s->path, size, s->at, MAX_EXTRA);
    char *text;
    LT_TRY(LT_ALLOC(&text, (size_t)size + 1));
    lt_status st = read_bytes(s, text, (size_t)size, s->at + BLOCK);
    if (st) {
        lt_free(text);
        return st;
    }
    *out = text;
    return LT_OK;
}

static lt_status set_long_name(scan *s, const char *name, size_t bytes)
{
    char *copy;
    LT_TRY(LT_ALLOC(&copy, bytes + 1));
    memcpy(copy, name, bytes);
    lt_free(s->long_name);
    s->long_name = copy;
    return LT_OK;
}

/* Parses pax records: "LENGTH KEY=VALUE\n", where LENGTH is the length of the record. */
static lt_status read_pax(scan *s, const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        char *end;
        unsigned long long length = strtoull(text + at, &end, 10);
        size_t head = (size_t)(end - (text + at)) + 1;
        if (*end != ' ' || length > size - at || length < head + 2 || text[at + length - 1] != '\n')
            return lt_fail(LT_E_FORMAT, "%s: invalid extended header at %" PRIu64, s->path, s->at);
        const char *record = text + at + head, *last = text + at + length - 1;
        if (!strncmp(record, "path=", 5))
            LT_TRY(set_long_name(s, record + 5, (size_t)(last - record - 5)));
        if (!strncmp(record, "size=", 5)) {
            s->size = strtoull(record + 5, NULL, 10);
            s->has_size = true;
        }
        at += length;
    }
    return LT_OK;
}

static lt_status read_next_member_info(scan *s, char type, uint64_t size)
{
    char *text = NULL;
    LT_TRY(read_extension_data(s, size, &text));
    lt_status st = type == 'L' ? set_long_name(s, text, strnlen(text, (size_t)size))
                               : read_pax(s, text, (size_t)size);
    lt_free(text);
    return st;
}

static void clear_next_member_info(scan *s)
{
    lt_free(s->long_name);
    s->long_name = NULL;
    s->has_size = false;
}

static lt_tar_kind kind_of(char type)
{
    return type == '0' || !type         ? LT_TAR_FILE
           : type == '5'                ? LT_TAR_FOLDER
           : type == '1' || type == '2' ? LT_TAR_LINK
                                        : LT_TAR_OTHER;
}

static lt_status scan_member(scan *s, const header *h, lt_tar_visit *visit, void *context)
{
    uint64_t size;
    bool describes = h->type == 'L' || h->type == 'x';
    if (!s->at && !memcmp(h->name, "\x1f\x8b", 2))
        return lt_fail(
            LT_E_FORMAT,
            "%s: compressed by gzip, but images are read by offset; unpack it: gzip -dc <FILE "
            ">NEW.tar",
            s->path);
    if (!checksum_holds(h) || !parse_number(h->size, sizeof h->size, &size))
        return lt_fail(LT_E_FORMAT, "%s: no valid tar header at %" PRIu64, s->path, s->at);
    if (!describes && s->has_size)
        size = s->size;
    if (size > s->end - s->at - BLOCK)
        return lt_fail(LT_E_FORMAT,
                       "%s: the tar file ends within a member of %" PRIu64 " bytes at %" PRIu64
                       "; the file has %" PRIu64 " bytes",
                       s->path, size, s->at + BLOCK, s->end);
    if (describes) {
        LT_TRY(read_next_member_info(s, h->type, size));
    } else {
        join_name(s, h);
        const lt_tar_member m = {.name = s->long_name ? s->long_name : s->short_name,
                                 .offset = s->at + BLOCK,
                                 .size = size,
                                 .kind = kind_of(h->type)};
        LT_TRY(visit(context, &m));
        clear_next_member_info(s);
    }
    s->at += BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
    return LT_OK;
}

lt_status lt_tar_scan(int fd, const char *path, lt_tar_visit *visit, void *context)
{
    struct stat info;
    if (fstat(fd, &info))
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    scan s = {.fd = fd, .path = path, .end = (uint64_t)info.st_size};
    lt_status st = LT_OK;
    while (!st && s.at < s.end) {
        header h;
        st = read_bytes(&s, &h, BLOCK, s.at);
        if (!st && is_zero(&h))
            break;
        if (!st)
            st = scan_member(&s, &h, visit, context);
    }
    clear_next_member_info(&s);
    return st;
}
