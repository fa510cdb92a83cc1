/* Thumbnails of images for the report page, as data URIs. */
#ifndef LT_CLASSIFY_THUMBNAIL_H
#define LT_CLASSIFY_THUMBNAIL_H

#include <stdint.h>

/* Encodes pixels [channels][side][side] as "data:image/bmp;base64,...", at most 64 x 64; free with lt_free(). NULL
 * without memory. */
char *lt_thumbnail(const uint8_t *pixels, int channels, int side);

#endif
