/* Decoding of image files in memory: JPEG, PNG, BMP, GIF, WebP, AVIF, TIFF, PGM and PPM, recognised
 * by their first bytes. */
#ifndef LT_DATA_IMAGE_H
#define LT_DATA_IMAGE_H

#include "data/formats/decoder.h"

/* limits NULL: the defaults, as if all were zeros. */

/* Size of the image, from the header. Errors: LT_E_FORMAT (also an image above the limits, or one
 * with more pixels than a file of this size can hold), LT_E_UNSUPPORTED. */
lt_status lt_image_size(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int32_t *width, int32_t *height);
/* Decodes the window, which lies in the image, to 1 or 3 channels; the same pixels as the same
 * part of the whole image. Errors: LT_E_FORMAT, LT_E_UNSUPPORTED, LT_E_NOMEM. */
lt_status lt_image_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                          int channels, lt_window window, lt_image *out);

/* Whether the file can be decoded at 1/2, 1/4 and 1/8 of its size, sides rounded up: JPEG with luma
 * 1 or 2 times the chroma in each direction. */
bool lt_image_shrinks(const uint8_t *bytes, size_t size);
/* lt_image_decode() of such a file at 1/shrink of its size; the window is in these pixels. */
lt_status lt_image_decode_small(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                int channels, int shrink, lt_window window, lt_image *out);

#endif
