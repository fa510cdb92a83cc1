/* Stands in for jpeg.c in a build without libjpeg-turbo. */

#include "data/image.h"

lt_status lt_jpeg_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    (void)bytes, (void)size, (void)width, (void)height;
    return lt_fail(LT_E_UNSUPPORTED, "jpeg: this build has no libjpeg-turbo (meson option 'jpeg')");
}

lt_status lt_jpeg_decode(const uint8_t *bytes, size_t size, int channels, lt_window window,
                         lt_picture *out)
{
    (void)channels, (void)window, (void)out;
    return lt_jpeg_size(bytes, size, NULL, NULL);
}
