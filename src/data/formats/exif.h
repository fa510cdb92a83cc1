/* EXIF's orientation: how a camera was held, and pictures turned so that their top is up. */
#ifndef LT_DATA_EXIF_H
#define LT_DATA_EXIF_H

#include "data/formats/image.h"

enum { LT_EXIF_UPRIGHT = 1, LT_EXIF_MOST = 8, LT_EXIF_BYTES = 32 };

/* 1 .. 8 of a JPEG file; LT_EXIF_UPRIGHT for files that say nothing, or something broken. */
int lt_exif_orientation(const uint8_t *bytes, size_t size);
/* What an APP1 marker holds to say so, without its length. */
void lt_exif_write(int orientation, uint8_t out[LT_EXIF_BYTES]);

/* Whether width and height of the turned picture are the other's. */
bool lt_exif_swaps(int orientation);
/* The part of the stored picture of width x height that the window of the turned one is made of. */
lt_window lt_exif_stored(int orientation, int32_t width, int32_t height, lt_window turned);
/* Pixels as they are shown; from and out are different. Errors: LT_E_NOMEM. */
lt_status lt_exif_turn(int orientation, const lt_picture *from, lt_picture *out);

#endif
