/* Interface of the image decoders: output pixels, and limits of size, memory and time. */
#ifndef LT_DATA_DECODER_H
#define LT_DATA_DECODER_H

#include "lather/ext/fail.h"
#include "lather/transform.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LT_IMAGE_PADDING = 64
}; /* readable bytes after the last pixel, for vector loads (resize.h) */

/* A rectangle in pixels. */
typedef struct lt_window {
    int32_t x, y, width, height;
} lt_window;

/* Decoded pixels, [height][width][channels] with rows stride bytes apart. Owns memory. Starts as {0}; may be reused for
 * the next image; free with lt_image_clear(). */
typedef struct lt_image {
    const uint8_t *pixels; /* first pixel of the window; inside memory, or borrowed */
    size_t stride;
    int32_t width, height, channels;
    uint8_t *memory;
    size_t capacity;
} lt_image;

/* Grows memory to bytes + LT_IMAGE_PADDING if it is smaller. Errors: LT_E_NOMEM. */
lt_status lt_image_reserve(lt_image *image, size_t bytes);
void lt_image_clear(lt_image *image);
/* Makes the image a window of the contiguous pixels in p->memory, [height][width][channels]. */
void lt_image_set_window(lt_image *p, int32_t width, int channels, lt_window w);
/* Makes the image a window of the contiguous RGB pixels in p->memory, [height][width][3]. channels 1: converts them to
 * grey in place first. */
void lt_image_set_rgb_window(lt_image *p, int32_t width, int32_t height, int channels, lt_window w);

/* Returns the grey value of a colour: ITU-R BT.601's luma in 16-bit fixed point, rounded as in Pillow. */
static inline uint8_t lt_luma(unsigned red, unsigned green, unsigned blue)
{
    return (uint8_t)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

/* Returns limits with defaults in place of zeros. limits may be NULL. */
lt_image_limits lt_image_limits_or_defaults(const lt_image_limits *limits);
/* Rejects sizes above the limits, before memory is allocated for them. Errors: LT_E_FORMAT. */
lt_status lt_image_check_size(const lt_image_limits *limits, int64_t width, int64_t height);
/* Returns the bytes that a decoder may have allocated at any time, for an image whose uncompressed pixels have `bytes`
 * bytes in the file's sample format: 4 times that, at least 64 MiB, at most 12 bytes per pixel allowed. */
size_t lt_image_workspace_limit(const lt_image_limits *limits, size_t bytes);
/* Timer that limits the CPU time of a decoding thread. (Wall time would reject images on a busy machine.) */
typedef struct lt_image_timer {
    double seconds, end;
} lt_image_timer;
lt_image_timer lt_image_start_timer(const lt_image_limits *limits);
/* Checks the CPU time since lt_image_start_timer(). Errors: LT_E_FORMAT after the limit. */
lt_status lt_image_check_time(const lt_image_timer *timer);
/* Rejects images of more than a million pixels that have more than per_byte pixels per byte of the file. Errors:
 * LT_E_FORMAT, with both sizes. */
lt_status lt_image_check_expansion(size_t size, int per_byte, int64_t width, int64_t height);

/* Types of the decoders of one format: lt_image_size() without limits, and lt_image_decode(). */
typedef lt_status lt_size_fn(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
typedef lt_status lt_decode_fn(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                               int channels, lt_window window, lt_image *out);
/* Decoders; each may be a stub that names the missing library (library_stubs.c). */
lt_size_fn lt_stb_size, lt_webp_size, lt_avif_size, lt_tiff_size, lt_pnm_size, lt_jpeg_size;
lt_decode_fn lt_stb_decode, lt_webp_decode, lt_avif_decode, lt_tiff_decode, lt_pnm_decode,
    lt_jpeg_decode;
/* Returns false if a BMP or GIF file is truncated within the pixels (GIF: of the first frame), which stb_image would
 * replace by zeros. Returns true for other formats. */
bool lt_stb_is_complete(const uint8_t *bytes, size_t size);

#endif
