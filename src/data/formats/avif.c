/* AVIF by libavif: the first image. Alpha and the file's own rotation are not applied, as for other
 * formats. The file's size is no bound: AV1 codes a hundred thousand pixels of one colour in a byte. So the limit on
 * pixels is: 8-bit images take 4.4 to 6.5 bytes a pixel here (PNG: 6), deeper ones up to twice as many for their planes. */

#include "base/big_endian.h"
#include "data/formats/decoder.h"

#include <avif/avif.h>
#include <string.h>

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

/* --- The number of a grid's cells, which libavif does not say --- */

typedef struct span {
    const uint8_t *at;
    size_t left;
} span;

/* Reads the next box (ISO/IEC 14496-12, 4.2) from `in`; returns false at the end. */
static bool next_box(span *in, span *box, char type[4])
{
    enum { LONG = 8, HEADER = 8, LONG_HEADER = 16 };
    size_t header = HEADER;
    if (in->left < HEADER)
        return false;
    uint64_t bytes = lt_big_endian(in->at, 4);
    memcpy(type, in->at + 4, 4);
    if (bytes == 1 && in->left >= LONG_HEADER) {
        header = LONG_HEADER;
        bytes = lt_big_endian(in->at + HEADER, LONG);
    } else if (!bytes) {
        bytes = in->left; /* to the end */
    }
    if (bytes < header || bytes > in->left)
        return false;
    *box = (span){in->at + header, (size_t)bytes - header};
    *in = (span){in->at + bytes, in->left - (size_t)bytes};
    return true;
}

/* Returns the content of the first box of that type, after its 4 bytes of version and flags; empty if absent. */
static span find_box(span in, const char *type, uint8_t *version)
{
    enum { FULL = 4 };
    span box;
    char found[4];
    while (next_box(&in, &box, found))
        if (!memcmp(found, type, sizeof found) && box.left >= FULL) {
            *version = *box.at;
            return (span){box.at + FULL, box.left - FULL};
        }
    return (span){0};
}

/* The most images that one is derived from (ISO/IEC 14496-12, 8.11.12: "dimg"), at least 1. */
static uint64_t most_cells(const uint8_t *bytes, size_t size)
{
    uint8_t version = 0;
    uint64_t most = 1;
    char type[4];
    span box, all = find_box(find_box((span){bytes, size}, "meta", &version), "iref", &version);
    const size_t id = version ? 4 : 2; /* bytes of the deriving image's number */
    while (next_box(&all, &box, type))
        if (!memcmp(type, "dimg", sizeof type) && box.left >= id + 2) {
            const uint64_t count = lt_big_endian(box.at + id, 2);
            most = count > most ? count : most;
        }
    return most;
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

/* Decodes the pixels. An image inside of another size than the header says is rejected, where
 * libavif would scale it, and so are cells of a grid that all together have more than four times its pixels: those that
 * go over its right and lower edge may have so many, and libavif holds all before it looks. */
static lt_status decode(avifDecoder *d, const lt_image_limits *limits, uint64_t cells)
{
    const uint64_t small = 1 << 16, times = 4;
    const uint32_t width = d->image->width, height = d->image->height;
    LT_TRY(lt_image_check(limits, width, height));
    const uint64_t all = (uint64_t)width * height, share = times * all / cells;
    const uint64_t most = share > small ? share : small;
    d->imageSizeLimit = (uint32_t)(most < all ? most : all);
    d->imageDimensionLimit = 1; /* limits scaling from here on: smaller images are not scaled up */
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
    lt_status st =
        result == AVIF_RESULT_OK ? decode(d, limits, most_cells(bytes, size)) : failed(result);
    if (!st)
        st = convert(d->image, out);
    if (!st)
        lt_image_show(out, (int32_t)d->image->width, (int32_t)d->image->height, channels, window);
    avifDecoderDestroy(d);
    return st;
}
