/* Stands in for jpeg.c in a build without libjpeg-turbo. */

#include "data/formats/image.h"

lt_status lt_jpeg_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    (void)bytes, (void)size, (void)width, (void)height;
    return lt_fail(LT_E_UNSUPPORTED, "jpeg: this build has no libjpeg-turbo (meson option 'jpeg')");
}

bool lt_jpeg_shrinks(const uint8_t *bytes, size_t size)
{
    (void)bytes, (void)size;
    return false;
}

lt_status lt_jpeg_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, int shrink, lt_window window, lt_picture *out)
{
    (void)limits, (void)channels, (void)shrink, (void)window, (void)out;
    return lt_jpeg_size(bytes, size, NULL, NULL);
}
