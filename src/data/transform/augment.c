/* Computes crops, flips and sizes as torchvision does, including its rounding to even.
 *
 * Random-resized-crop: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, section 6, in torchvision's form:
 * draws the area uniformly and the aspect ratio log-uniformly up to ten times; if no such crop fits, takes the largest
 * centre crop with a ratio in the range. Padded random crop for small images: He et al., "Deep Residual Learning for
 * Image Recognition", CVPR 2016, section 4.2. */

#include "data/transform/augment.h"

#include "lather/ext/elementary.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { TRIES = 10, MAX_RESIZE = 1 << 15, MAX_RATIO = 1 << 14 };

static lt_status check_range(const char *name, double low, double high, double most)
{
    if (!(low > 0 && low <= high && high <= most))
        return lt_fail(LT_E_ARG, "transform: %s is %g to %g, want a range in (0, %g]", name, low,
                       high, most);
    return LT_OK;
}

/* Returns the short side to resize to before a centre crop to size. */
static int short_side_before_crop(int size, double crop_ratio)
{
    enum { SHORT_SIDE = 256, CROP = 224 }; /* usual for ImageNet */
    if (crop_ratio > 0)
        return (int)fmin(floor(size / crop_ratio), INT_MAX);
    return (size * SHORT_SIDE + CROP / 2) / CROP;
}

lt_transform lt_transform_with_size(const lt_transform *transform, int size)
{
    lt_transform t = *transform;
    t.size = size;
    t.resize = short_side_before_crop(size, t.crop_ratio);
    return t;
}

static lt_status check_resize(lt_transform *t)
{
    if (!(t->crop_ratio >= 0 && t->crop_ratio <= 1))
        return lt_fail(LT_E_ARG, "transform: crop ratio is %g, want (0, 1]", t->crop_ratio);
    if (!t->resize)
        t->resize = short_side_before_crop(t->size, t->crop_ratio);
    if (t->resize < t->size || t->resize > MAX_RESIZE)
        return lt_fail(LT_E_ARG, "transform: resize is %d, want %d .. %d", t->resize, t->size,
                       (int)MAX_RESIZE);
    return LT_OK;
}

static bool is_within(double x, double most)
{
    return x >= 0 && x <= most; /* false for NaN */
}

static lt_status check_probabilities(const lt_transform *t)
{
    const struct {
        const char *name;
        double value;
    } list[] = {{"flip", t->flip},
                {"vflip", t->vflip},
                {"grayscale", t->grayscale},
                {"blur", t->blur},
                {"erase", t->erase}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!is_within(list[i].value, 1))
            return lt_fail(LT_E_ARG, "transform: %s is %g, want a probability", list[i].name,
                           list[i].value);
    return is_within(t->rotation, 180)
               ? LT_OK
               : lt_fail(LT_E_ARG, "transform: rotation is %g degrees, want 0 .. 180", t->rotation);
}

static lt_status check_colours(const lt_transform *t)
{
    const lt_jitter *j = &t->jitter;
    if (!is_within(j->brightness, LT_JITTER_MOST) || !is_within(j->contrast, LT_JITTER_MOST)
        || !is_within(j->saturation, LT_JITTER_MOST) || !is_within(j->hue, 0.5))
        return lt_fail(LT_E_ARG,
                       "transform: jitter is %g, %g, %g, hue %g; want 0 .. %d, hue 0 .. 0.5",
                       j->brightness, j->contrast, j->saturation, j->hue, (int)LT_JITTER_MOST);
    return LT_OK;
}

static lt_status check_rand_augment(const lt_transform *t)
{
    const lt_rand_augment *r = &t->rand_augment;
    if (r->ops < 0 || r->ops > LT_RAND_AUGMENT_MOST_OPS)
        return lt_fail(LT_E_ARG, "transform: RandAugment has %d operations, want 0 .. %d", r->ops,
                       (int)LT_RAND_AUGMENT_MOST_OPS);
    if (!(r->magnitude >= 0 && r->magnitude <= LT_RAND_AUGMENT_MOST))
        return lt_fail(LT_E_ARG, "transform: RandAugment's magnitude is %d, want 0 .. %d",
                       r->magnitude, (int)LT_RAND_AUGMENT_MOST);
    if (r->ops && t->trivial_augment)
        return lt_fail(LT_E_ARG,
                       "transform: cannot combine TrivialAugment and RandAugment; choose one");
    return LT_OK;
}

lt_status lt_transform_check(lt_transform *t)
{
    if (t->size < 1 || t->size > LT_TRANSFORM_MOST_SIZE)
        return lt_fail(LT_E_ARG, "transform: size is %d, want 1 .. %d", t->size,
                       (int)LT_TRANSFORM_MOST_SIZE);
    if (t->limits.pixels < 0 || !(t->limits.seconds >= 0))
        return lt_fail(LT_E_ARG, "transform: limits are %lld pixels and %g seconds, want 0 or more",
                       (long long)t->limits.pixels, t->limits.seconds);
    LT_TRY(check_resize(t));
    if (t->filter != LT_FILTER_BILINEAR && t->filter != LT_FILTER_BICUBIC)
        return lt_fail(LT_E_ARG, "transform: unknown filter %d", (int)t->filter);
    LT_TRY(check_probabilities(t));
    t->min_scale = t->min_scale != 0 ? t->min_scale : 0.08;
    t->max_scale = t->max_scale != 0 ? t->max_scale : 1;
    t->min_ratio = t->min_ratio != 0 ? t->min_ratio : 3.0 / 4;
    t->max_ratio = t->max_ratio != 0 ? t->max_ratio : 4.0 / 3;
    LT_TRY(check_colours(t));
    LT_TRY(check_rand_augment(t));
    LT_TRY(check_range("scale", t->min_scale, t->max_scale, 1));
    return check_range("ratio", t->min_ratio, t->max_ratio, MAX_RATIO);
}

/* Rounds half to even, as Python's round() does. */
static int32_t round_even(double x)
{
    return (int32_t)nearbyint(x);
}

static double draw_uniform(double low, double high, lt_rng *rng)
{
    return low + (high - low) * lt_rng_uniform(rng);
}

/* Returns the largest centre crop with an aspect ratio in the range. */
static lt_window largest_crop(const lt_transform *t, int32_t width, int32_t height)
{
    lt_window w = {.width = width, .height = height};
    double ratio = (double)width / height;
    if (ratio < t->min_ratio)
        w.height = round_even(width / t->min_ratio);
    else if (ratio > t->max_ratio)
        w.width = round_even(height * t->max_ratio);
    w.width = w.width < 1 ? 1 : w.width;
    w.height = w.height < 1 ? 1 : w.height;
    w.x = (width - w.width) / 2;
    w.y = (height - w.height) / 2;
    return w;
}

lt_window lt_random_crop(const lt_transform *t, int32_t width, int32_t height, lt_rng *rng)
{
    double area = (double)width * height;
    double low = lt_f64_log(t->min_ratio), high = lt_f64_log(t->max_ratio);
    for (int i = 0; i < TRIES; i++) {
        double target = area * draw_uniform(t->min_scale, t->max_scale, rng);
        double ratio = lt_f64_exp(draw_uniform(low, high, rng));
        double w = nearbyint(sqrt(target * ratio)), h = nearbyint(sqrt(target / ratio));
        if (w < 1 || w > width || h < 1 || h > height)
            continue;
        lt_window found = {.width = (int32_t)w, .height = (int32_t)h};
        found.y = (int32_t)lt_rng_below(rng, (uint32_t)(height - found.height + 1));
        found.x = (int32_t)lt_rng_below(rng, (uint32_t)(width - found.width + 1));
        return found;
    }
    return largest_crop(t, width, height);
}

/* Returns the axis that resamples a whole side to `size` pixels and takes count of them from first on. */
static lt_axis make_axis(int32_t side, int64_t size, int64_t first, int32_t count)
{
    return (lt_axis){.limit = side, .length = side, .size = size, .first = first, .count = count};
}

/* Resizes the short side to `resize`, then takes a square of t->size at the centre. */
static void set_centre_crop(lt_geometry *g, const lt_transform *t, int32_t resize, int32_t width,
                            int32_t height)
{
    int32_t small = width < height ? width : height;
    int64_t w = (int64_t)((double)((int64_t)resize * width) / small);
    int64_t h = (int64_t)((double)((int64_t)resize * height) / small);
    g->x = make_axis(width, w, (int64_t)nearbyint((double)(w - t->size) / 2), t->size);
    g->y = make_axis(height, h, (int64_t)nearbyint((double)(h - t->size) / 2), t->size);
}

/* Shifts the output by `shift` pixels; pixels from outside are zero. */
static void shift_axis(lt_axis *a, int32_t shift, int32_t *margin)
{
    a->count -= abs(shift);
    a->first += shift > 0 ? shift : 0;
    *margin = shift < 0 ? -shift : 0;
}

static void set_padded_crop(lt_geometry *g, const lt_transform *t, int32_t width, int32_t height,
                            lt_rng *rng)
{
    set_centre_crop(g, t, t->size, width, height);
    int32_t pad = t->size / 8;
    uint32_t places = 2 * (uint32_t)pad + 1;
    shift_axis(&g->y, (int32_t)lt_rng_below(rng, places) - pad, &g->top);
    shift_axis(&g->x, (int32_t)lt_rng_below(rng, places) - pad, &g->left);
}

lt_geometry lt_augment_geometry(const lt_transform *t, int32_t width, int32_t height, lt_rng *rng)
{
    lt_geometry g = {.crop = {0, 0, width, height}};
    bool flip = t->augment != LT_AUGMENT_NONE && lt_rng_uniform(rng) < t->flip;
    if (t->augment == LT_AUGMENT_IMAGENET) {
        g.crop = lt_random_crop(t, width, height, rng);
        g.x = make_axis(g.crop.width, t->size, 0, t->size);
        g.y = make_axis(g.crop.height, t->size, 0, t->size);
    } else if (t->augment == LT_AUGMENT_NONE) {
        set_centre_crop(&g, t, t->resize, width, height);
    } else {
        set_padded_crop(&g, t, width, height, rng);
    }
    const bool upside_down = t->augment != LT_AUGMENT_NONE && t->vflip > 0 /* draws only then */
                             && lt_rng_uniform(rng) < t->vflip;
    g.x.filter = g.y.filter = t->filter;
    g.y.reverse = upside_down;
    if (upside_down)
        g.top = t->size - g.top - g.y.count;
    g.x.reverse = flip;
    if (flip)
        g.left = t->size - g.left - g.x.count;
    return g;
}
