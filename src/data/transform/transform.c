/* Decodes only the window of an image that the result depends on: draws the crop first, and takes the range of source
 * pixels from the resampling weights. */

#include "data/transform/transform.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/trace.h"
#include "data/formats/exif.h"
#include "data/transform/colour.h"

#include <string.h>

void lt_sample_workspace_clear(lt_sample_workspace *s)
{
    lt_free(s->record.bytes);
    s->record = (lt_record){0};
    lt_image_clear(&s->image);
    lt_image_clear(&s->stored);
    lt_image_clear(&s->intermediate);
    lt_taps_clear(&s->x);
    lt_taps_clear(&s->y);
}

static lt_status check_pixel_record(const lt_record *r, int channels)
{
    if (r->width < 1 || r->height < 1
        || r->size != (size_t)r->width * (size_t)r->height * (size_t)channels)
        return lt_fail(LT_E_FORMAT, "data: record of %zu bytes, want %d x %d pixels of %d channels",
                       r->size, (int)r->width, (int)r->height, channels);
    return LT_OK;
}

/* Converts the window from [C][H][W] to [H][W][C]. */
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
    lt_image_set_window(out, w.width, channels, (lt_window){0, 0, w.width, w.height});
    return LT_OK;
}

/* Decodes the window of the record's image at 1/shrink of its size. Uncompressed pixels are borrowed, not copied. */
static lt_status decode_window(const lt_transform *t, const lt_record *r, int channels, int shrink,
                               lt_window w, lt_image *out)
{
    if (shrink > 1)
        return lt_image_decode_shrunk(r->bytes, r->size, &t->limits, channels, shrink, w, out);
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

static lt_status record_image_size(const lt_transform *t, const lt_record *r, int channels,
                                   int32_t *width, int32_t *height)
{
    if (r->encoding == LT_ENCODING_FILE)
        return lt_image_size(r->bytes, r->size, &t->limits, width, height);
    if (r->encoding == LT_ENCODING_FLOATS || r->encoding == LT_ENCODING_TOKENS)
        return lt_fail(LT_E_FORMAT, "data: the record has numbers, but the data set has images");
    *width = r->width;
    *height = r->height;
    return check_pixel_record(r, channels);
}

/* Returns EXIF's orientation if it must be applied, otherwise LT_EXIF_UPRIGHT. */
static int orientation_to_apply(const lt_transform *t, const lt_record *r)
{
    return t->exif && r->encoding == LT_ENCODING_FILE ? lt_exif_orientation(r->bytes, r->size)
                                                      : LT_EXIF_UPRIGHT;
}

/* Decodes a window of the upright image into s->image. */
static lt_status decode_oriented(const lt_transform *t, lt_sample_workspace *s, int channels,
                                 int orientation, lt_window w)
{
    int32_t width = 0, height = 0;
    LT_TRY(record_image_size(t, &s->record, channels, &width, &height));
    LT_TRY(decode_window(t, &s->record, channels, 1,
                         lt_exif_stored_window(orientation, width, height, w), &s->stored));
    return lt_exif_apply(orientation, &s->stored, &s->image);
}

/* Returns the largest scale denominator at which the crop of a JPEG still has at least size x size pixels; 1 for other
 * files. */
static int choose_shrink(const lt_transform *t, const lt_record *r, const lt_geometry *g)
{
    enum { MOST = 8 };
    int shrink = 1;
    if (!t->fast || t->augment != LT_AUGMENT_IMAGENET || r->encoding != LT_ENCODING_FILE)
        return 1;
    while (shrink < MOST && g->crop.width >= 2 * shrink * t->size
           && g->crop.height >= 2 * shrink * t->size)
        shrink *= 2;
    return shrink > 1 && lt_image_can_shrink(r->bytes, r->size) ? shrink : 1;
}

/* Maps an axis of the crop to the smaller image: the range of pixels that it covers, and its offset in the first
 * one. */
static void shrink_axis(lt_axis *a, int32_t *at, int32_t *length, int32_t shrink)
{
    int32_t low = *at / shrink, high = (*at + *length + shrink - 1) / shrink;
    a->start = (double)*at / shrink - low;
    a->length = (double)*length / shrink;
    a->limit = high - low;
    *at = low;
    *length = high - low;
}

static bool has_jitter(const lt_jitter *j)
{
    return j->brightness > 0 || j->contrast > 0 || j->saturation > 0 || j->hue > 0;
}

static bool changes_pixels(const lt_transform *t)
{
    return t->augment != LT_AUGMENT_NONE
           && (t->trivial_augment || t->rand_augment.ops || has_jitter(&t->jitter)
               || t->rotation > 0 || t->grayscale > 0 || t->blur > 0 || t->erase > 0);
}

/* Decides with this probability; draws only if it is above 0, so that a new operation changes no other numbers. */
static bool happens(double probability, lt_rng *rng)
{
    return probability > 0 && lt_rng_uniform(rng) < probability;
}

/* Applies colour operations and erasing in place. */
static lt_status apply_colour_ops(const lt_transform *t, int channels, lt_rng *rng,
                                  lt_sample_workspace *s, uint8_t *out)
{
    size_t bytes = (size_t)t->size * (size_t)t->size * (size_t)channels;
    if (!changes_pixels(t))
        return LT_OK;
    LT_TRY(lt_image_reserve(&s->intermediate, t->blur > 0 ? bytes * sizeof(float) : bytes));
    lt_canvas canvas = {
        .pixels = out, .other = s->intermediate.memory, .size = t->size, .channels = channels};
    if (t->rotation > 0)
        lt_pixel_apply(&canvas, LT_PIXEL_ROTATE, t->rotation * (2 * lt_rng_uniform(rng) - 1));
    if (t->trivial_augment)
        lt_trivial_augment(&canvas, rng);
    lt_rand_augment_apply(&canvas, &t->rand_augment, rng, s->stop);
    if (has_jitter(&t->jitter))
        lt_colour_jitter(&canvas, &t->jitter, rng);
    if (happens(t->grayscale, rng))
        lt_pixel_apply(&canvas, LT_PIXEL_COLOUR, 0);
    if (happens(t->blur, rng))
        lt_gaussian_blur(&canvas, 0.1 + 1.9 * lt_rng_uniform(rng));
    if (t->erase > 0)
        lt_random_erase(&canvas, t->erase, t->erase_fill, rng);
    return s->stop && atomic_load(s->stop) ? lt_fail(LT_E_COMM, "data: stopped") : LT_OK;
}

lt_status lt_transform_run(const lt_transform *t, int channels, lt_rng *rng, lt_sample_workspace *s,
                           uint8_t *out)
{
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    int32_t width = 0, height = 0;
    LT_TRY(record_image_size(t, &s->record, channels, &width, &height));
    int orientation = orientation_to_apply(t, &s->record);
    bool swaps = lt_exif_swaps_axes(orientation);
    lt_geometry g = lt_augment_geometry(t, swaps ? height : width, swaps ? width : height, rng);
    int shrink = orientation == LT_EXIF_UPRIGHT ? choose_shrink(t, &s->record, &g) : 1;
    if (shrink > 1) {
        shrink_axis(&g.x, &g.crop.x, &g.crop.width, shrink);
        shrink_axis(&g.y, &g.crop.y, &g.crop.height, shrink);
    }
    LT_TRY(lt_taps_make(&s->x, &g.x));
    LT_TRY(lt_taps_make(&s->y, &g.y));
    lt_window window = {.x = g.crop.x + s->x.low,
                        .y = g.crop.y + s->y.low,
                        .width = s->x.high - s->x.low,
                        .height = s->y.high - s->y.low};
    LT_TRY(orientation == LT_EXIF_UPRIGHT
               ? decode_window(t, &s->record, channels, shrink, window, &s->image)
               : decode_oriented(t, s, channels, orientation, window));
    double decoded = lt_clock_seconds();
    lt_trace_end(span, LT_PROFILE_LOADER, "decode", (int64_t)s->record.size);
    span = lt_trace_begin();

    size_t pixel = (size_t)channels, stride = (size_t)t->size * pixel;
    if (g.x.count < t->size || g.y.count < t->size)
        memset(out, 0, stride * (size_t)t->size);
    uint8_t *corner = out + (size_t)g.top * stride + (size_t)g.left * pixel;
    LT_TRY(lt_resize(lt_resize_best_kernels(), &s->image, &s->x, &s->y, &s->intermediate, corner,
                     stride));
    LT_TRY(apply_colour_ops(t, channels, rng, s, out));
    s->decode_seconds += decoded - start;
    s->resize_seconds += lt_clock_seconds() - decoded;
    lt_trace_end(span, LT_PROFILE_LOADER, "resize", (int64_t)stride * t->size);
    return LT_OK;
}
