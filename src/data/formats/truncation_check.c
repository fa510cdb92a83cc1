/* Detects truncated BMP and GIF files. BMP: Microsoft, "Bitmap storage", BITMAPFILEHEADER and BITMAPINFOHEADER. GIF:
 * CompuServe, "Graphics Interchange Format, version 89a", sections 15 to 26. */

#include "data/formats/decoder.h"

static uint32_t read_little_endian(const uint8_t *at, int bytes)
{
    uint32_t x = 0;
    for (int i = bytes - 1; i >= 0; i--)
        x = x << 8 | at[i];
    return x;
}

static bool bmp_is_complete(const uint8_t *b, size_t size)
{
    enum { OFFSET = 10, HEADER = 14, WIDTH = 18, HEIGHT = 22, BITS = 28, ENOUGH = 34 };
    enum { OLD_HEADER = 12 };
    uint32_t header = size < ENOUGH ? 0 : read_little_endian(b + HEADER, 4);
    if (size < ENOUGH)
        return false;
    bool old = header == OLD_HEADER; /* fields of 2 bytes at other offsets */
    uint64_t width = read_little_endian(b + WIDTH, old ? 2 : 4);
    uint32_t rows = read_little_endian(b + (old ? 20 : HEIGHT), old ? 2 : 4);
    uint64_t height =
        !old && rows > INT32_MAX ? UINT64_C(1) + ~rows : rows; /* negative: top row first */
    uint64_t bits = width * read_little_endian(b + (old ? 24 : BITS), 2),
             stride = (bits + 31) / 32 * 4;
    if (width > INT32_MAX || !height)
        return true;
    return size >= read_little_endian(b + OFFSET, 4) + (height - 1) * stride + (bits + 7) / 8;
}

/* Returns the offset after a list of blocks, each with its length before it, up to a block of length 0; size + 1 if the
 * file ends before. */
static size_t skip_blocks(const uint8_t *b, size_t size, size_t at)
{
    while (at < size && b[at])
        at += (size_t)b[at] + 1;
    return at < size ? at + 1 : size + 1;
}

/* Returns the size in bytes of the colour table after these flags, or 0. */
static size_t colour_table_bytes(uint8_t flags)
{
    return flags & 0x80 ? (size_t)3 << ((flags & 7) + 1) : 0;
}

static bool gif_is_complete(const uint8_t *b, size_t size)
{
    enum { SCREEN_FLAGS = 10, HEADER = 13, FRAME_FLAGS = 9, FRAME = 10 };
    size_t at = size < HEADER ? size : HEADER + colour_table_bytes(b[SCREEN_FLAGS]);
    while (at + 1 < size && b[at] == '!') /* an extension */
        at = skip_blocks(b, size, at + 2);
    if (at >= size || (b[at] == ',' && size - at <= FRAME))
        return false;
    if (b[at] != ',')
        return true;
    at += FRAME + colour_table_bytes(b[at + FRAME_FLAGS]) + 1; /* 1: initial code size */
    return skip_blocks(b, size, at) <= size;
}

bool lt_stb_is_complete(const uint8_t *bytes, size_t size)
{
    if (size > 2 && bytes[0] == 'B')
        return bmp_is_complete(bytes, size);
    return size < 3 || bytes[0] != 'G' || gif_is_complete(bytes, size);
}
