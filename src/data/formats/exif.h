/* EXIF's orientation tag: reading, writing, and turning images by it. */
#ifndef LT_DATA_EXIF_H
#define LT_DATA_EXIF_H

#include "data/formats/image.h"

enum { LT_EXIF_UPRIGHT = 1, LT_EXIF_MOST = 8, LT_EXIF_BYTES = 32 };

/* 1 .. 8 of a JPEG file; LT_EXIF_UPRIGHT without a valid tag. */
int lt_exif_orientation(const uint8_t *bytes, size_t size);
/* The contents of an APP1 segment with this orientation, without its length. */
void lt_exif_write(int orientation, uint8_t out[LT_EXIF_BYTES]);

/* Whether turning exchanges width and height. */
bool lt_exif_swaps(int orientation);
/* The window of the stored image, width x height, that becomes this window of the turned one. */
lt_window lt_exif_stored(int orientation, int32_t width, int32_t height, lt_window turned);
/* Turns from upright, into out; not in place. Errors: LT_E_NOMEM. */
lt_status lt_exif_turn(int orientation, const lt_image *from, lt_image *out);

#endif
