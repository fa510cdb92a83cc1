/* JPEG, besides what decoder.h declares: decoding at a smaller size, writing. */
#ifndef LT_DATA_JPEG_H
#define LT_DATA_JPEG_H

#include "data/formats/decoder.h"

/* Whether it can be decoded at 1/2, 1/4 and 1/8 of its size. */
bool lt_jpeg_shrinks(const uint8_t *bytes, size_t size);
lt_status lt_jpeg_decode_small(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                               int channels, int shrink, lt_window window, lt_image *out);

/* --- Writing --- */

/* JPEG in memory, lt_free() it; EXIF's orientation is kept. Errors: LT_E_FORMAT, LT_E_NOMEM,
 * LT_E_UNSUPPORTED. */
lt_status lt_jpeg_repack(const uint8_t *bytes, size_t size, uint8_t **out, size_t *out_size);
/* Pixels [height][width][channels] without gaps, 4:2:0 as libjpeg's default. */
typedef struct lt_pixels {
    const uint8_t *pixels;
    int32_t width, height, channels;
    int orientation; /* EXIF's, to be written; 0 or 1: upright */
} lt_pixels;
lt_status lt_jpeg_encode(const lt_pixels *image, int quality, uint8_t **out, size_t *out_size);

#endif
