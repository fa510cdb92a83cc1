/* Decodes PGM and PPM, plain and raw: Netpbm's pgm(5) and ppm(5). If maxval is not 255, samples are scaled and rounded,
 * as Pillow does for PPM. */

#include "data/formats/decoder.h"

#include <string.h>

enum { WHITE = 255, DEEPEST = 65535, COLOURS = 3 };

typedef struct pnm {
    const uint8_t *bytes;
    size_t size, at, begin; /* at: offset of the next byte; begin: of the first sample */
    int64_t width, height, maxval;
    int channels, depth; /* depth: bytes of a raw sample; 0: plain text */
} pnm;

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads the next number, below 2^31, after blanks and comments. */
static bool read_number(pnm *p, int64_t *out)
{
    bool comment = false;
    while (p->at < p->size && (comment || is_space(p->bytes[p->at]) || p->bytes[p->at] == '#')) {
        uint8_t c = p->bytes[p->at++];
        comment = c == '#' || (comment && c != '\n' && c != '\r');
    }
    size_t begin = p->at;
    int64_t value = 0;
    while (p->at < p->size && p->bytes[p->at] >= '0' && p->bytes[p->at] <= '9'
           && value <= INT32_MAX)
        value = 10 * value + (p->bytes[p->at++] - '0');
    *out = value;
    return p->at > begin && value <= INT32_MAX;
}

static lt_status open_pnm(pnm *p, const uint8_t *bytes, size_t size)
{
    enum { PLAIN_GREY = '2', PLAIN_COLOURS = '3', RAW_COLOURS = '6' };
    const uint8_t kind = bytes[1];
    *p = (pnm){.bytes = bytes, .size = size, .at = 2};
    if (!read_number(p, &p->width) || !read_number(p, &p->height) || !read_number(p, &p->maxval)
        || p->at >= size || !is_space(bytes[p->at]))
        return lt_fail(LT_E_FORMAT, "pnm: invalid header");
    p->begin = ++p->at;
    p->channels = kind == RAW_COLOURS || kind == PLAIN_COLOURS ? COLOURS : 1;
    p->depth = kind == PLAIN_GREY || kind == PLAIN_COLOURS ? 0 : p->maxval > WHITE ? 2 : 1;
    if (p->maxval < 1 || p->maxval > DEEPEST)
        return lt_fail(LT_E_FORMAT, "pnm: maxval of %d, want 1 to %d", (int)p->maxval, DEEPEST);
    return LT_OK;
}

lt_status lt_pnm_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    pnm p;
    LT_TRY(open_pnm(&p, bytes, size));
    *width = (int32_t)p.width;
    *height = (int32_t)p.height;
    return LT_OK;
}

/* Reads a sample, scaled to 8 bits. Returns false at the end of the file or if it is not a number. */
static bool read_sample(pnm *p, uint8_t *out)
{
    int64_t value = 0;
    if (!p->depth) {
        if (!read_number(p, &value))
            return false;
    } else {
        if (p->size - p->at < (size_t)p->depth)
            return false;
        for (int i = 0; i < p->depth; i++)
            value = value << 8 | p->bytes[p->at++];
    }
    value = value > p->maxval ? p->maxval : value;
    *out = (uint8_t)((value * WHITE + p->maxval / 2) / p->maxval);
    return true;
}

/* Reads a pixel as red, green and blue. */
static bool read_pixel(pnm *p, uint8_t out[COLOURS])
{
    for (int i = 0; i < p->channels; i++)
        if (!read_sample(p, &out[i]))
            return false;
    if (p->channels == 1)
        out[1] = out[2] = out[0];
    return true;
}

/* Returns true if the file is large enough for its pixels. A plain sample needs a digit and a blank. */
static bool has_all_samples(const pnm *p)
{
    int64_t samples = p->width * p->height * p->channels;
    return (int64_t)(p->size - p->at) >= (p->depth ? samples * p->depth : 2 * samples - 1);
}

/* Reads the pixels of row y that are in the window. */
static bool read_row(pnm *p, int64_t y, lt_window w, uint8_t *to)
{
    uint8_t pixel[COLOURS];
    int64_t x = 0, end = p->width;
    if (p->depth) { /* raw samples have fixed offsets */
        x = w.x;
        end = w.x + w.width;
        p->at = p->begin + (size_t)((y * p->width + x) * p->channels * p->depth);
    }
    for (; x < end; x++) {
        if (!read_pixel(p, pixel))
            return false;
        if (y >= w.y && x >= w.x && x < w.x + w.width)
            memcpy(to + (x - w.x) * COLOURS, pixel, COLOURS);
    }
    return true;
}

lt_status lt_pnm_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int channels, lt_window window, lt_image *out)
{
    pnm p;
    LT_TRY(open_pnm(&p, bytes, size));
    LT_TRY(lt_image_check_size(limits, p.width, p.height));
    if (!has_all_samples(&p))
        return lt_fail(LT_E_FORMAT, "pnm: the file is truncated");
    size_t stride = (size_t)window.width * COLOURS;
    LT_TRY(lt_image_reserve(out, stride * (size_t)window.height));
    for (int64_t y = p.depth ? window.y : 0; y < window.y + window.height; y++) {
        uint8_t *to = out->memory + (y < window.y ? 0 : (size_t)(y - window.y) * stride);
        if (!read_row(&p, y, window, to))
            return lt_fail(LT_E_FORMAT, "pnm: the file is truncated, or a sample is not a number");
    }
    lt_image_set_rgb_window(out, window.width, window.height, channels,
                            (lt_window){0, 0, window.width, window.height});
    return LT_OK;
}
