/* PNG, BMP and the first frame of GIF by stb_image. Bits beyond 8 per channel and alpha are dropped, as Pillow's
 * convert("RGB") does. */

#include "base/alloc.h"
#include "data/image.h"
#include "data/stb_whole.h"

#include <limits.h>
#include <string.h>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_MAX_DIMENSIONS      (1 << 20)
#define STBI_MALLOC(bytes)       lt_alloc(bytes, 1)
#define STBI_REALLOC(old, bytes) lt_realloc(old, bytes, 1)
#define STBI_FREE(memory)        lt_free(memory)
#include <stb_image.h>

static lt_status failed(void)
{
    const char *why = stbi_failure_reason();
    if (why && !strcmp(why, "outofmem"))
        return lt_fail(LT_E_NOMEM, "image: no memory for the pixels");
    return lt_fail(LT_E_FORMAT, "image: %s", why ? why : "broken picture");
}

lt_status lt_stb_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    int w = 0, h = 0, channels = 0;
    if (size > INT_MAX)
        return lt_fail(LT_E_FORMAT, "image: a file of %zu bytes", size);
    if (!stbi_info_from_memory(bytes, (int)size, &w, &h, &channels))
        return failed();
    *width = w;
    *height = h < -INT_MAX ? 0 : abs(h); /* negative in a BMP: its first row is the top one */
    return LT_OK;
}

lt_status lt_stb_decode(const uint8_t *bytes, size_t size, int channels, lt_window window,
                        lt_picture *out)
{
    int32_t width = 0, height = 0;
    LT_TRY(lt_stb_size(bytes, size, &width, &height));
    LT_TRY(lt_image_check(width, height));
    if (!lt_stb_is_whole(bytes, size))
        return lt_fail(LT_E_FORMAT, "image: the file is truncated");
    int w = 0, h = 0, found = 0;
    uint8_t *pixels = stbi_load_from_memory(bytes, (int)size, &w, &h, &found, channels);
    if (!pixels)
        return failed();

    /* The window is copied: stb's memory has no spare bytes behind it. */
    LT_ASSERT(window.x + window.width <= width && window.y + window.height <= height);
    lt_status st = LT_OK;
    if (w != width || h != height) {
        st = lt_fail(LT_E_FORMAT, "image: header and pixels disagree on the size");
        goto free_pixels;
    }
    size_t row = (size_t)window.width * (size_t)channels, all = (size_t)w * (size_t)channels;
    st = lt_picture_reserve(out, row * (size_t)window.height);
    if (st)
        goto free_pixels;
    const uint8_t *from = pixels + (size_t)window.y * all + (size_t)window.x * (size_t)channels;
    for (size_t y = 0; y < (size_t)window.height; y++)
        memcpy(out->memory + y * row, from + y * all, row);
    out->pixels = out->memory;
    out->stride = row;
    out->width = window.width;
    out->height = window.height;
    out->channels = channels;
free_pixels:
    stbi_image_free(pixels);
    return st;
}
