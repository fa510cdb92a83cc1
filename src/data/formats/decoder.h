/* Shared by image decoders: the output pixels, and limits of size, memory and time. */
#ifndef LT_DATA_DECODER_H
#define LT_DATA_DECODER_H

#include "lather/ext/fail.h"
#include "lather/transform.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LT_IMAGE_SPARE = 64
}; /* readable bytes after the last pixel, for vector loads: see resize.h */

/* A rectangle of pixels. */
typedef struct lt_window {
    int32_t x, y, width, height;
} lt_window;

/* Decoded pixels, [height][width][channels] with rows stride bytes apart. Owns memory; start with
 * {0}, reuse for the next, end with lt_image_clear(). */
typedef struct lt_image {
    const uint8_t *pixels; /* the window's first pixel; in memory, or borrowed */
    size_t stride;
    int32_t width, height, channels;
    uint8_t *memory;
    size_t capacity;
} lt_image;

/* Allocates memory of bytes and LT_IMAGE_SPARE more, unless it has them. Errors: LT_E_NOMEM. */
lt_status lt_image_reserve(lt_image *image, size_t bytes);
void lt_image_clear(lt_image *image);
/* Sets the fields for a window of the pixels in p->memory, [height][width][channels] without gaps. */
void lt_image_frame(lt_image *p, int32_t width, int channels, lt_window w);
/* Sets the fields for a window of the RGB pixels in p->memory, [height][width][3] without gaps;
 * channels 1: converts them to grey in place first. */
void lt_image_show(lt_image *p, int32_t width, int32_t height, int channels, lt_window w);

/* Grey of a colour: ITU-R BT.601's luma in 16 bits, as Pillow rounds it. */
static inline uint8_t lt_luma(unsigned red, unsigned green, unsigned blue)
{
    return (uint8_t)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

/* limits with the defaults in place of zeros. */
lt_image_limits lt_image_limits_of(const lt_image_limits *limits);
/* Rejects sizes above the limits, before memory is allocated for them. Errors: LT_E_FORMAT. */
lt_status lt_image_check(const lt_image_limits *limits, int64_t width, int64_t height);
/* Bytes that a decoder may allocate at a time for an image whose pixels have so many bytes in the
 * file's own form: 4 times as many, at least 64 MiB, at most 12 for each pixel allowed. */
size_t lt_image_workspace(const lt_image_limits *limits, size_t bytes);
/* The CPU time of the thread that a decoder may take: wall time would reject images on a busy
 * machine. */
typedef struct lt_image_timer {
    double seconds, end;
} lt_image_timer;
lt_image_timer lt_image_start(const lt_image_limits *limits);
/* Errors: LT_E_FORMAT (the time is over). */
lt_status lt_image_check_time(const lt_image_timer *timer);
/* Rejects images of more than a million pixels with more than per_byte pixels for each of the
 * file's size bytes. Errors: LT_E_FORMAT, naming both. */
lt_status lt_image_check_file(size_t size, int per_byte, int64_t width, int64_t height);

/* As lt_image_size() without limits, and lt_image_decode(), of one format. */
typedef lt_status lt_size_fn(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
typedef lt_status lt_decode_fn(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                               int channels, lt_window window, lt_image *out);
/* Each may be a stub that names the missing library (library_stubs.c). */
lt_size_fn lt_stb_size, lt_webp_size, lt_avif_size, lt_tiff_size, lt_pnm_size, lt_jpeg_size;
lt_decode_fn lt_stb_decode, lt_webp_decode, lt_avif_decode, lt_tiff_decode, lt_pnm_decode,
    lt_jpeg_decode;
/* False: a BMP or GIF file ends within the pixels, those of the first frame of a GIF, for which
 * stb_image would take zeros. What is no such file is left to stb_image. */
bool lt_stb_is_whole(const uint8_t *bytes, size_t size);

#endif
