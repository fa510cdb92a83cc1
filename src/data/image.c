/* Which decoder an image file is for: JPEG begins with FF D8 FF (ITU-T T.81, B.1.1.3), PNG with
 * 89 'PNG' (ISO 15948, 5.2), BMP with 'BM', GIF with 'GIF8'. The name of a file says nothing: ImageNet has a PNG
 * called .JPEG. */

#include "data/image.h"

#include "base/alloc.h"

#include <string.h>

typedef struct format {
    const char *magic;
    size_t length;
    lt_status (*size)(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height);
    lt_status (*decode)(const uint8_t *bytes, size_t size, int channels, lt_window window,
                        lt_picture *out);
} format;

static lt_status decode_jpeg(const uint8_t *bytes, size_t size, int channels, lt_window window,
                             lt_picture *out)
{
    return lt_jpeg_decode(bytes, size, channels, 1, window, out);
}

static const format formats[] = {
    {"\xff\xd8\xff", 3, lt_jpeg_size, decode_jpeg},
    {"\x89PNG\r\n\x1a\n", 8, lt_stb_size, lt_stb_decode},
    {"BM", 2, lt_stb_size, lt_stb_decode},
    {"GIF8", 4, lt_stb_size, lt_stb_decode},
};

/* NULL, with the message set, if it is none of them. */
static const format *sniff(const uint8_t *bytes, size_t size)
{
    if (!size) {
        (void)lt_fail(LT_E_FORMAT, "image: the file is empty");
        return NULL;
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (size >= formats[i].length && !memcmp(bytes, formats[i].magic, formats[i].length))
            return &formats[i];
    (void)lt_fail(LT_E_FORMAT, "image: neither JPEG, PNG, BMP nor GIF: it begins with %02x %02x",
                  bytes[0], size > 1 ? bytes[1] : 0);
    return NULL;
}

lt_status lt_image_check(int64_t width, int64_t height)
{
    if (width < 1 || height < 1)
        return lt_fail(LT_E_FORMAT, "image: a picture of %d x %d pixels", (int)width, (int)height);
    if (width * height > LT_IMAGE_MAX_PIXELS)
        return lt_fail(LT_E_FORMAT, "image: %d x %d pixels are more than the %d allowed",
                       (int)width, (int)height, LT_IMAGE_MAX_PIXELS);
    return LT_OK;
}

lt_status lt_image_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    const format *f = sniff(bytes, size);
    if (!f)
        return LT_E_FORMAT;
    LT_TRY(f->size(bytes, size, width, height));
    return lt_image_check(*width, *height);
}

lt_status lt_image_decode(const uint8_t *bytes, size_t size, int channels, lt_window window,
                          lt_picture *out)
{
    LT_ASSERT(channels == 1 || channels == 3);
    const format *f = sniff(bytes, size);
    return f ? f->decode(bytes, size, channels, window, out) : LT_E_FORMAT;
}

bool lt_image_shrinks(const uint8_t *bytes, size_t size)
{
    const format *f = sniff(bytes, size);
    return f && f->decode == decode_jpeg && lt_jpeg_shrinks(bytes, size);
}

lt_status lt_image_decode_small(const uint8_t *bytes, size_t size, int channels, int shrink,
                                lt_window window, lt_picture *out)
{
    LT_ASSERT(channels == 1 || channels == 3);
    LT_ASSERT(shrink == 1 || shrink == 2 || shrink == 4 || shrink == 8);
    return lt_jpeg_decode(bytes, size, channels, shrink, window, out);
}

lt_status lt_picture_reserve(lt_picture *picture, size_t bytes)
{
    if (picture->capacity >= bytes && picture->memory)
        return LT_OK;
    lt_picture_clear(picture);
    picture->memory = lt_alloc_aligned(64, bytes + LT_IMAGE_SPARE);
    if (!picture->memory)
        return LT_E_NOMEM;
    picture->capacity = bytes;
    memset(picture->memory + bytes, 0, LT_IMAGE_SPARE);
    return LT_OK;
}

void lt_picture_clear(lt_picture *picture)
{
    lt_free(picture->memory);
    *picture = (lt_picture){0};
}
