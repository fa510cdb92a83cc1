/* Decodes the first image of a TIFF file with libtiff, in any format that TIFFRGBAImage converts to 8-bit RGB. Drops
 * alpha without multiplying it in, as Pillow's convert("RGB") does; ignores the orientation. Decodes only the strips or
 * rows of tiles of the window, one after the other; if a single one contains the window, directly into the memory of
 * the result. */

#include "base/alloc.h"
#include "data/formats/decoder.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tiffio.h>

enum { WHY = 256 };

typedef struct source {
    const uint8_t *bytes;
    uint64_t size, at;
    lt_image_timer timer;
    char why[WHY]; /* libtiff's first message */
} source;

static tmsize_t read_callback(thandle_t handle, void *to, tmsize_t bytes)
{
    source *s = handle;
    uint64_t left = s->at < s->size ? s->size - s->at : 0;
    uint64_t count = bytes < 0 ? 0 : (uint64_t)bytes < left ? (uint64_t)bytes : left;
    memcpy(to, s->bytes + (left ? s->at : 0), (size_t)count);
    s->at += count;
    return (tmsize_t)count;
}

static tmsize_t reject_write(thandle_t handle, void *from, tmsize_t bytes)
{
    (void)handle, (void)from, (void)bytes;
    return 0;
}

static toff_t seek_callback(thandle_t handle, toff_t offset, int whence)
{
    source *s = handle;
    s->at = whence == SEEK_CUR ? s->at + offset : whence == SEEK_END ? s->size + offset : offset;
    return s->at;
}

static int ignore_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t size_callback(thandle_t handle)
{
    return ((const source *)handle)->size;
}

__attribute__((format(printf, 4, 0))) static int
on_error(TIFF *tiff, void *context, const char *module, const char *fmt, va_list args)
{
    source *s = context;
    (void)tiff, (void)module;
    if (!*s->why)
        vsnprintf(s->why, WHY, fmt, args);
    return 1;
}

__attribute__((format(printf, 4, 0))) static int
on_warning(TIFF *tiff, void *context, const char *module, const char *fmt, va_list args)
{
    (void)tiff, (void)context, (void)module, (void)fmt, (void)args;
    return 1;
}

static lt_status tiff_error(const source *s)
{
    return lt_fail(LT_E_FORMAT, "tiff: %s", *s->why ? s->why : "corrupt file");
}

/* Opens the file in memory. workspace: largest single allocation of libtiff in bytes. */
static lt_status open_tiff(TIFF **out, source *s, size_t workspace)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options)
        return lt_fail(LT_E_NOMEM, "tiff: no memory to open the file");
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)workspace);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, s);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, s);
    *out = TIFFClientOpenExt("", "rm", s, read_callback, reject_write, seek_callback, ignore_close,
                             size_callback, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return *out ? LT_OK : tiff_error(s);
}

static lt_status read_size(TIFF *tiff, const source *s, int32_t *width, int32_t *height)
{
    uint32_t w = 0, h = 0;
    if (!TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &w) || !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &h)
        || w > INT32_MAX || h > INT32_MAX)
        return tiff_error(s);
    *width = (int32_t)w;
    *height = (int32_t)h;
    return LT_OK;
}

/* Reads the image size and the bits per pixel, at most 64 (four channels of 16). */
static lt_status read_header(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height,
                             uint32_t *bits)
{
    const uint32_t deepest = 64;
    source s = {.bytes = bytes, .size = size};
    uint16_t depth = 0, samples = 0;
    TIFF *tiff = NULL;
    LT_TRY(open_tiff(&tiff, &s, lt_image_workspace_limit(NULL, 0)));
    lt_status st = read_size(tiff, &s, width, height);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &depth);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
    *bits = (uint32_t)depth * samples < deepest ? (uint32_t)depth * samples : deepest;
    TIFFClose(tiff);
    return st;
}

lt_status lt_tiff_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    uint32_t bits;
    return read_header(bytes, size, width, height, &bits);
}

/* Returns the largest compression ratio, or 0 if unknown. */
static uint64_t max_expansion(uint16_t compression)
{
    /* Deflate and LZW: as for PNG and GIF in image.c; PackBits: 128 bytes from 2 */
    enum { DEFLATE = 1032, LZW = 4096 * 8 / 12, PACKBITS = 64 };
    switch (compression) {
    case COMPRESSION_NONE:
        return 1;
    case COMPRESSION_PACKBITS:
        return PACKBITS;
    case COMPRESSION_LZW:
        return LZW;
    case COMPRESSION_DEFLATE:
    case COMPRESSION_ADOBE_DEFLATE:
        return DEFLATE;
    default:
        return 0;
    }
}

/* Rejects a strip or tile size of more than a million bytes that the first one's compressed data cannot expand to,
 * before memory is allocated for it. */
static lt_status check_strip_expansion(TIFF *tiff, size_t size)
{
    const uint64_t large = 1000000;
    uint16_t compression = COMPRESSION_NONE;
    uint64_t stored = TIFFGetStrileByteCount(tiff, 0);
    const uint64_t expanded = TIFFIsTiled(tiff) ? TIFFTileSize64(tiff) : TIFFStripSize64(tiff);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
    const uint64_t ratio = max_expansion(compression);
    stored = stored < size ? stored : size;
    if (ratio && expanded > large && expanded / ratio > stored)
        return lt_fail(
            LT_E_FORMAT,
            "tiff: %llu bytes of the file cannot expand to a strip or tile of %llu bytes",
            (unsigned long long)stored, (unsigned long long)expanded);
    return LT_OK;
}

/* Declares alpha as premultiplied, so that libtiff does not multiply colours by it. */
static void ignore_alpha(TIFF *tiff)
{
    enum { MOST = 16 };
    uint16_t count = 0, kind[MOST] = {EXTRASAMPLE_ASSOCALPHA};
    const uint16_t *kinds = NULL;
    if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) && count > 0 && count <= MOST) {
        memcpy(kind + 1, kinds + 1, (count - 1U) * sizeof *kind);
        TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, (int)count, kind);
    }
}

/* Returns the number of rows in a strip or tile. */
static uint32_t band_rows(TIFF *tiff, uint32_t height)
{
    uint32_t rows = 0;
    if (TIFFIsTiled(tiff))
        TIFFGetField(tiff, TIFFTAG_TILELENGTH, &rows);
    else
        TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &rows);
    return rows < 1 || rows > height ? height : rows;
}

/* Copies the pixels of the window from a band of rows that begins at row y. out may be the same memory as raster: no
 * pixel is overwritten before it is read. */
static void copy_rows(const uint32_t *raster, const TIFFRGBAImage *image, uint32_t y, uint32_t rows,
                      lt_window w, uint8_t *out)
{
    enum { COLOURS = 3 };
    for (uint32_t r = 0; r < rows; r++) {
        int64_t row = (int64_t)y + r - w.y;
        if (row < 0 || row >= w.height)
            continue;
        const uint32_t *from = raster + (size_t)r * image->width + w.x;
        uint8_t *to = out + (size_t)row * (size_t)w.width * COLOURS;
        for (int32_t x = 0; x < w.width; x++, to += COLOURS) {
            const uint32_t pixel = from[x];
            to[0] = (uint8_t)TIFFGetR(pixel);
            to[1] = (uint8_t)TIFFGetG(pixel);
            to[2] = (uint8_t)TIFFGetB(pixel);
        }
    }
}

static lt_status read_bands(TIFFRGBAImage *image, source *s, lt_window w, lt_image *out)
{
    enum { COLOURS = 3 };
    const uint32_t band = band_rows(image->tif, image->height);
    const uint32_t first = (uint32_t)w.y / band * band, end = (uint32_t)(w.y + w.height);
    const size_t pixels = (size_t)band * image->width;
    const bool in_place = end <= first + band;
    uint32_t *raster = NULL, *own = NULL;
    LT_TRY(lt_image_reserve(out, in_place ? pixels * sizeof *raster
                                          : (size_t)w.width * (size_t)w.height * COLOURS));
    if (in_place)
        raster = (uint32_t *)(void *)out->memory; /* aligned by lt_image_reserve() */
    else
        raster = own = lt_alloc(pixels, sizeof *raster);
    if (!raster)
        return LT_E_NOMEM;
    lt_status st = LT_OK;
    image->req_orientation = image->orientation; /* do not reorder rows */
    for (uint32_t y = first; y < end && !(st = lt_image_check_time(&s->timer)); y += band) {
        uint32_t rows = image->height - y < band ? image->height - y : band;
        image->row_offset = (int)y;
        if (!TIFFRGBAImageGet(image, raster, image->width, rows) || *s->why) {
            st = tiff_error(s);
            break;
        }
        copy_rows(raster, image, y, rows, w, out->memory);
    }
    lt_free(own);
    return st;
}

static lt_status read_window(TIFF *tiff, source *s, lt_window w, lt_image *out)
{
    TIFFRGBAImage image;
    char why[1024] = "";
    LT_TRY(check_strip_expansion(tiff, s->size));
    ignore_alpha(tiff);
    if (!TIFFRGBAImageOK(tiff, why) || !TIFFRGBAImageBegin(&image, tiff, 1, why))
        return lt_fail(LT_E_FORMAT, "tiff: %.200s", why);
    lt_status st = read_bands(&image, s, w, out);
    TIFFRGBAImageEnd(&image);
    return st;
}

lt_status lt_tiff_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_image *out)
{
    enum { BYTE_BITS = 8 };
    source s = {.bytes = bytes, .size = size, .timer = lt_image_start_timer(limits)};
    int32_t width = 0, height = 0;
    uint32_t bits = 0;
    TIFF *tiff = NULL;
    LT_TRY(read_header(bytes, size, &width, &height, &bits));
    LT_TRY(lt_image_check_size(limits, width, height));
    LT_TRY(open_tiff(
        &tiff, &s,
        lt_image_workspace_limit(limits, (size_t)width * (size_t)height * bits / BYTE_BITS)));
    lt_status st = read_window(tiff, &s, window, out);
    TIFFClose(tiff);
    LT_TRY(st);
    lt_image_set_rgb_window(out, window.width, window.height, channels,
                            (lt_window){0, 0, window.width, window.height});
    return LT_OK;
}
