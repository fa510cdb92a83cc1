/* Encodes the records of a pack: the original file, a transcoded JPEG with the same coefficients, a smaller JPEG, or
 * pixels. */

#include "base/alloc.h"
#include "data/formats/exif.h"
#include "data/formats/jpeg.h"
#include "data/pack/pack.h"
#include "data/transform/resize.h"

#include <string.h>

struct lt_pack_encoder {
    lt_pack_config config;
    lt_image whole, transcoded, intermediate, small;
    lt_taps x, y;
};

lt_status lt_pack_encoder_new(lt_pack_encoder **out, const lt_pack_config *config)
{
    lt_pack_encoder *e = NULL;
    LT_TRY(LT_ALLOC(&e, 1));
    e->config = *config;
    *out = e;
    return LT_OK;
}

void lt_pack_encoder_free(lt_pack_encoder **encoder)
{
    lt_pack_encoder *e = *encoder;
    *encoder = NULL;
    if (!e)
        return;
    lt_image_clear(&e->whole);
    lt_image_clear(&e->transcoded);
    lt_image_clear(&e->intermediate);
    lt_image_clear(&e->small);
    lt_taps_clear(&e->x);
    lt_taps_clear(&e->y);
    lt_free(e);
}

static lt_status decode_whole(const lt_pack_encoder *e, const lt_record *r, int channels,
                              lt_image *out)
{
    const lt_image_limits *limits = &e->config.limits;
    lt_window w = {0};
    LT_TRY(lt_image_size(r->bytes, r->size, limits, &w.width, &w.height));
    return lt_image_decode(r->bytes, r->size, limits, channels, w, out);
}

static bool same_pixels(const lt_image *a, const lt_image *b)
{
    size_t bytes = (size_t)a->width * (size_t)a->channels;
    if (a->width != b->width || a->height != b->height)
        return false;
    for (int32_t y = 0; y < a->height; y++)
        if (memcmp(a->pixels + (size_t)y * a->stride, b->pixels + (size_t)y * b->stride, bytes)
            != 0)
            return false;
    return true;
}

/* Replaces the bytes of the record; keeps its label and encoding. */
static lt_status replace_bytes(lt_record *r, const uint8_t *bytes, size_t size)
{
    int32_t label = r->label;
    lt_encoding encoding = r->encoding;
    LT_TRY(lt_record_reserve(r, size));
    memcpy(r->bytes, bytes, size);
    r->size = size;
    r->label = label;
    r->encoding = encoding;
    return LT_OK;
}

static bool is_jpeg(const lt_record *r)
{
    return r->size > 2 && !memcmp(r->bytes, "\xff\xd8\xff", 3);
}

/* Transcodes a JPEG; keeps the original unless both decode to the same pixels. e->whole has the pixels of the
 * original. */
static lt_status transcode_jpeg(lt_pack_encoder *e, lt_record *r, int channels, bool *kept)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    *kept = true;
    lt_status st = is_jpeg(r) ? lt_jpeg_transcode(r->bytes, r->size, &bytes, &size) : LT_E_FORMAT;
    if (!st) {
        lt_record transcoded = {.bytes = bytes, .size = size, .capacity = size};
        st = decode_whole(e, &transcoded, channels, &e->transcoded);
    }
    if (!st && same_pixels(&e->whole, &e->transcoded)) {
        st = replace_bytes(r, bytes, size);
        *kept = false;
    }
    lt_free(bytes);
    return st == LT_E_NOMEM ? st : LT_OK;
}

static int32_t scaled_side(int32_t side, int32_t longest, int limit)
{
    int64_t out = ((int64_t)side * limit + longest / 2) / longest;
    return out < 1 ? 1 : (int32_t)out;
}

static lt_status make_resize_taps(lt_taps *taps, int32_t from, int32_t to)
{
    const lt_axis axis = {.limit = from, .length = from, .size = to, .count = to};
    return lt_taps_make(taps, &axis);
}

/* Resizes e->whole to sides of at most limit pixels (0: no limit), into contiguous pixels in e->small. */
static lt_status resize_to_limit(lt_pack_encoder *e, int limit, lt_pixels *out)
{
    const lt_image *p = &e->whole;
    int32_t longest = p->width > p->height ? p->width : p->height;
    bool smaller = limit && longest > limit;
    out->width = smaller ? scaled_side(p->width, longest, limit) : p->width;
    out->height = smaller ? scaled_side(p->height, longest, limit) : p->height;
    out->channels = p->channels;
    size_t stride = (size_t)out->width * (size_t)out->channels;
    LT_TRY(make_resize_taps(&e->x, p->width, out->width));
    LT_TRY(make_resize_taps(&e->y, p->height, out->height));
    LT_TRY(lt_image_reserve(&e->small, stride * (size_t)out->height));
    out->pixels = e->small.memory;
    return lt_resize(lt_resize_best_kernels(), p, &e->x, &e->y, &e->intermediate, e->small.memory,
                     stride);
}

static lt_status encode_as_jpeg(lt_pack_encoder *e, lt_record *r, int channels, bool *kept)
{
    int limit = e->config.max_side;
    if (e->whole.width <= limit && e->whole.height <= limit)
        return transcode_jpeg(e, r, channels, kept);
    lt_pixels p;
    uint8_t *bytes = NULL;
    size_t size = 0;
    LT_TRY(resize_to_limit(e, limit, &p));
    p.orientation = lt_exif_orientation(r->bytes, r->size);
    LT_TRY(lt_jpeg_encode(&p, e->config.quality, &bytes, &size));
    lt_status st = replace_bytes(r, bytes, size);
    lt_free(bytes);
    *kept = false;
    return st;
}

static lt_status encode_as_pixels(lt_pack_encoder *e, lt_record *r, bool *kept)
{
    lt_pixels p;
    LT_TRY(resize_to_limit(e, e->config.max_side, &p));
    LT_TRY(replace_bytes(r, p.pixels, (size_t)p.width * (size_t)p.height * (size_t)p.channels));
    r->encoding = LT_ENCODING_PIXELS;
    r->width = p.width;
    r->height = p.height;
    r->channels = p.channels;
    *kept = false;
    return LT_OK;
}

lt_status lt_pack_encode(lt_pack_encoder *e, lt_record *record, int channels, bool *kept)
{
    *kept = true;
    if (record->encoding != LT_ENCODING_FILE)
        return record->encoding == LT_ENCODING_PIXELS
                   ? LT_OK
                   : lt_fail(LT_E_UNSUPPORTED,
                             "pack: cannot pack samples in planes (LT_ENCODING_PLANES) or numbers");
    LT_TRY(decode_whole(e, record, channels, &e->whole)); /* also finds corrupt images */
    switch (e->config.mode) {
    case LT_PACK_ORIGINAL:
        return LT_OK;
    case LT_PACK_LOSSLESS:
        return transcode_jpeg(e, record, channels, kept);
    case LT_PACK_RESIZED:
        return encode_as_jpeg(e, record, channels, kept);
    case LT_PACK_RAW:
        return encode_as_pixels(e, record, kept);
    }
    return LT_OK;
}
