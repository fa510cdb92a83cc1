/* Stands in for stb.c in a build without stb_image. */

#include "data/formats/image.h"

lt_status lt_stb_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    (void)bytes, (void)size, (void)width, (void)height;
    return lt_fail(
        LT_E_UNSUPPORTED,
        "image: PNG, BMP and GIF need stb_image, which this build lacks (meson option 'stb')");
}

lt_status lt_stb_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int channels, lt_window window, lt_picture *out)
{
    (void)limits, (void)channels, (void)window, (void)out;
    return lt_stb_size(bytes, size, NULL, NULL);
}
