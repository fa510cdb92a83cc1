/* Selects the decoder by the first bytes of the file: JPEG begins with FF D8 FF (ITU-T T.81, B.1.1.3), PNG with 89
 * 'PNG' (ISO 15948, 5.2), BMP with 'BM', GIF with 'GIF8', TIFF with its byte order and 42, BigTIFF 43; WebP is a RIFF
 * file, AVIF an ISO base media file. Extensions are ignored: ImageNet has a PNG named .JPEG. */

#include "data/formats/image.h"

#include "base/big_endian.h"
#include "data/formats/jpeg.h"

#include <string.h>

typedef struct format {
    const char *magic;
    size_t length, at; /* size and offset of the magic bytes */
    int per_byte;      /* largest number of pixels per byte of the file; 0: no bound */
    lt_size_fn *size;
    lt_decode_fn *decode;
} format;

enum {
    /* Deflate expands a byte to at most 1032 (RFC 1951, 3.2.5: 258 from 2 bits), each with 8 pixels of 1 bit. */
    PNG_PER_BYTE = 1032 * 8,
    /* A code of 12 bits represents at most 4096 pixels (GIF 89a, appendix F). */
    GIF_PER_BYTE = 4096 * 8 / 12,
    BMP_PER_BYTE = 8,
    PNM_PER_BYTE = 1
};

static const format formats[] = {
    {"\xff\xd8\xff", 3, 0, 0, lt_jpeg_size, lt_jpeg_decode},
    {"\x89PNG\r\n\x1a\n", 8, 0, PNG_PER_BYTE, lt_stb_size, lt_stb_decode},
    {"BM", 2, 0, BMP_PER_BYTE, lt_stb_size, lt_stb_decode},
    {"GIF8", 4, 0, GIF_PER_BYTE, lt_stb_size, lt_stb_decode},
    {"WEBP", 4, 8, 0, lt_webp_size, lt_webp_decode},
    {"ftyp", 4, 4, 0, lt_avif_size, lt_avif_decode},
    {"II*\0", 4, 0, 0, lt_tiff_size, lt_tiff_decode},
    {"MM\0*", 4, 0, 0, lt_tiff_size, lt_tiff_decode},
    {"II+\0", 4, 0, 0, lt_tiff_size, lt_tiff_decode},
    {"MM\0+", 4, 0, 0, lt_tiff_size, lt_tiff_decode},
    {"P2", 2, 0, PNM_PER_BYTE, lt_pnm_size, lt_pnm_decode},
    {"P3", 2, 0, PNM_PER_BYTE, lt_pnm_size, lt_pnm_decode},
    {"P5", 2, 0, PNM_PER_BYTE, lt_pnm_size, lt_pnm_decode},
    {"P6", 2, 0, PNM_PER_BYTE, lt_pnm_size, lt_pnm_decode},
};

/* Looks for AVIF's brands in the "ftyp" box (ISO 14496-12, 4.3: major brand, version, compatible brands), which HEIC
 * and video files have too. Sets the error message if it finds none. */
static bool is_avif(const uint8_t *b, size_t size)
{
    enum { MAJOR = 8, BRAND = 4 };
    const uint64_t box = lt_read_big_endian(b, BRAND);
    for (size_t at = MAJOR; at + BRAND <= size && at + BRAND <= box; at += BRAND)
        if (!memcmp(b + at, "avif", BRAND) || !memcmp(b + at, "avis", BRAND))
            return true;
    const bool heic =
        size >= MAJOR + BRAND && (!memcmp(b + MAJOR, "he", 2) || !memcmp(b + MAJOR, "mif1", BRAND));
    (void)lt_fail(LT_E_FORMAT, "image: the file is %s, which is not supported",
                  heic ? "HEIC" : "MP4, QuickTime or another ISO media file without an image");
    return false;
}

/* Returns the format, or NULL with the error message set. */
static const format *detect_format(const uint8_t *bytes, size_t size)
{
    if (!size) {
        (void)lt_fail(LT_E_FORMAT, "image: the file is empty");
        return NULL;
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (size >= formats[i].at + formats[i].length
            && !memcmp(bytes + formats[i].at, formats[i].magic, formats[i].length))
            return formats[i].size != lt_avif_size || is_avif(bytes, size) ? &formats[i] : NULL;
    (void)lt_fail(LT_E_FORMAT,
                  "image: neither JPEG, PNG, BMP, GIF, WebP, AVIF, TIFF, PGM nor PPM: it begins "
                  "with %02x %02x",
                  bytes[0], size > 1 ? bytes[1] : 0);
    return NULL;
}

lt_status lt_image_size(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int32_t *width, int32_t *height)
{
    const format *f = detect_format(bytes, size);
    if (!f)
        return LT_E_FORMAT;
    LT_TRY(f->size(bytes, size, width, height));
    LT_TRY(lt_image_check_size(limits, *width, *height));
    return f->per_byte ? lt_image_check_expansion(size, f->per_byte, *width, *height) : LT_OK;
}

lt_status lt_image_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                          int channels, lt_window window, lt_image *out)
{
    LT_ASSERT(channels == 1 || channels == 3);
    const format *f = detect_format(bytes, size);
    return f ? f->decode(bytes, size, limits, channels, window, out) : LT_E_FORMAT;
}

bool lt_image_can_shrink(const uint8_t *bytes, size_t size)
{
    const format *f = detect_format(bytes, size);
    return f && f->decode == lt_jpeg_decode && lt_jpeg_can_shrink(bytes, size);
}

lt_status lt_image_decode_shrunk(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                 int channels, int shrink, lt_window window, lt_image *out)
{
    LT_ASSERT(channels == 1 || channels == 3);
    LT_ASSERT(shrink == 1 || shrink == 2 || shrink == 4 || shrink == 8);
    return lt_jpeg_decode_shrunk(bytes, size, limits, channels, shrink, window, out);
}
