/* Makes the files from repeated parts, which is fast. */

#include "bombs.h"

#include "golden.h"
#include "images.h"
#include "temp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct bytes {
    uint8_t *at;
    size_t size, capacity;
} bytes;

static void add(bytes *b, const void *from, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = 2 * (b->size + size);
        b->at = realloc(b->at, b->capacity);
        if (!b->at)
            abort();
    }
    memcpy(b->at + b->size, from, size);
    b->size += size;
}

static void add_text(bytes *b, const char *text)
{
    add(b, text, strlen(text));
}

static void add_big(bytes *b, uint32_t value)
{
    const uint8_t four[] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                            (uint8_t)value};
    add(b, four, sizeof four);
}

static uint8_t *finish(const bytes *b, size_t *size)
{
    *size = b->size;
    return b->at;
}

/* --- Deflate --- */

/* Adds begin and zeros as a zlib (format 15) or gzip (31) stream. A fully flushed part does not depend on earlier
 * data, so it can be repeated. */
static void add_zeros(bytes *b, int format, const bytes *begin, size_t zeros)
{
    enum { PART = 1 << 20, OUT = 1 << 16 };
    static const uint8_t zero[PART], last[] = {3, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static uint8_t out[OUT + 1024];
    z_stream z = {.next_out = out, .avail_out = sizeof out};
    if (deflateInit2(&z, 9, Z_DEFLATED, format, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    z.next_in = begin->at;
    z.avail_in = (uInt)begin->size;
    deflate(&z, Z_FULL_FLUSH);
    add(b, out, (size_t)(z.next_out - out));
    z.next_out = out;
    z.avail_out = sizeof out;
    z.next_in = (Bytef *)(uintptr_t)zero;
    z.avail_in = PART;
    deflate(&z, Z_FULL_FLUSH);
    for (size_t i = 0; i < zeros / PART; i++)
        add(b, out, (size_t)(z.next_out - out));
    add(b, last, sizeof last); /* an empty last block; its checksums are wrong but never read */
    deflateEnd(&z);
}

/* --- Images --- */

uint8_t *make_gif_bomb(const bomb_spec *spec, size_t *size)
{
    const uint8_t low = (uint8_t)spec->width, high = (uint8_t)(spec->width >> 8);
    const uint8_t screen[] = {'G', 'I', 'F', '8', '9', 'a', low, high, low, high, 0x80, 0, 0};
    const uint8_t colours[] = {0, 0, 0, 255, 255, 255};
    const uint8_t frame[] = {',', 0, 0, 0, 0, low, high, low, high, 0, 2, 2, 0x4c, 1, 0, ';'};
    bytes b = {0};
    add(&b, screen, sizeof screen);
    add(&b, colours, sizeof colours);
    add(&b, frame, sizeof frame);
    return finish(&b, size);
}

/* Packs LZW codes, least significant bit first. */
typedef struct code_writer {
    bytes out;
    uint32_t pending;
    int count;
} code_writer;

static void put_code(code_writer *b, int code, int width)
{
    b->pending |= (uint32_t)code << b->count;
    for (b->count += width; b->count >= 8; b->count -= 8, b->pending >>= 8) {
        uint8_t byte = (uint8_t)b->pending;
        add(&b->out, &byte, 1);
    }
}

uint8_t *make_gif_codes(const bomb_spec *spec, size_t *size)
{
    enum { CLEAR = 256, FIRST = CLEAR + 2, FULL = 4096, WIDEST = 12, BLOCK = 255 };
    static const uint8_t head[] = {'G', 'I', 'F', '8', '9', 'a', 1, 0, 1, 0, 0x80, 0, 0, 0, 0,
                                   0,   255, 255, 255, ',', 0,   0, 0, 0, 1, 0,    1, 0, 0, 8};
    bytes b = {0};
    code_writer data = {0};
    int next = FULL + FULL / 2, width = WIDEST; /* begins like a full table */
    add(&b, head, sizeof head);
    put_code(&data, CLEAR, 9);
    for (size_t i = 0; i < spec->count; i++, next++) {
        if (next == FULL + FULL / 2) {
            put_code(&data, i ? CLEAR : 0, i ? width : 9);
            if (i)
                put_code(&data, 0, 9);
            next = FIRST;
            width = 9;
        }
        put_code(&data, next < FULL ? next : FULL - 1, width); /* the previous string + a pixel */
        width += width < WIDEST && next + 1 == 1 << width;
    }
    put_code(&data, CLEAR + 1, width);
    put_code(&data, 0, 8);
    for (size_t at = 0, part; at < data.out.size; at += part) {
        part = data.out.size - at < BLOCK ? data.out.size - at : BLOCK;
        uint8_t length = (uint8_t)part;
        add(&b, &length, 1);
        add(&b, data.out.at + at, part);
    }
    add(&b, "\0;", 2);
    free(data.out.at);
    return finish(&b, size);
}

static void add_chunk(bytes *b, const char *name, const bytes *data)
{
    size_t begin = b->size + 4;
    add_big(b, (uint32_t)data->size);
    add_text(b, name);
    if (data->size)
        add(b, data->at, data->size);
    add_big(b, (uint32_t)crc32(0, b->at + begin, (uInt)(b->size - begin)));
}

/* Makes a PNG of the IDAT chunk's data. */
static uint8_t *finish_png(const bomb_spec *spec, const bytes *data, size_t *size)
{
    const uint8_t kind[] = {(uint8_t)spec->bits, (uint8_t)spec->colour, 0, 0, 0};
    bytes b = {0}, head = {0}, nothing = {0};
    add(&b, "\x89PNG\r\n\x1a\n", 8);
    add_big(&head, (uint32_t)spec->width);
    add_big(&head, (uint32_t)spec->height);
    add(&head, kind, sizeof kind);
    add_chunk(&b, "IHDR", &head);
    add_chunk(&b, "IDAT", data);
    add_chunk(&b, "IEND", &nothing);
    free(head.at);
    free(data->at);
    return finish(&b, size);
}

uint8_t *make_png_bomb(const bomb_spec *spec, size_t *size)
{
    bytes data = {0}, nothing = {0};
    add_zeros(&data, 15, &nothing, spec->inflated);
    return finish_png(spec, &data, size);
}

uint8_t *make_png_blocks(const bomb_spec *spec, size_t *size)
{
    /* Four empty blocks with fixed codes, 10 bits each (RFC 1951, 3.2.6); the last block is stored. */
    static const uint8_t begin[] = {0x78, 1}, four[] = {2, 8, 0x20, 0x80, 0};
    static const uint8_t last[] = {1, 2, 0, 0xFD, 0xFF, 0, 0, 0, 2, 0, 1};
    const bomb_spec pixel = {.width = 1, .height = 1, .bits = 8};
    bytes data = {0};
    add(&data, begin, sizeof begin);
    for (size_t i = 0; i < spec->count / 4; i++)
        add(&data, four, sizeof four);
    add(&data, last, sizeof last);
    return finish_png(&pixel, &data, size);
}

/* Returns the offset of the next marker from at on. */
static size_t find_marker(const uint8_t *file, size_t size, size_t at, uint8_t kind)
{
    while (at + 1 < size && !(file[at] == 0xFF && file[at + 1] == kind))
        at++;
    if (at + 1 >= size)
        abort();
    return at;
}

uint8_t *make_jpeg_bomb(const bomb_spec *spec, size_t *size)
{
    enum { SOF2 = 0xC2, SOS = 0xDA, EOI = 0xD9 };
    const jpeg_spec tiny = {16, 16, 1, 1, 1, 80, true, false, 0, false};
    static const uint8_t comment[] = {0xFF, 0xFE, 0xFF, 0xFF}, rest[0xFFFF - 2];
    uint32_t seed = 1;
    size_t length = 0;
    uint8_t *small = make_jpeg(&tiny, &seed, &length);
    size_t sof = find_marker(small, length, 2, SOF2), end = find_marker(small, length, 2, EOI);
    size_t scan = find_marker(small, length, sof, SOS), next = scan;
    for (size_t i = sof + 5; i < sof + 9; i += 2) {
        small[i] = (uint8_t)(spec->width >> 8);
        small[i + 1] = (uint8_t)spec->width;
    }
    for (size_t at = scan + 2; at + 1 < end; at++) /* the last scan */
        if (small[at] == 0xFF && small[at + 1] == SOS)
            next = at;
    bytes b = {0};
    add(&b, small, 2);
    while (b.size < spec->padded) {
        add(&b, comment, sizeof comment);
        add(&b, rest, sizeof rest);
    }
    add(&b, small + 2, end - 2);
    for (size_t i = 1; i < spec->count; i++)
        add(&b, small + next, end - next);
    add(&b, small + end, 2);
    free(small);
    return finish(&b, size);
}

static void add_little(bytes *b, uint32_t value, int count)
{
    for (int i = 0; i < count; i++, value >>= 8) {
        uint8_t byte = (uint8_t)value;
        add(b, &byte, 1);
    }
}

typedef struct tiff_field {
    uint32_t tag, count, value; /* value: an offset if count > 1 */
} tiff_field;

enum { TIFF_LONG = 4, TIFF_HEADER = 8, TIFF_ENTRY = 12 };

static uint32_t after_fields(uint32_t count)
{
    return TIFF_HEADER + 2 + count * TIFF_ENTRY + 4;
}

static void add_fields(bytes *b, const tiff_field *field, uint32_t count)
{
    add(b, "II*\0", 4);
    add_little(b, TIFF_HEADER, 4);
    add_little(b, count, 2);
    for (uint32_t i = 0; i < count; i++) {
        add_little(b, field[i].tag, 2);
        add_little(b, TIFF_LONG, 2);
        add_little(b, field[i].count, 4);
        add_little(b, field[i].value, 4);
    }
    add_little(b, 0, 4);
}

uint8_t *make_tiff_bomb(const bomb_spec *spec, size_t *size)
{
    enum { DEFLATE = 8 };
    bytes b = {0}, data = {0}, nothing = {0};
    add_zeros(&data, 15, &nothing, spec->inflated);
    const uint32_t side = (uint32_t)spec->width, bits = (uint32_t)spec->bits,
                   tile = (uint32_t)spec->tile, all = (uint32_t)data.size;
    const tiff_field strip[] = {{256, 1, side},    {257, 1, side}, {258, 1, bits},
                                {259, 1, DEFLATE}, {262, 1, 1},    {273, 1, after_fields(9)},
                                {277, 1, 1},       {278, 1, side}, {279, 1, all}};
    const tiff_field tiles[] = {
        {256, 1, side}, {257, 1, side}, {258, 1, bits}, {259, 1, DEFLATE},          {262, 1, 1},
        {277, 1, 1},    {322, 1, tile}, {323, 1, tile}, {324, 1, after_fields(10)}, {325, 1, all}};
    add_fields(&b, tile ? tiles : strip, tile ? 10 : 9);
    add(&b, data.at, data.size);
    free(data.at);
    return finish(&b, size);
}

uint8_t *make_tiff_strips(const bomb_spec *spec, size_t *size)
{
    const uint32_t side = (uint32_t)spec->width, end = after_fields(9), sizes = end + 4 * side;
    const tiff_field field[] = {{256, 1, side}, {257, 1, side}, {258, 1, 8},
                                {259, 1, 1},    {262, 1, 1},    {273, side, end},
                                {277, 1, 1},    {278, 1, 1},    {279, side, sizes}};
    bytes b = {0};
    add_fields(&b, field, 9);
    for (uint32_t i = 0; i < side; i++)
        add_little(&b, sizes + 4 * side, 4);
    for (uint32_t i = 0; i < side; i++)
        add_little(&b, side, 4);
    for (uint32_t i = 0; i < side; i++)
        add_little(&b, i, 1);
    return finish(&b, size);
}

uint8_t *make_webp_bomb(const bomb_spec *spec, size_t *size)
{
    /* RFC 9649, 3.4: width - 1 and height - 1 in 14 bits each, then no transform, cache or codes. */
    bytes b = {0};
    uint32_t bits = (uint32_t)(spec->width - 1);
    add_text(&b, "RIFF");
    add_little(&b, 4 + 8 + 14, 4);
    add_text(&b, "WEBPVP8L");
    add_little(&b, 14, 4);
    add_little(&b, 0x2f, 1);
    add_little(&b, bits | bits << 14, 4);
    for (int i = 0; i < 9; i++)
        add_little(&b, 0, 1);
    return finish(&b, size);
}

/* Overwrites width and height at this position with side. */
static void put_sides(uint8_t *at, uint32_t side, int bytes_per_side)
{
    for (int k = 0; k < 2; k++)
        for (int i = bytes_per_side; i--; at++)
            *at = (uint8_t)(side >> (8 * i));
}

uint8_t *make_avif_bomb(const bomb_spec *spec, size_t *size)
{
    /* ISO/IEC 23008-12, 6.6.2.3: version and flags, rows - 1 and columns - 1, then the sides. */
    static const uint8_t grid[] = {0, 0, 3, 3};
    enum { ISPE = 8 }; /* its name, version and flags */
    char part[64];
    snprintf(part, sizeof part, "data/formats/%s", spec->name);
    char *path = golden_path(part);
    uint8_t *b = (uint8_t *)temp_read(path, size), *ispe = b, *last = b + *size - 2 * ISPE;
    free(path);
    if (!spec->width)
        return b;
    while (ispe < last && memcmp(ispe, "ispe", 4) != 0)
        ispe++;
    put_sides(ispe + ISPE, (uint32_t)spec->width, 4);
    uint8_t *cells = ispe;
    while (cells < last && memcmp(cells, "mdat", 4) != 0)
        cells++;
    if (!memcmp(cells + 4, grid, sizeof grid))
        put_sides(cells + 4 + sizeof grid, (uint32_t)spec->width, 2);
    return b;
}

/* --- Safetensors and idx --- */

/* Stores the header's length in its first 8 bytes. */
static uint8_t *finish_header(bytes *b, size_t *size)
{
    uint64_t length = b->size - sizeof length;
    for (size_t i = 0; i < sizeof length; i++)
        b->at[i] = (uint8_t)(length >> (8 * i));
    return finish(b, size);
}

uint8_t *make_shape_bomb(const bomb_spec *spec, size_t *size)
{
    bytes b = {0};
    add(&b, "\0\0\0\0\0\0\0", 8);
    add_text(&b, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[0");
    for (size_t i = 1; i < spec->count; i++)
        add(&b, ",0", 2);
    add_text(&b, "]}}");
    return finish_header(&b, size);
}

uint8_t *make_many_tensors(const bomb_spec *spec, size_t *size)
{
    bytes b = {0};
    add(&b, "\0\0\0\0\0\0\0", 8);
    for (size_t i = 0; i < spec->count; i++) {
        char text[80];
        snprintf(text, sizeof text,
                 "%s\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "{",
                 i);
        add_text(&b, text);
    }
    add_text(&b, "}");
    return finish_header(&b, size);
}

uint8_t *make_idx_bomb(const bomb_spec *spec, size_t *size)
{
    enum { SIDE = 1000 };
    bytes b = {0}, head = {0};
    add_big(&head, 0x803);
    add_big(&head, (uint32_t)spec->count);
    add_big(&head, SIDE);
    add_big(&head, SIDE);
    add_zeros(&b, 31, &head, spec->inflated);
    free(head.at);
    return finish(&b, size);
}
