/* Reads, writes and applies EXIF's orientation tag. */
#ifndef LT_DATA_EXIF_H
#define LT_DATA_EXIF_H

#include "data/formats/image.h"

enum { LT_EXIF_UPRIGHT = 1, LT_EXIF_MOST = 8, LT_EXIF_BYTES = 32 };

/* Returns the orientation tag of a JPEG file, 1 to 8; LT_EXIF_UPRIGHT without a valid tag. */
int lt_exif_orientation(const uint8_t *bytes, size_t size);
/* Writes the contents of an APP1 segment with this orientation, without marker and length. */
void lt_exif_write(int orientation, uint8_t out[LT_EXIF_BYTES]);

/* Returns true if the upright image has the width and height of the stored image exchanged. */
bool lt_exif_swaps_axes(int orientation);
/* Returns the window of the stored image (width x height) that becomes this window of the upright image. */
lt_window lt_exif_stored_window(int orientation, int32_t width, int32_t height, lt_window upright);
/* Writes the upright image with contiguous pixels to `out`, which must differ from `from`. Errors: LT_E_NOMEM. */
lt_status lt_exif_apply(int orientation, const lt_image *from, lt_image *out);

#endif
