/* Wire format of protocol buffers: protobuf.dev/programming-guides/encoding. */

#include "lather/protobuf.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <limits.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5, TYPE_BITS = 3, TYPES = 7 };
enum { GROUP = 7, MORE = 0x80, LOW = 0x7F, BYTE = 8, WORD = 64 }; /* bits and masks of varints */
enum { LENGTH_BYTES = 5 };

/* --- Reading --- */

bool lt_protobuf_varint(lt_protobuf *p, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < WORD && p->at < p->end; shift += GROUP) {
        uint8_t byte = *p->at++;
        *value |= (uint64_t)(byte & LOW) << shift;
        if (!(byte & MORE))
            return true;
    }
    return false;
}

static bool read_fixed(lt_protobuf *p, int bytes, uint64_t *value)
{
    if (p->end - p->at < bytes)
        return false;
    for (int i = 0; i < bytes; i++)
        *value |= (uint64_t)*p->at++ << (BYTE * i);
    return true;
}

static bool read_length_delimited(lt_protobuf *p, lt_protobuf_field *f)
{
    uint64_t bytes;
    if (!lt_protobuf_varint(p, &bytes) || bytes > (uint64_t)(p->end - p->at))
        return false;
    f->data = (lt_protobuf){p->at, p->at + bytes};
    p->at += bytes;
    return true;
}

static bool read_field(lt_protobuf *p, lt_protobuf_field *f)
{
    uint64_t tag;
    if (!lt_protobuf_varint(p, &tag))
        return false;
    f->number = tag >> TYPE_BITS;
    switch (tag & TYPES) {
    case VARINT:
        return lt_protobuf_varint(p, &f->value);
    case FIXED64:
        return read_fixed(p, sizeof(uint64_t), &f->value);
    case FIXED32:
        return read_fixed(p, sizeof(uint32_t), &f->value);
    case LENGTH:
        return read_length_delimited(p, f);
    default:
        return false;
    }
}

bool lt_protobuf_next(lt_protobuf *message, lt_protobuf_field *field, bool *broken)
{
    *field = (lt_protobuf_field){0};
    if (*broken || message->at >= message->end)
        return false;
    *broken = !read_field(message, field);
    return !*broken;
}

/* --- Writing --- */

static void put_bytes(lt_protobuf_writer *w, const void *bytes, size_t count)
{
    w->failed = w->failed || LT_GROW(&w->bytes, &w->capacity, w->size + count);
    if (w->failed)
        return;
    if (count)
        memcpy(w->bytes + w->size, bytes, count);
    w->size += count;
}

static void put_varint(lt_protobuf_writer *w, uint64_t value)
{
    uint8_t bytes[WORD / GROUP + 1];
    size_t count = 0;
    for (; value > LOW; value >>= GROUP)
        bytes[count++] = (uint8_t)(value | MORE);
    bytes[count++] = (uint8_t)value;
    put_bytes(w, bytes, count);
}

static void put_tag(lt_protobuf_writer *w, int field, int type)
{
    put_varint(w, (uint64_t)field << TYPE_BITS | (uint64_t)type);
}

/* Reserves five bytes for the length, which is known at the end: a valid varint of up to 32 bits. */
void lt_protobuf_begin(lt_protobuf_writer *w, int field)
{
    static const uint8_t reserved[LENGTH_BYTES];
    LT_ASSERT(w->depth < LT_PROTOBUF_DEPTH);
    put_tag(w, field, LENGTH);
    put_bytes(w, reserved, sizeof reserved);
    w->open[w->depth++] = w->size;
}

void lt_protobuf_end(lt_protobuf_writer *w)
{
    LT_ASSERT(w->depth > 0);
    size_t begin = w->open[--w->depth], length = w->size - begin;
    for (size_t i = 0; i < LENGTH_BYTES && !w->failed; i++, length >>= GROUP)
        w->bytes[begin - LENGTH_BYTES + i] =
            (uint8_t)((length & LOW) | (i < LENGTH_BYTES - 1 ? MORE : 0));
}

void lt_protobuf_integer(lt_protobuf_writer *w, int field, uint64_t value)
{
    put_tag(w, field, VARINT);
    put_varint(w, value);
}

static void put_fixed(lt_protobuf_writer *w, uint64_t word, int bytes)
{
    for (int i = 0; i < bytes; i++, word >>= BYTE)
        put_bytes(w, &(uint8_t){(uint8_t)word}, 1);
}

void lt_protobuf_float(lt_protobuf_writer *w, int field, float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    put_tag(w, field, FIXED32);
    put_fixed(w, word, sizeof word);
}

void lt_protobuf_double(lt_protobuf_writer *w, int field, double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    put_tag(w, field, FIXED64);
    put_fixed(w, word, sizeof word);
}

void lt_protobuf_data(lt_protobuf_writer *w, int field, const void *data, size_t bytes)
{
    put_tag(w, field, LENGTH);
    put_varint(w, bytes);
    put_bytes(w, data, bytes);
}

void lt_protobuf_text(lt_protobuf_writer *w, int field, const char *text)
{
    lt_protobuf_data(w, field, text, strlen(text));
}

lt_status lt_protobuf_save(const lt_protobuf_writer *w, const char *path)
{
    LT_ASSERT(!w->depth);
    if (w->failed)
        return lt_fail(LT_E_NOMEM, "%s: no memory for %zu bytes", path, w->size);
    if (w->size > INT_MAX)
        return lt_fail(LT_E_UNSUPPORTED, "%s: %zu bytes, at most %d fit", path, w->size, INT_MAX);
    return lt_file_save(path, w->bytes, w->size);
}

void lt_protobuf_clear(lt_protobuf_writer *w)
{
    lt_free(w->bytes);
    *w = (lt_protobuf_writer){0};
}
