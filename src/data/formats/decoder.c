/* Memory of decoded pixels, and limits for all decoders. */

#include "data/formats/decoder.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <inttypes.h>
#include <string.h>

enum {
    MILLION = 1000000,
    WORKSPACE = 64 << 20 /* smallest memory limit of a decoder in bytes */
};

lt_image_limits lt_image_limits_or_defaults(const lt_image_limits *limits)
{
    const int64_t pixels = INT64_C(100) * MILLION; /* near Pillow's warning limit */
    const double seconds = 10;
    lt_image_limits l = limits ? *limits : (lt_image_limits){0};
    l.pixels = l.pixels > 0 ? l.pixels : pixels;
    l.seconds = l.seconds > 0 ? l.seconds : seconds;
    return l;
}

lt_status lt_image_check_size(const lt_image_limits *limits, int64_t width, int64_t height)
{
    lt_image_limits l = lt_image_limits_or_defaults(limits);
    if (width < 1 || height < 1)
        return lt_fail(LT_E_FORMAT, "image: %d x %d pixels, want at least 1 x 1", (int)width,
                       (int)height);
    if (width > l.pixels / height)
        return lt_fail(LT_E_FORMAT,
                       "image: %d x %d pixels are more than the %" PRId64
                       " allowed (--max-image-pixels)",
                       (int)width, (int)height, l.pixels);
    return LT_OK;
}

size_t lt_image_workspace_limit(const lt_image_limits *limits, size_t bytes)
{
    const size_t times = 4, colours = 3;
    size_t most = times * colours * (size_t)lt_image_limits_or_defaults(limits).pixels;
    size_t allowed = bytes > most / times ? most : times * bytes;
    return allowed < WORKSPACE ? WORKSPACE : allowed;
}

lt_image_timer lt_image_start_timer(const lt_image_limits *limits)
{
    double seconds = lt_image_limits_or_defaults(limits).seconds;
    return (lt_image_timer){.seconds = seconds, .end = lt_clock_thread_cpu_seconds() + seconds};
}

lt_status lt_image_check_time(const lt_image_timer *timer)
{
    if (lt_clock_thread_cpu_seconds() > timer->end)
        return lt_fail(LT_E_FORMAT,
                       "image: decoding takes more than %g seconds (--max-image-seconds)",
                       timer->seconds);
    return LT_OK;
}

lt_status lt_image_check_expansion(size_t size, int per_byte, int64_t width, int64_t height)
{
    if (width * height > MILLION && (uint64_t)(width * height) / (uint64_t)per_byte > size)
        return lt_fail(LT_E_FORMAT, "image: a file of %zu bytes cannot contain %d x %d pixels",
                       size, (int)width, (int)height);
    return LT_OK;
}

lt_status lt_image_reserve(lt_image *image, size_t bytes)
{
    if (image->capacity >= bytes && image->memory)
        return LT_OK;
    lt_image_clear(image);
    image->memory = lt_alloc_aligned(64, bytes + LT_IMAGE_PADDING);
    if (!image->memory)
        return LT_E_NOMEM;
    image->capacity = bytes;
    memset(image->memory + bytes, 0, LT_IMAGE_PADDING);
    return LT_OK;
}

void lt_image_set_window(lt_image *p, int32_t width, int channels, lt_window w)
{
    p->stride = (size_t)width * (size_t)channels;
    p->pixels = p->memory + (size_t)w.y * p->stride + (size_t)w.x * (size_t)channels;
    p->width = w.width;
    p->height = w.height;
    p->channels = channels;
}

void lt_image_set_rgb_window(lt_image *p, int32_t width, int32_t height, int channels, lt_window w)
{
    size_t count = (size_t)width * (size_t)height;
    uint8_t *at = p->memory;
    for (size_t i = 0; channels == 1 && i < count; i++)
        at[i] = lt_luma(at[3 * i], at[3 * i + 1], at[3 * i + 2]);
    lt_image_set_window(p, width, channels, w);
}

void lt_image_clear(lt_image *image)
{
    lt_free(image->memory);
    *image = (lt_image){0};
}
