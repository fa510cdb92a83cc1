/* A small image that a page can hold. */
#ifndef LT_CLASSIFY_THUMBNAIL_H
#define LT_CLASSIFY_THUMBNAIL_H

#include <stdint.h>

/* pixels [channels][side][side] as "data:image/bmp;base64,...", at most 64 x 64; yours. NULL: no memory. */
char *lt_thumbnail(const uint8_t *pixels, int channels, int side);

#endif
