/* Decodes the first image of an AVIF file with libavif. Alpha and the file's rotation are ignored, as in other formats.
 * The file size is no bound on the number of pixels (AV1 can code 100,000 pixels of one colour in a byte), so only the
 * pixel limit bounds memory: 8-bit images take 4.4 to 6.5 bytes per pixel (PNG: 6), deeper ones up to twice that. */

#include "base/big_endian.h"
#include "data/formats/decoder.h"

#include <avif/avif.h>
#include <string.h>

static lt_status avif_error(avifResult result)
{
    lt_status st = result == AVIF_RESULT_OUT_OF_MEMORY ? LT_E_NOMEM : LT_E_FORMAT;
    return lt_fail(st, "avif: %s", avifResultToString(result));
}

/* Parses the header; the caller destroys the decoder in any case. */
static avifResult parse_avif_header(avifDecoder *d, const uint8_t *bytes, size_t size,
                                    const lt_image_limits *limits)
{
    const int64_t most = lt_image_limits_or_defaults(limits).pixels;
    d->maxThreads = 1;
    d->ignoreExif = d->ignoreXMP = AVIF_TRUE;
    d->strictFlags =
        AVIF_STRICT_DISABLED; /* early encoders omit properties that decoding does not need */
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
    avifResult result = parse_avif_header(d, bytes, size, &any);
    if (result == AVIF_RESULT_OK) {
        *width = (int32_t)d->image->width;
        *height = (int32_t)d->image->height;
    }
    avifDecoderDestroy(d);
    return result == AVIF_RESULT_OK ? LT_OK : avif_error(result);
}

/* --- Number of cells of a grid, which libavif does not report --- */

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
    uint64_t bytes = lt_read_big_endian(in->at, 4);
    memcpy(type, in->at + 4, 4);
    if (bytes == 1 && in->left >= LONG_HEADER) {
        header = LONG_HEADER;
        bytes = lt_read_big_endian(in->at + HEADER, LONG);
    } else if (!bytes) {
        bytes = in->left; /* 0 means: up to the end */
    }
    if (bytes < header || bytes > in->left)
        return false;
    *box = (span){in->at + header, (size_t)bytes - header};
    *in = (span){in->at + bytes, in->left - (size_t)bytes};
    return true;
}

/* Returns the content of the first box of this type, after its 4 bytes of version and flags; empty if absent. */
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

/* Returns the largest number of images that an image is derived from (ISO/IEC 14496-12, 8.11.12: "dimg"), at least
 * 1. */
static uint64_t max_grid_cells(const uint8_t *bytes, size_t size)
{
    uint8_t version = 0;
    uint64_t most = 1;
    char type[4];
    span box, all = find_box(find_box((span){bytes, size}, "meta", &version), "iref", &version);
    const size_t id = version ? 4 : 2; /* bytes of the ID of the derived image */
    while (next_box(&all, &box, type))
        if (!memcmp(type, "dimg", sizeof type) && box.left >= id + 2) {
            const uint64_t count = lt_read_big_endian(box.at + id, 2);
            most = count > most ? count : most;
        }
    return most;
}

static lt_status convert_to_rgb(avifImage *image, lt_image *out)
{
    enum { COLOURS = 3, BITS = 8 };
    avifRGBImage rgb;
    avifImageFreePlanes(image,
                        AVIF_PLANES_A); /* otherwise the conversion multiplies colours by alpha */
    avifRGBImageSetDefaults(&rgb, image);
    rgb.format = AVIF_RGB_FORMAT_RGB;
    rgb.depth = BITS;
    rgb.rowBytes = image->width * COLOURS;
    LT_TRY(lt_image_reserve(out, (size_t)rgb.rowBytes * image->height));
    rgb.pixels = out->memory;
    avifResult result = avifImageYUVToRGB(image, &rgb);
    return result == AVIF_RESULT_OK ? LT_OK : avif_error(result);
}

/* Decodes the pixels. Rejects an image whose size differs from the header's (libavif would scale it), and a grid whose
 * cells have more than four times its pixels in total: cells that overlap the right and lower edges can reach that, and
 * libavif allocates all cells before it checks. */
static lt_status decode_pixels(avifDecoder *d, const lt_image_limits *limits, uint64_t cells)
{
    const uint64_t small = 1 << 16, times = 4;
    const uint32_t width = d->image->width, height = d->image->height;
    LT_TRY(lt_image_check_size(limits, width, height));
    const uint64_t all = (uint64_t)width * height, share = times * all / cells;
    const uint64_t most = share > small ? share : small;
    d->imageSizeLimit = (uint32_t)(most < all ? most : all);
    d->imageDimensionLimit = 1; /* limits scaling from here on: smaller images are not scaled up */
    avifResult result = avifDecoderNextImage(d);
    if (result != AVIF_RESULT_OK)
        return avif_error(result);
    if (d->image->width != width || d->image->height != height)
        return lt_fail(LT_E_FORMAT, "avif: the header has %u x %u pixels, the image %u x %u", width,
                       height, d->image->width, d->image->height);
    return LT_OK;
}

lt_status lt_avif_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_image *out)
{
    avifDecoder *d = avifDecoderCreate();
    if (!d)
        return lt_fail(LT_E_NOMEM, "avif: no memory for a decoder");
    avifResult result = parse_avif_header(d, bytes, size, limits);
    lt_status st = result == AVIF_RESULT_OK ? decode_pixels(d, limits, max_grid_cells(bytes, size))
                                            : avif_error(result);
    if (!st)
        st = convert_to_rgb(d->image, out);
    if (!st)
        lt_image_set_rgb_window(out, (int32_t)d->image->width, (int32_t)d->image->height, channels,
                                window);
    avifDecoderDestroy(d);
    return st;
}
