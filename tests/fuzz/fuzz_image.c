/* Image files: any bytes give an error or pixels, and a window's pixels equal those of the whole image, also for JPEG at
 * 1/2, 1/4 and 1/8 of its size. */

#include "data/formats/image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MOST = 1 << 20 }; /* pixels, to limit the time */

static void compare(const lt_image *part, const lt_image *whole, lt_window w)
{
    for (int32_t y = 0; y < w.height; y++) {
        const uint8_t *a = part->pixels + (size_t)y * part->stride;
        const uint8_t *b =
            whole->pixels + (size_t)(w.y + y) * whole->stride + (size_t)(w.x * whole->channels);
        LT_ASSERT(!memcmp(a, b, (size_t)(w.width * part->channels)));
    }
}

static void check_shrunk(const uint8_t *bytes, size_t size, int shrink, int32_t width,
                         int32_t height)
{
    int32_t w = (width + shrink - 1) / shrink, h = (height + shrink - 1) / shrink;
    lt_window all = {0, 0, w, h}, window = {w / 3, h / 4, w - w / 3, (h - h / 4 + 1) / 2};
    lt_image part = {0}, whole = {0};
    lt_status a = lt_image_decode_shrunk(bytes, size, NULL, 3, shrink, window, &part);
    lt_status b = lt_image_decode_shrunk(bytes, size, NULL, 3, shrink, all, &whole);
    if (!a && !b)
        compare(&part, &whole, window);
    lt_image_clear(&part);
    lt_image_clear(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    int32_t width, height;
    if (lt_image_size(bytes, size, NULL, &width, &height) || (int64_t)width * height > MOST)
        return 0;
    /* A random window that depends only on the size, for reproducible runs. */
    uint32_t seed = (uint32_t)size * 2654435761U;
    lt_window w = {.x = (int32_t)(seed % (uint32_t)width),
                   .y = (int32_t)(seed / 7 % (uint32_t)height)};
    w.width = 1 + (int32_t)(seed / 49 % (uint32_t)(width - w.x));
    w.height = 1 + (int32_t)(seed / 343 % (uint32_t)(height - w.y));
    if (lt_image_can_shrink(bytes, size))
        for (int shrink = 2; shrink <= 8; shrink *= 2)
            check_shrunk(bytes, size, shrink, width, height);
    for (int channels = 1; channels <= 3; channels += 2) {
        lt_image part = {0}, whole = {0};
        lt_status a = lt_image_decode(bytes, size, NULL, channels, w, &part);
        lt_status b =
            lt_image_decode(bytes, size, NULL, channels, (lt_window){0, 0, width, height}, &whole);
        if (!a && !b)
            compare(&part, &whole, w);
        lt_image_clear(&part);
        lt_image_clear(&whole);
    }
    return 0;
}
