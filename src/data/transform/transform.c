/* Decodes only the window of an image that the result depends on: the crop is drawn first, and the
 * resampling weights tell which of its pixels they use. */

#include "data/transform/transform.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/trace.h"
#include "data/formats/exif.h"
#include "data/transform/colour.h"

#include <string.h>

void lt_scratch_clear(lt_scratch *s)
{
    lt_free(s->record.bytes);
    s->record = (lt_record){0};
    lt_image_clear(&s->image);
    lt_image_clear(&s->turned);
    lt_image_clear(&s->between);
    lt_taps_clear(&s->x);
    lt_taps_clear(&s->y);
}

static lt_status check_plain(const lt_record *r, int channels)
{
    if (r->width < 1 || r->height < 1
        || r->size != (size_t)r->width * (size_t)r->height * (size_t)channels)
        return lt_fail(LT_E_FORMAT, "data: %zu bytes are not %d x %d pixels of %d channels",
                       r->size, (int)r->width, (int)r->height, channels);
    return LT_OK;
}

/* [C][H][W] to [H][W][C], of the window. */
static lt_status interleave(const lt_record *r, int channels, lt_window w, lt_image *out)
{
    size_t c = (size_t)channels, width = (size_t)w.width;
    LT_TRY(lt_image_reserve(out, width * (size_t)w.height * c));
    for (size_t plane = 0; plane < c; plane++)
        for (size_t y = 0; y < (size_t)w.height; y++) {
            const uint8_t *from = r->bytes
                                  + (plane * (size_t)r->height + (size_t)w.y + y) * (size_t)r->width
                                  + (size_t)w.x;
            uint8_t *to = out->memory + y * width * c + plane;
            for (size_t x = 0; x < width; x++)
                to[x * c] = from[x];
        }
    lt_image_frame(out, w.width, channels, (lt_window){0, 0, w.width, w.height});
    return LT_OK;
}

/* The window of the record's image, at 1/shrink of its size; raw pixels are borrowed, not
 * copied. */
static lt_status decode(const lt_transform *t, const lt_record *r, int channels, int shrink,
                        lt_window w, lt_image *out)
{
    if (shrink > 1)
        return lt_image_decode_small(r->bytes, r->size, &t->limits, channels, shrink, w, out);
    if (r->encoding == LT_ENCODING_FILE)
        return lt_image_decode(r->bytes, r->size, &t->limits, channels, w, out);
    if (r->encoding == LT_ENCODING_PLANES && channels > 1)
        return interleave(r, channels, w, out);
    out->stride = (size_t)r->width * (size_t)channels;
    out->pixels = r->bytes + (size_t)w.y * out->stride + (size_t)w.x * (size_t)channels;
    out->width = w.width;
    out->height = w.height;
    out->channels = channels;
    return LT_OK;
}

static lt_status size_of(const lt_transform *t, const lt_record *r, int channels, int32_t *width,
                         int32_t *height)
{
    if (r->encoding == LT_ENCODING_FILE)
        return lt_image_size(r->bytes, r->size, &t->limits, width, height);
    if (r->encoding == LT_ENCODING_FLOATS || r->encoding == LT_ENCODING_TOKENS)
        return lt_fail(LT_E_FORMAT, "data: numbers in a data set of images");
    *width = r->width;
    *height = r->height;
    return check_plain(r, channels);
}

/* EXIF's orientation, if it is to be applied. */
static int orientation_of(const lt_transform *t, const lt_record *r)
{
    return t->exif && r->encoding == LT_ENCODING_FILE ? lt_exif_orientation(r->bytes, r->size)
                                                      : LT_EXIF_UPRIGHT;
}

/* The window of the turned image in s->image. */
static lt_status decode_turned(const lt_transform *t, lt_scratch *s, int channels, int turn,
                               lt_window w)
{
    int32_t width = 0, height = 0;
    LT_TRY(size_of(t, &s->record, channels, &width, &height));
    LT_TRY(decode(t, &s->record, channels, 1, lt_exif_stored(turn, width, height, w), &s->turned));
    return lt_exif_turn(turn, &s->turned, &s->image);
}

/* The largest factor by which a JPEG may be decoded smaller, so that the crop still has size x size
 * pixels. */
static int choose_shrink(const lt_transform *t, const lt_record *r, const lt_plan *p)
{
    enum { MOST = 8 };
    int shrink = 1;
    if (!t->fast || t->augment != LT_AUGMENT_IMAGENET || r->encoding != LT_ENCODING_FILE)
        return 1;
    while (shrink < MOST && p->crop.width >= 2 * shrink * t->size
           && p->crop.height >= 2 * shrink * t->size)
        shrink *= 2;
    return shrink > 1 && lt_image_shrinks(r->bytes, r->size) ? shrink : 1;
}

/* Maps one axis of the crop to the smaller image: the pixels it touches, and its offset within the
 * first. */
static void shrink_axis(lt_axis *a, int32_t *at, int32_t *extent, int32_t shrink)
{
    int32_t low = *at / shrink, high = (*at + *extent + shrink - 1) / shrink;
    a->start = (double)*at / shrink - low;
    a->extent = (double)*extent / shrink;
    a->limit = high - low;
    *at = low;
    *extent = high - low;
}

static bool has_jitter(const lt_jitter *j)
{
    return j->brightness > 0 || j->contrast > 0 || j->saturation > 0 || j->hue > 0;
}

/* Operations that change pixel values in place: colours and erasing. */
static lt_status recolour(const lt_transform *t, int channels, lt_rng *rng, lt_scratch *s,
                          uint8_t *out)
{
    size_t bytes = (size_t)t->size * (size_t)t->size * (size_t)channels;
    bool jitter = has_jitter(&t->jitter);
    if (t->augment == LT_AUGMENT_NONE
        || !(t->trivial_augment || t->rand_augment.ops || jitter || t->erase > 0))
        return LT_OK;
    LT_TRY(lt_image_reserve(&s->between, bytes));
    lt_canvas canvas = {
        .pixels = out, .other = s->between.memory, .size = t->size, .channels = channels};
    if (t->trivial_augment)
        lt_trivial_augment(&canvas, rng);
    lt_rand_augment_apply(&canvas, &t->rand_augment, rng, s->stop);
    if (jitter)
        lt_colour_jitter(&canvas, &t->jitter, rng);
    if (t->erase > 0)
        lt_random_erase(&canvas, t->erase, t->erase_fill, rng);
    return s->stop && atomic_load(s->stop) ? lt_fail(LT_E_COMM, "data: stopped") : LT_OK;
}

lt_status lt_transform_run(const lt_transform *t, int channels, lt_rng *rng, lt_scratch *s,
                           uint8_t *out)
{
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    int32_t width = 0, height = 0;
    LT_TRY(size_of(t, &s->record, channels, &width, &height));
    int turn = orientation_of(t, &s->record);
    bool swaps = lt_exif_swaps(turn);
    lt_plan p = lt_augment_plan(t, swaps ? height : width, swaps ? width : height, rng);
    int shrink = turn == LT_EXIF_UPRIGHT ? choose_shrink(t, &s->record, &p) : 1;
    if (shrink > 1) {
        shrink_axis(&p.x, &p.crop.x, &p.crop.width, shrink);
        shrink_axis(&p.y, &p.crop.y, &p.crop.height, shrink);
    }
    LT_TRY(lt_taps_make(&s->x, &p.x));
    LT_TRY(lt_taps_make(&s->y, &p.y));
    lt_window window = {.x = p.crop.x + s->x.low,
                        .y = p.crop.y + s->y.low,
                        .width = s->x.high - s->x.low,
                        .height = s->y.high - s->y.low};
    LT_TRY(turn == LT_EXIF_UPRIGHT ? decode(t, &s->record, channels, shrink, window, &s->image)
                                   : decode_turned(t, s, channels, turn, window));
    double decoded = lt_clock_seconds();
    lt_trace_end(span, LT_PROFILE_LOADER, "decode", (int64_t)s->record.size);
    span = lt_trace_begin();

    size_t pixel = (size_t)channels, stride = (size_t)t->size * pixel;
    if (p.x.count < t->size || p.y.count < t->size)
        memset(out, 0, stride * (size_t)t->size);
    uint8_t *corner = out + (size_t)p.top * stride + (size_t)p.left * pixel;
    LT_TRY(lt_resize(lt_resize_best(), &s->image, &s->x, &s->y, &s->between, corner, stride));
    LT_TRY(recolour(t, channels, rng, s, out));
    s->decode_seconds += decoded - start;
    s->resize_seconds += lt_clock_seconds() - decoded;
    lt_trace_end(span, LT_PROFILE_LOADER, "resize", (int64_t)stride * t->size);
    return LT_OK;
}
