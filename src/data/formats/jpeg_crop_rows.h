/* Copies rows of a JPEG file to a smaller JPEG file, if restart markers permit. */
#ifndef LT_DATA_JPEG_CROP_ROWS_H
#define LT_DATA_JPEG_CROP_ROWS_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/* A sequential JPEG file with one scan. */
typedef struct lt_jpeg_scan {
    const uint8_t *bytes;
    size_t size, coded;   /* bytes of the file; offset of the coded data in it */
    int64_t mcus_per_row; /* minimum coded units (MCUs) in a row of the image */
    int64_t interval;     /* MCUs between restart markers; 0 without markers */
    int32_t mcu_height;   /* height of an MCU in pixels */
    int32_t height;       /* height of the image in pixels */
} lt_jpeg_scan;

typedef struct lt_jpeg_crop {
    uint8_t *bytes; /* contents of the smaller file; owned, for lt_free() */
    size_t size;
    int32_t y, height; /* it contains rows [y, y + height) of the image */
} lt_jpeg_crop;

/* Makes a file of rows [low, high) and at least one row of MCUs above and below them. Returns LT_END if there are no
 * rows to skip above them, or no usable markers. Errors: LT_E_NOMEM. */
lt_status lt_jpeg_crop_rows(const lt_jpeg_scan *scan, int32_t low, int32_t high, lt_jpeg_crop *out);

#endif
