/* Decoding of image files in memory: JPEG, PNG, BMP, GIF, told apart by their first bytes. */
#ifndef LT_DATA_IMAGE_H
#define LT_DATA_IMAGE_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LT_IMAGE_MAX_PIXELS = 1 << 27, /* larger ones are refused before anything is allocated */
    LT_IMAGE_SPARE = 64            /* readable bytes behind the last pixel: see resize.h */
};

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

/* Size of the picture, from the header. Errors: LT_E_FORMAT, LT_E_UNSUPPORTED. */
lt_status lt_image_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
/* Decodes the window, which lies in the picture, to 1 or 3 channels; the same pixels as the same
 * part of the whole picture. Errors: LT_E_FORMAT, LT_E_UNSUPPORTED, LT_E_NOMEM. */
lt_status lt_image_decode(const uint8_t *bytes, size_t size, int channels, lt_window window,
                          lt_picture *out);

/* Whether the file can be decoded at 1/2, 1/4 and 1/8 of its size, sides rounded up: JPEG of usual
 * sampling. */
bool lt_image_shrinks(const uint8_t *bytes, size_t size);
/* lt_image_decode() of such a file at 1/shrink of its size; the window is in these pixels. */
lt_status lt_image_decode_small(const uint8_t *bytes, size_t size, int channels, int shrink,
                                lt_window window, lt_picture *out);

/* Refuses sizes that no picture has, before memory is taken for it. Errors: LT_E_FORMAT. */
lt_status lt_image_check(int64_t width, int64_t height);

/* The decoders behind them; each may be a stand-in that names the missing library. */
lt_status lt_jpeg_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
bool lt_jpeg_shrinks(const uint8_t *bytes, size_t size);
lt_status lt_jpeg_decode(const uint8_t *bytes, size_t size, int channels, int shrink,
                         lt_window window, lt_picture *out);
lt_status lt_stb_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
lt_status lt_stb_decode(const uint8_t *bytes, size_t size, int channels, lt_window window,
                        lt_picture *out);

#endif
