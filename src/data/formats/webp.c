/* Decodes WebP with libwebp. Drops alpha, as Pillow's convert("RGB") does. */

#include "data/formats/decoder.h"

#include <webp/decode.h>

static lt_status webp_error(VP8StatusCode code)
{
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return lt_fail(LT_E_NOMEM, "webp: no memory for the pixels");
    bool cut = code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED;
    return lt_fail(LT_E_FORMAT, "webp: %s", cut ? "the file is truncated" : "corrupt file");
}

static lt_status read_features(const uint8_t *bytes, size_t size, WebPBitstreamFeatures *out)
{
    VP8StatusCode code = WebPGetFeatures(bytes, size, out);
    if (code != VP8_STATUS_OK)
        return webp_error(code);
    return out->has_animation ? lt_fail(LT_E_FORMAT, "webp: animations are not supported") : LT_OK;
}

lt_status lt_webp_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    WebPBitstreamFeatures f;
    LT_TRY(read_features(bytes, size, &f));
    *width = f.width;
    *height = f.height;
    return LT_OK;
}

lt_status lt_webp_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_image *out)
{
    enum { COLOURS = 3 };
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c))
        return lt_fail(LT_E_UNSUPPORTED,
                       "webp: the installed libwebp has another version than this build's header");
    LT_TRY(read_features(bytes, size, &c.input));
    LT_TRY(lt_image_check_size(limits, c.input.width, c.input.height));
    size_t stride = (size_t)c.input.width * COLOURS, all = stride * (size_t)c.input.height;
    LT_TRY(lt_image_reserve(out, all));
    c.output.colorspace = MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA.rgba = out->memory;
    c.output.u.RGBA.stride = (int)stride;
    c.output.u.RGBA.size = all;
    VP8StatusCode code = WebPDecode(bytes, size, &c);
    WebPFreeDecBuffer(&c.output);
    if (code != VP8_STATUS_OK)
        return webp_error(code);
    lt_image_set_rgb_window(out, c.input.width, c.input.height, channels, window);
    return LT_OK;
}
