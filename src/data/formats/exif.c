/* EXIF 2.32 (CIPA DC-008-2019): the APP1 segment (4.7.2) of a JPEG file contains a TIFF header (4.5.2) in either byte
 * order, whose first directory (4.6.2) may have the tag Orientation (4.6.5.1). The stored image must be:
 *
 *   1 left as it is   2 mirrored horizontally   3 rotated by 180       4 mirrored vertically
 *   5 transposed      6 rotated right by 90     7 anti-transposed      8 rotated left by 90
 *
 * Every offset is compared with the end of the segment before use. Only the first directory is read, so offsets cannot
 * form a cycle. */

#include "data/formats/exif.h"

#include <string.h>

enum { MARK = 0xFF, APP1 = 0xE1, SOS = 0xDA, EOI = 0xD9, TEM = 0x01, RST0 = 0xD0, RST7 = 0xD7 };
enum { TIFF_HEADER = 8, ENTRY = 12, ORIENTATION = 0x0112, SHORT = 3, LONG = 4 };

static const uint8_t exif_name[6] = "Exif\0"; /* ends with two zeros */

/* The TIFF data of a segment. */
typedef struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big_endian;
} tiff;

/* Reads 16 bits in the file's byte order. Callers of read_u16() and read_u32() check the range. */
static uint32_t read_u16(const tiff *t, size_t at)
{
    const uint8_t *b = t->bytes + at;
    return t->big_endian ? (uint32_t)b[0] << 8 | b[1] : (uint32_t)b[1] << 8 | b[0];
}

static uint32_t read_u32(const tiff *t, size_t at)
{
    uint32_t first = read_u16(t, at), second = read_u16(t, at + 2);
    return t->big_endian ? first << 16 | second : second << 16 | first;
}

static int orientation_value(const tiff *t, size_t entry)
{
    uint32_t type = read_u16(t, entry + 2), count = read_u32(t, entry + 4), value = 0;
    if (type == SHORT)
        value = read_u16(t, entry + 8);
    else if (type == LONG)
        value = read_u32(t, entry + 8);
    return count == 1 && value >= 1 && value <= LT_EXIF_MOST ? (int)value : LT_EXIF_UPRIGHT;
}

static int orientation_from_directory(const tiff *t)
{
    const uint32_t magic = 42;
    size_t at = read_u32(t, 4);
    if (read_u16(t, 2) != magic || at > t->size || t->size - at < 2)
        return LT_EXIF_UPRIGHT;
    size_t entries = read_u16(t, at);
    at += 2;
    for (size_t i = 0; i < entries && t->size - at >= ENTRY; i++, at += ENTRY)
        if (read_u16(t, at) == ORIENTATION)
            return orientation_value(t, at);
    return LT_EXIF_UPRIGHT;
}

static int orientation_from_tiff(const uint8_t *bytes, size_t size)
{
    tiff t = {.bytes = bytes, .size = size};
    if (size < TIFF_HEADER)
        return LT_EXIF_UPRIGHT;
    if (!memcmp(bytes, "MM", 2))
        t.big_endian = true;
    else if (memcmp(bytes, "II", 2) != 0)
        return LT_EXIF_UPRIGHT;
    return orientation_from_directory(&t);
}

/* Returns true for a marker without a length and data. */
static bool is_bare_marker(uint8_t kind)
{
    return kind == TEM || (kind >= RST0 && kind <= RST7);
}

int lt_exif_orientation(const uint8_t *bytes, size_t size)
{
    enum { START = 2 };
    if (size < START || bytes[0] != MARK || bytes[1] != 0xD8)
        return LT_EXIF_UPRIGHT;
    for (size_t at = START; at + 4 <= size && bytes[at] == MARK;) {
        uint8_t kind = bytes[at + 1];
        if (kind == MARK) { /* a fill byte */
            at++;
            continue;
        }
        if (kind == SOS || kind == EOI)
            break;
        at += 2;
        if (is_bare_marker(kind))
            continue;
        size_t length = (size_t)bytes[at] << 8 | bytes[at + 1];
        if (length < 2 || length > size - at)
            break;
        const uint8_t *data = bytes + at + 2;
        size_t data_size = length - 2;
        if (kind == APP1 && data_size >= sizeof exif_name
            && !memcmp(data, exif_name, sizeof exif_name))
            return orientation_from_tiff(data + sizeof exif_name, data_size - sizeof exif_name);
        at += length;
    }
    return LT_EXIF_UPRIGHT;
}

void lt_exif_write(int orientation, uint8_t out[LT_EXIF_BYTES])
{
    /* Name, TIFF header with the directory's offset, one entry; the offset of the next directory is 0. */
    static const uint8_t bytes[LT_EXIF_BYTES] = {'E', 'x', 'i', 'f', 0, 0, 'M',  'M', 0, 42, 0,
                                                 0,   0,   8,   0,   1, 1, 0x12, 0,   3, 0,  0,
                                                 0,   1,   0,   0,   0, 0, 0,    0,   0, 0};
    memcpy(out, bytes, sizeof bytes);
    out[sizeof exif_name + TIFF_HEADER + 2 + 9] = (uint8_t)orientation;
}

/* --- Applying an orientation --- */

bool lt_exif_swaps_axes(int orientation)
{
    return orientation >= 5;
}

/* Return true if the stored x (y) decreases along the corresponding axis of the upright image. */
static bool x_is_reversed(int orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool y_is_reversed(int orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

lt_window lt_exif_stored_window(int orientation, int32_t width, int32_t height, lt_window upright)
{
    lt_window w = upright;
    if (lt_exif_swaps_axes(orientation))
        w = (lt_window){
            .x = upright.y, .y = upright.x, .width = upright.height, .height = upright.width};
    if (x_is_reversed(orientation))
        w.x = width - w.x - w.width;
    if (y_is_reversed(orientation))
        w.y = height - w.y - w.height;
    return w;
}

lt_status lt_exif_apply(int orientation, const lt_image *from, lt_image *out)
{
    bool swaps = lt_exif_swaps_axes(orientation);
    size_t channels = (size_t)from->channels;
    int32_t width = swaps ? from->height : from->width, height = swaps ? from->width : from->height;
    size_t stride = (size_t)width * channels;
    LT_TRY(lt_image_reserve(out, stride * (size_t)height));

    /* Bytes between adjacent stored pixels, in the direction of the upright image. */
    ptrdiff_t step_x = (ptrdiff_t)channels, step_y = (ptrdiff_t)from->stride;
    const uint8_t *corner = from->pixels;
    if (x_is_reversed(orientation)) {
        corner += (from->width - 1) * step_x;
        step_x = -step_x;
    }
    if (y_is_reversed(orientation)) {
        corner += (from->height - 1) * step_y;
        step_y = -step_y;
    }
    ptrdiff_t right = swaps ? step_y : step_x, down = swaps ? step_x : step_y;
    for (int32_t y = 0; y < height; y++) {
        const uint8_t *pixel = corner + y * down;
        uint8_t *to = out->memory + (size_t)y * stride;
        for (int32_t x = 0; x < width; x++, pixel += right, to += channels)
            for (size_t c = 0; c < channels; c++)
                to[c] = pixel[c];
    }
    lt_image_set_window(out, width, from->channels, (lt_window){0, 0, width, height});
    return LT_OK;
}
