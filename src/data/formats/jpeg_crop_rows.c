/* Decoding can restart at a restart marker (T.81, B.2.1 and E.1.4). If there is one after every row of MCUs, the rows
 * above a window need not even be Huffman-decoded: the header with a smaller height, the intervals of the window with
 * their markers renumbered from 0, and an end marker form a valid file. Finding the markers is one pass over the bytes,
 * a hundred times faster than decoding them. */

#include "data/formats/jpeg_crop_rows.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <string.h>

enum { MARK = 0xFF, RST0 = 0xD0, RST7 = 0xD7, EOI = 0xD9, SOS = 0xDA, SOF0 = 0xC0, SOF2 = 0xC2 };

/* Returns the offset of the 2 bytes of the height in the frame header, or 0 if not found. */
static size_t find_height_offset(const lt_jpeg_scan *r)
{
    for (size_t at = 2; at + 9 < r->coded;) {
        if (r->bytes[at] != MARK)
            return 0;
        uint8_t kind = r->bytes[at + 1];
        if (kind == MARK) { /* a fill byte */
            at++;
            continue;
        }
        if (kind >= SOF0 && kind <= SOF2)
            return at + 5;
        if (kind == SOS)
            return 0;
        at += 2 + ((size_t)r->bytes[at + 2] << 8 | r->bytes[at + 3]);
    }
    return 0;
}

/* Returns the offset after the next marker from `at` on and sets *kind to its second byte; r->size and 0 if there is
 * none. */
static size_t next_marker(const lt_jpeg_scan *r, size_t at, uint8_t *kind)
{
    while (at + 1 < r->size) {
        const uint8_t *mark = memchr(r->bytes + at, MARK, r->size - at - 1);
        if (!mark)
            break;
        *kind = mark[1];
        at = (size_t)(mark - r->bytes) + (mark[1] == MARK ? 1 : 2);
        if (mark[1] != 0 && mark[1] != MARK)
            return at;
    }
    *kind = 0;
    return r->size;
}

typedef struct span {
    size_t begin, end; /* byte range, without the marker at its end */
} span;

/* Finds the coded data of intervals [first, last). Returns false if restart markers are missing or out of order. */
static bool find_restart_intervals(const lt_jpeg_scan *r, int64_t first, int64_t last, span *out)
{
    size_t at = r->coded;
    *out = (span){at, at};
    for (int64_t k = 0; k < last; k++) {
        uint8_t kind;
        if (k == first)
            out->begin = at;
        at = next_marker(r, at, &kind);
        if (!kind)
            return false;
        out->end = at - 2;
        bool restart = kind >= RST0 && kind <= RST7;
        if (restart ? kind - RST0 != (k & 7) : k != last - 1)
            return false;
    }
    return out->begin < out->end;
}

/* Renumbers the restart markers in [begin, end) from 0. */
static void renumber_restarts(uint8_t *begin, const uint8_t *end)
{
    int number = 0;
    for (uint8_t *at = begin; at + 1 < end; at++)
        if (at[0] == MARK && at[1] >= RST0 && at[1] <= RST7)
            at[1] = (uint8_t)(RST0 + (number++ & 7));
}

static lt_status assemble_cropped_file(const lt_jpeg_scan *r, size_t height_at, span data,
                                       lt_jpeg_crop *out)
{
    size_t length = data.end - data.begin;
    out->size = r->coded + length + 2;
    out->bytes = lt_alloc_aligned(64, out->size);
    if (!out->bytes)
        return LT_E_NOMEM;
    memcpy(out->bytes, r->bytes, r->coded);
    out->bytes[height_at] = (uint8_t)(out->height >> 8);
    out->bytes[height_at + 1] = (uint8_t)out->height;
    memcpy(out->bytes + r->coded, r->bytes + data.begin, length);
    renumber_restarts(out->bytes + r->coded, out->bytes + r->coded + length);
    out->bytes[out->size - 2] = MARK;
    out->bytes[out->size - 1] = EOI;
    return LT_OK;
}

/* Returns the number of MCU rows between two row ends with a marker, or 0 if row ends have no markers. */
static int64_t rows_between_markers(const lt_jpeg_scan *r)
{
    if (r->interval <= 0)
        return 0;
    if (r->interval % r->mcus_per_row == 0)
        return r->interval / r->mcus_per_row;
    return r->mcus_per_row % r->interval == 0;
}

lt_status lt_jpeg_crop_rows(const lt_jpeg_scan *scan, int32_t low, int32_t high, lt_jpeg_crop *out)
{
    int64_t step = rows_between_markers(scan),
            rows = (scan->height + scan->mcu_height - 1) / scan->mcu_height;
    size_t height_at = find_height_offset(scan);
    if (!step || !height_at)
        return LT_END;
    int64_t first = low / scan->mcu_height - 1, last = (high - 1) / scan->mcu_height + 2;
    first = first > 0 ? first / step * step : 0;
    last = (last + step - 1) / step * step;
    last = last < rows ? last : rows;
    if (first == 0)
        return LT_END;

    span data;
    int64_t ends = (last * scan->mcus_per_row + scan->interval - 1) / scan->interval;
    if (!find_restart_intervals(scan, first * scan->mcus_per_row / scan->interval, ends, &data))
        return LT_END;
    lt_jpeg_crop crop = {.y = (int32_t)first * scan->mcu_height};
    int64_t bottom = last * scan->mcu_height;
    crop.height = (int32_t)(bottom < scan->height ? bottom : scan->height) - crop.y;
    LT_TRY(assemble_cropped_file(scan, height_at, data, &crop));
    *out = crop;
    return LT_OK;
}
