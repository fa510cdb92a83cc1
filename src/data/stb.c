/* PNG, BMP and the first frame of GIF by stb_image. Bits beyond 8 per channel and alpha are dropped, as Pillow's
 * convert("RGB") does. */

#include "base/alloc.h"
#include "data/image.h"
#include "data/stb_whole.h"

#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
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
#define STBI_MALLOC(bytes)       take(NULL, bytes)
#define STBI_REALLOC(old, bytes) take(old, bytes)
#define STBI_FREE(memory)        give_back(memory)

/* What stb_image may still take on this thread: what a file inflates to may be more than its header says. */
static _Thread_local size_t room;
static _Thread_local bool too_much, starved;

static void give_back(void *memory)
{
    room += malloc_usable_size(memory);
    lt_free(memory);
}

static void *take(void *old, size_t bytes)
{
    size_t had = malloc_usable_size(old);
    if (bytes > had && bytes - had > room) {
        too_much = true;
        return NULL;
    }
    void *memory = old ? lt_realloc(old, bytes, 1) : lt_alloc(bytes, 1);
    starved = starved || !memory;
    if (memory) {
        size_t has = malloc_usable_size(memory); /* of a page more, perhaps */
        room = has > room + had ? 0 : room + had - has;
    }
    return memory;
}

#include <stb_image.h>

static void start(size_t bytes)
{
    room = bytes;
    too_much = starved = false;
}

/* Of a PNG file that stb_image would not look at, as it has 2^30 bytes of pixels or more; ISO 15948, 11.2.2. */
static bool png_size(const uint8_t *b, size_t size, int32_t *width, int32_t *height)
{
    enum { WIDTH = 16, HEIGHT = 20, END = 24, COLOURS = 4 };
    const uint32_t most = 1U << 30;
    if (size < END || *b != 0x89)
        return false;
    uint32_t w = (uint32_t)b[WIDTH] << 24 | (uint32_t)b[WIDTH + 1] << 16
                 | (uint32_t)b[WIDTH + 2] << 8 | b[WIDTH + 3];
    uint32_t h = (uint32_t)b[HEIGHT] << 24 | (uint32_t)b[HEIGHT + 1] << 16
                 | (uint32_t)b[HEIGHT + 2] << 8 | b[HEIGHT + 3];
    if (w > INT32_MAX || h > INT32_MAX || (uint64_t)w * h < most / COLOURS)
        return false;
    *width = (int32_t)w;
    *height = (int32_t)h;
    return true;
}

static lt_status fail_room(void)
{
    return lt_fail(LT_E_FORMAT, "image: its pixels take more memory than a picture may");
}

static lt_status failed(void)
{
    const char *why = stbi_failure_reason();
    if (too_much)
        return fail_room();
    if (starved)
        return lt_fail(LT_E_NOMEM, "image: no memory for the pixels");
    return lt_fail(LT_E_FORMAT, "image: %s", why ? why : "broken picture");
}

lt_status lt_stb_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    int w = 0, h = 0, channels = 0;
    if (size > INT_MAX)
        return lt_fail(LT_E_FORMAT, "image: a file of %zu bytes", size);
    if (png_size(bytes, size, width, height))
        return LT_OK;
    start(lt_image_room(NULL, 0));
    if (!stbi_info_from_memory(bytes, (int)size, &w, &h, &channels))
        return failed();
    *width = w;
    *height = h < -INT_MAX ? 0 : abs(h); /* negative in a BMP: its first row is the top one */
    return LT_OK;
}

/* Sets the room of a picture; stb_image needs twice the bytes that its pixels have in the file, at least. */
static lt_status make_room(const uint8_t *bytes, size_t size, const lt_image_limits *limits)
{
    int32_t w = 0, h = 0;
    int channels = 0;
    if (png_size(bytes, size, &w, &h))
        return lt_fail(LT_E_FORMAT, "image: %d x %d pixels are more than stb_image reads", (int)w,
                       (int)h);
    if (!stbi_info_from_memory(bytes, (int)size, &w, &h, &channels))
        return failed();
    size_t deep = stbi_is_16_bit_from_memory(bytes, (int)size) ? 2 : 1;
    size_t needed = (size_t)w * (size_t)abs(h) * (size_t)channels * deep;
    start(lt_image_room(limits, needed));
    return 2 * needed > room ? fail_room() : LT_OK;
}

lt_status lt_stb_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int channels, lt_window window, lt_picture *out)
{
    int32_t width = 0, height = 0;
    LT_TRY(lt_stb_size(bytes, size, &width, &height));
    LT_TRY(lt_image_check(limits, width, height));
    if (!lt_stb_is_whole(bytes, size))
        return lt_fail(LT_E_FORMAT, "image: the file is truncated");
    LT_TRY(make_room(bytes, size, limits));
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
