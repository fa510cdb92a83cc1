/* Thumbnails for the report page: a BMP file in a data URI. BMP needs no compressor; at most 12 kB. */

#include "train/classify/thumbnail.h"

#include "base/alloc.h"

#include <string.h>

enum { MOST_SIDE = 64, COLOURS = 3, HEAD = 54, BYTE = 8 };

static void put_little_endian(uint8_t *at, int bytes, uint32_t value)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (BYTE * i));
}

/* Returns the mean of a cell of step x step pixels. */
static uint8_t average_cell(const uint8_t *plane, int side, int step, int y, int x)
{
    int sum = 0;
    for (int i = 0; i < step; i++)
        for (int j = 0; j < step; j++)
            sum += plane[(y * step + i) * side + x * step + j];
    return (uint8_t)(sum / (step * step));
}

/* Encodes pixels, reduced in size, as a BMP file of 24 bits a pixel: rows from the bottom up, blue first, padded. */
static uint8_t *encode_bmp(const uint8_t *pixels, int channels, int side, size_t *bytes)
{
    enum { INFO = 40, BITS = 24, ALIGN = 4 };
    int step = (side + MOST_SIDE - 1) / MOST_SIDE, small = side / step;
    size_t row = ((size_t)small * COLOURS + ALIGN - 1) / ALIGN * ALIGN;
    *bytes = HEAD + row * (size_t)small;
    uint8_t *file = lt_alloc(*bytes, 1);
    if (!file)
        return NULL;
    file[0] = 'B';
    file[1] = 'M';
    put_little_endian(file + 2, 4, (uint32_t)*bytes);
    put_little_endian(file + 10, 4, HEAD);
    put_little_endian(file + 14, 4, INFO);
    put_little_endian(file + 18, 4, (uint32_t)small);
    put_little_endian(file + 22, 4, (uint32_t)small);
    put_little_endian(file + 26, 2, 1);
    put_little_endian(file + 28, 2, BITS);
    for (int c = 0; c < COLOURS; c++) {
        const uint8_t *plane =
            pixels + (size_t)(channels == 1 ? 0 : c) * (size_t)side * (size_t)side;
        for (int y = 0; y < small; y++)
            for (int x = 0; x < small; x++)
                file[HEAD + row * (size_t)(small - 1 - y) + (size_t)(COLOURS * x + 2 - c)] =
                    average_cell(plane, side, step, y, x);
    }
    return file;
}

/* Encodes base64 (RFC 4648, section 4). */
static char *encode_base64(char *to, const uint8_t *data, size_t bytes)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    enum { GROUP = 3, DIGIT_BITS = 6, LOW = 63, PADDING = 64 };
    for (size_t i = 0; i < bytes; i += GROUP) {
        size_t left = bytes - i < GROUP ? bytes - i : GROUP;
        uint32_t group = (uint32_t)data[i] << 16;
        group |= left > 1 ? (uint32_t)data[i + 1] << BYTE : 0;
        group |= left > 2 ? data[i + 2] : 0;
        for (size_t k = 0; k <= GROUP; k++)
            *to++ = digit[k > left ? PADDING : group >> (DIGIT_BITS * (GROUP - k)) & LOW];
    }
    *to = 0;
    return to;
}

char *lt_thumbnail(const uint8_t *pixels, int channels, int side)
{
    static const char scheme[] = "data:image/bmp;base64,";
    size_t bytes;
    uint8_t *file = encode_bmp(pixels, channels, side, &bytes);
    char *text = file ? lt_alloc(sizeof scheme + (bytes + 2) / 3 * 4, 1) : NULL;
    if (text)
        encode_base64(stpcpy(text, scheme), file, bytes);
    lt_free(file);
    return text;
}
