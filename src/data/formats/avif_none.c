/* Stands in for avif.c in a build without libavif. */

#include "data/formats/image.h"

lt_status lt_avif_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    (void)bytes, (void)size, (void)width, (void)height;
    return lt_fail(LT_E_UNSUPPORTED,
                   "image: AVIF, and this build has no libavif (meson option 'avif')");
}

lt_status lt_avif_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_picture *out)
{
    (void)limits, (void)channels, (void)window, (void)out;
    return lt_avif_size(bytes, size, NULL, NULL);
}
