/* Stubs for the optional libraries that this build lacks (LT_NO_...): their functions fail and name the library. */

#include "data/formats/jpeg.h"
#include "data/pack/pack.h"

#define LT_MISSING_DECODER(format, why)                                                           \
    lt_status lt_##format##_size(const uint8_t *bytes, size_t size, int32_t *width,               \
                                 int32_t *height)                                                 \
    {                                                                                             \
        (void)bytes, (void)size, (void)width, (void)height;                                       \
        return lt_fail(LT_E_UNSUPPORTED, why);                                                    \
    }                                                                                             \
                                                                                                  \
    lt_status lt_##format##_decode(const uint8_t *bytes, size_t size,                             \
                                   const lt_image_limits *limits, int channels, lt_window window, \
                                   lt_image *out)                                                 \
    {                                                                                             \
        (void)limits, (void)channels, (void)window, (void)out;                                    \
        return lt_##format##_size(bytes, size, NULL, NULL);                                       \
    }

#ifdef LT_NO_STB
LT_MISSING_DECODER(
    stb, "image: PNG, BMP and GIF need stb_image, which this build lacks (meson option 'stb')")
#endif
#ifdef LT_NO_WEBP
LT_MISSING_DECODER(webp, "image: WebP needs libwebp, which this build lacks (meson option 'webp')")
#endif
#ifdef LT_NO_AVIF
LT_MISSING_DECODER(avif, "image: AVIF needs libavif, which this build lacks (meson option 'avif')")
#endif
#ifdef LT_NO_TIFF
LT_MISSING_DECODER(tiff, "image: TIFF needs libtiff, which this build lacks (meson option 'tiff')")
#endif

#ifdef LT_NO_JPEG
LT_MISSING_DECODER(jpeg,
                   "image: JPEG needs libjpeg-turbo, which this build lacks (meson option 'jpeg')")

lt_status lt_jpeg_decode_shrunk(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                int channels, int shrink, lt_window window, lt_image *out)
{
    (void)shrink;
    return lt_jpeg_decode(bytes, size, limits, channels, window, out);
}

const char *lt_jpeg_library(void)
{
    return "";
}

bool lt_jpeg_can_shrink(const uint8_t *bytes, size_t size)
{
    (void)bytes, (void)size;
    return false;
}

lt_status lt_jpeg_transcode(const uint8_t *bytes, size_t size, uint8_t **out, size_t *out_size)
{
    (void)bytes, (void)size, (void)out, (void)out_size;
    return lt_fail(
        LT_E_UNSUPPORTED,
        "pack: writing JPEG needs libjpeg-turbo, which this build lacks (meson option 'jpeg')");
}

lt_status lt_jpeg_encode(const lt_pixels *image, int quality, uint8_t **out, size_t *out_size)
{
    (void)image, (void)quality;
    return lt_jpeg_transcode(NULL, 0, out, out_size);
}
#endif

#ifdef LT_NO_XXHASH
uint64_t lt_hash64(const void *data, size_t bytes)
{
    (void)data, (void)bytes;
    return 0;
}

bool lt_has_xxhash(void)
{
    return false;
}
#endif
