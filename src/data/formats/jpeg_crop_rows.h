/* Rows of a JPEG file as a file of its own, where restart markers allow it. */
#ifndef LT_DATA_JPEG_CUT_H
#define LT_DATA_JPEG_CUT_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/* A sequential file of one scan. */
typedef struct lt_jpeg_rows {
    const uint8_t *bytes;
    size_t size, coded;   /* where the coded data begin */
    int64_t mcus_per_row; /* minimum coded units: a row of them is mcu_height pixels high */
    int64_t interval;     /* of them between restart markers */
    int32_t mcu_height, height;
} lt_jpeg_rows;

typedef struct lt_jpeg_piece {
    uint8_t *bytes; /* owned: lt_free() */
    size_t size;
    int32_t y, height; /* rows [y, y + height) of the image */
} lt_jpeg_piece;

/* A file with the rows [low, high) and at least one row of units above and below them. LT_END:
 * there are no rows to skip above, or no usable markers. Errors: LT_E_NOMEM. */
lt_status lt_jpeg_cut(const lt_jpeg_rows *rows, int32_t low, int32_t high, lt_jpeg_piece *out);

#endif
