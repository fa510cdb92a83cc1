/* Stands in for tiff.c in a build without libtiff. */

#include "data/formats/image.h"

lt_status lt_tiff_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    (void)bytes, (void)size, (void)width, (void)height;
    return lt_fail(LT_E_UNSUPPORTED,
                   "image: TIFF, and this build has no libtiff (meson option 'tiff')");
}

lt_status lt_tiff_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_picture *out)
{
    (void)limits, (void)channels, (void)window, (void)out;
    return lt_tiff_size(bytes, size, NULL, NULL);
}
