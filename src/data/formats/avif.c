/* AVIF by libavif: the first image. Alpha and the file's own rotation are not applied, as for other
 * formats. The file's size is no bound: AV1 codes a hundred thousand pixels of one colour in a byte. So the limit on
 * pixels is: 8-bit images take 4.4 to 6.5 bytes a pixel here (PNG: 6), deeper ones up to twice as many for their planes. */

#include "data/formats/image.h"

#include <avif/avif.h>

static lt_status failed(avifResult result)
{
    lt_status st = result == AVIF_RESULT_OUT_OF_MEMORY ? LT_E_NOMEM : LT_E_FORMAT;
    return lt_fail(st, "avif: %s", avifResultToString(result));
}

/* Parses the header; the caller destroys the decoder in any case. */
static avifResult parse(avifDecoder *d, const uint8_t *bytes, size_t size,
                        const lt_image_limits *limits)
{
    const int64_t most = lt_image_limits_of(limits).pixels;
    d->maxThreads = 1;
    d->ignoreExif = d->ignoreXMP = AVIF_TRUE;
    d->strictFlags =
        AVIF_STRICT_DISABLED; /* files of early encoders lack properties, none that decoding uses */
    d->imageCountLimit = 1 << 16;
    if (most < d->imageSizeLimit)
        d->imageSizeLimit = (uint32_t)most;
    avifResult result = avifDecoderSetIOMemory(d, bytes, size);
    return result == AVIF_RESULT_OK ? avifDecoderParse(d) : result;
}

lt_status lt_avif_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    const lt_image_limits any = {.pixels = INT64_MAX};
    avifDecoder *d = avifDecoderCreate();
    if (!d)
        return lt_fail(LT_E_NOMEM, "avif: no memory for a decoder");
    avifResult result = parse(d, bytes, size, &any);
    if (result == AVIF_RESULT_OK) {
        *width = (int32_t)d->image->width;
        *height = (int32_t)d->image->height;
    }
    avifDecoderDestroy(d);
    return result == AVIF_RESULT_OK ? LT_OK : failed(result);
}

static lt_status convert(avifImage *image, lt_image *out)
{
    enum { COLOURS = 3, BITS = 8 };
    avifRGBImage rgb;
    avifImageFreePlanes(image, AVIF_PLANES_A); /* the conversion would multiply colours by it */
    avifRGBImageSetDefaults(&rgb, image);
    rgb.format = AVIF_RGB_FORMAT_RGB;
    rgb.depth = BITS;
    rgb.rowBytes = image->width * COLOURS;
    LT_TRY(lt_image_reserve(out, (size_t)rgb.rowBytes * image->height));
    rgb.pixels = out->memory;
    avifResult result = avifImageYUVToRGB(image, &rgb);
    return result == AVIF_RESULT_OK ? LT_OK : failed(result);
}

/* Decodes the pixels. An image inside that is larger than the header says is rejected, where
 * libavif would scale it. */
static lt_status decode(avifDecoder *d, const lt_image_limits *limits)
{
    const uint32_t width = d->image->width, height = d->image->height;
    LT_TRY(lt_image_check(limits, width, height));
    d->imageSizeLimit = width * height;
    avifResult result = avifDecoderNextImage(d);
    if (result != AVIF_RESULT_OK)
        return failed(result);
    if (d->image->width != width || d->image->height != height)
        return lt_fail(LT_E_FORMAT, "avif: header and pixels disagree on the size");
    return LT_OK;
}

lt_status lt_avif_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_image *out)
{
    avifDecoder *d = avifDecoderCreate();
    if (!d)
        return lt_fail(LT_E_NOMEM, "avif: no memory for a decoder");
    avifResult result = parse(d, bytes, size, limits);
    lt_status st = result == AVIF_RESULT_OK ? decode(d, limits) : failed(result);
    if (!st)
        st = convert(d->image, out);
    if (!st)
        lt_image_show(out, (int32_t)d->image->width, (int32_t)d->image->height, channels, window);
    avifDecoderDestroy(d);
    return st;
}
