/* Decodes image files in memory: JPEG, PNG, BMP, GIF, WebP, AVIF, TIFF, PGM and PPM, recognized by their first
 * bytes. */
#ifndef LT_DATA_IMAGE_H
#define LT_DATA_IMAGE_H

#include "data/formats/decoder.h"

/* In all functions below, limits NULL means the defaults. */

/* Reads the image size from the header. Errors: LT_E_FORMAT (also an image above the limits, or with more pixels than a
 * file of this size can contain), LT_E_UNSUPPORTED. */
lt_status lt_image_size(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int32_t *width, int32_t *height);
/* Decodes a window inside the image to 1 or 3 channels. The pixels equal those of a decode of the whole image. Errors:
 * LT_E_FORMAT, LT_E_UNSUPPORTED, LT_E_NOMEM. */
lt_status lt_image_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                          int channels, lt_window window, lt_image *out);

/* Returns true if the file can be decoded at 1/2, 1/4 and 1/8 of its size (sides rounded up): a JPEG whose luma has 1
 * or 2 times the resolution of chroma in each direction. */
bool lt_image_can_shrink(const uint8_t *bytes, size_t size);
/* Decodes a file with lt_image_can_shrink() at 1/shrink of its size; the window is in pixels of the smaller image.
 * Errors: as lt_image_decode(). */
lt_status lt_image_decode_shrunk(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                 int channels, int shrink, lt_window window, lt_image *out);

#endif
