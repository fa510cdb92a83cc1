/* Further functions for JPEG: decoding at a smaller size, and writing. */
#ifndef LT_DATA_JPEG_H
#define LT_DATA_JPEG_H

#include "data/formats/decoder.h"

/* Returns true if the file can be decoded at 1/2, 1/4 and 1/8 of its size. */
bool lt_jpeg_can_shrink(const uint8_t *bytes, size_t size);
lt_status lt_jpeg_decode_shrunk(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                int channels, int shrink, lt_window window, lt_image *out);

/* --- Writing --- */

/* Rewrites a JPEG with the same coefficients and EXIF orientation; lt_free() *out. Errors: LT_E_FORMAT, LT_E_NOMEM,
 * LT_E_UNSUPPORTED. */
lt_status lt_jpeg_transcode(const uint8_t *bytes, size_t size, uint8_t **out, size_t *out_size);
/* An image to encode. */
typedef struct lt_pixels {
    const uint8_t *pixels; /* pixels of the image, contiguous [height][width][channels] */
    int32_t width, height, channels;
    int orientation; /* EXIF orientation to write; 0 or 1: none */
} lt_pixels;
/* Encodes with 4:2:0 subsampling, libjpeg's default; lt_free() *out. Errors: as lt_jpeg_transcode(). */
lt_status lt_jpeg_encode(const lt_pixels *image, int quality, uint8_t **out, size_t *out_size);

#endif
