/* Decoding of image files in memory: JPEG, PNG, BMP, GIF, WebP, AVIF, TIFF, PGM and PPM, told apart by their first
 * bytes. */
#ifndef LT_DATA_IMAGE_H
#define LT_DATA_IMAGE_H

#include "lather/ext/fail.h"
#include "lather/transform.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LT_IMAGE_SPARE = 64 }; /* readable bytes behind the last pixel: see resize.h */

/* A rectangle of pixels. */
typedef struct lt_window {
    int32_t x, y, width, height;
} lt_window;

/* Decoded pixels, [height][width][channels] with rows stride bytes apart. Owns memory; start with
 * {0}, reuse for the next, end with lt_picture_clear(). */
typedef struct lt_picture {
    const uint8_t *pixels; /* of the window's first pixel; inside memory, or borrowed */
    size_t stride;
    int32_t width, height, channels;
    uint8_t *memory;
    size_t capacity;
} lt_picture;

/* Makes picture->memory hold bytes, and LT_IMAGE_SPARE behind them. Errors: LT_E_NOMEM. */
lt_status lt_picture_reserve(lt_picture *picture, size_t bytes);
void lt_picture_clear(lt_picture *picture);
/* Of pixels of red, green and blue without gaps in picture->memory, width x height of them: shows the window
 * of them, or of their grey if channels is 1. */
void lt_picture_show(lt_picture *picture, int32_t width, int32_t height, int channels,
                     lt_window window);

/* Grey of a colour: ITU-R BT.601's luma in 16 bits, as Pillow rounds it. */
static inline uint8_t lt_luma(unsigned red, unsigned green, unsigned blue)
{
    return (uint8_t)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

/* Everywhere, limits of NULL are those of zeros. */

/* Size of the picture, from the header. Errors: LT_E_FORMAT (also a picture above the limits, or one that
 * so short a file cannot hold), LT_E_UNSUPPORTED. */
lt_status lt_image_size(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int32_t *width, int32_t *height);
/* Decodes the window, which lies in the picture, to 1 or 3 channels; the same pixels as the same
 * part of the whole picture. Errors: LT_E_FORMAT, LT_E_UNSUPPORTED, LT_E_NOMEM. */
lt_status lt_image_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                          int channels, lt_window window, lt_picture *out);

/* Whether the file can be decoded at 1/2, 1/4 and 1/8 of its size, sides rounded up: JPEG of usual
 * sampling. */
bool lt_image_shrinks(const uint8_t *bytes, size_t size);
/* lt_image_decode() of such a file at 1/shrink of its size; the window is in these pixels. */
lt_status lt_image_decode_small(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                int channels, int shrink, lt_window window, lt_picture *out);

/* With what zeros stand for filled in. */
lt_image_limits lt_image_limits_of(const lt_image_limits *limits);
/* Refuses sizes above the limits, before memory is taken for them. Errors: LT_E_FORMAT. */
lt_status lt_image_check(const lt_image_limits *limits, int64_t width, int64_t height);
/* Bytes that a decoder may have at a time for a picture whose pixels are so many bytes in the file's own
 * form: 4 times them, of small pictures 64 MiB, and never more than 12 for each pixel allowed. */
size_t lt_image_room(const lt_image_limits *limits, size_t bytes);
/* The time that a decoder may take, on the clock of its thread: a busy machine makes no picture broken. */
typedef struct lt_image_timer {
    double seconds, end;
} lt_image_timer;
lt_image_timer lt_image_start(const lt_image_limits *limits);
/* Errors: LT_E_FORMAT (the time is over). */
lt_status lt_image_check_time(const lt_image_timer *timer);
/* Errors: LT_E_FORMAT, naming both: size bytes of file hold at most per_byte pixels each, but for a
 * million pixels that any file may have. */
lt_status lt_image_check_file(size_t size, int per_byte, int64_t width, int64_t height);

/* The decoders behind them, and those of jpeg.h; each may be a stand-in that names the missing library. */
lt_status lt_stb_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
lt_status lt_stb_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int channels, lt_window window, lt_picture *out);
/* False: a BMP or GIF file ends within the pixels, those of the first frame of a GIF, for which stb_image
 * would take zeros. What is no such file is left to stb_image. */
bool lt_stb_is_whole(const uint8_t *bytes, size_t size);
lt_status lt_webp_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
lt_status lt_webp_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_picture *out);
lt_status lt_avif_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
lt_status lt_avif_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_picture *out);
lt_status lt_tiff_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
lt_status lt_tiff_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_picture *out);
lt_status lt_pnm_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
lt_status lt_pnm_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int channels, lt_window window, lt_picture *out);

#endif
