/* Crops, flips and sizes as torchvision computes them, rounding to even included.
 *
 * Random-resized-crop: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, section 6, in
 * torchvision's form: ten tries at an area and a ratio drawn uniformly and log-uniformly, then the
 * largest central crop that keeps the ratio in its range. Pad and crop for small images: He et
 * al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2. */

#include "data/transform/augment.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { TRIES = 10, MAX_RESIZE = 1 << 15, MAX_RATIO = 1 << 14 };

static lt_status check_range(const char *name, double low, double high, double most)
{
    if (!(low > 0 && low <= high && high <= most))
        return lt_fail(LT_E_ARG, "transform: %s from %g to %g is not a range in (0, %g]", name, low,
                       high, most);
    return LT_OK;
}

/* The short side before a centre crop that leaves size. */
static int short_side(int size, double crop_ratio)
{
    enum { SHORT_SIDE = 256, CROP = 224 }; /* the usual pair */
    if (crop_ratio > 0)
        return (int)fmin(floor(size / crop_ratio), INT_MAX);
    return (size * SHORT_SIDE + CROP / 2) / CROP;
}

lt_transform lt_transform_sized(const lt_transform *transform, int size)
{
    lt_transform t = *transform;
    t.size = size;
    t.resize = short_side(size, t.crop_ratio);
    return t;
}

static lt_status check_resize(lt_transform *t)
{
    if (!(t->crop_ratio >= 0 && t->crop_ratio <= 1))
        return lt_fail(LT_E_ARG, "transform: crop ratio %g is not in (0, 1]", t->crop_ratio);
    if (!t->resize)
        t->resize = short_side(t->size, t->crop_ratio);
    if (t->resize < t->size || t->resize > MAX_RESIZE)
        return lt_fail(LT_E_ARG, "transform: resize %d is not in %d .. %d", t->resize, t->size,
                       (int)MAX_RESIZE);
    return LT_OK;
}

static bool is_within(double x, double most)
{
    return x >= 0 && x <= most; /* no NaN */
}

static lt_status check_colours(const lt_transform *t)
{
    const lt_jitter *j = &t->jitter;
    if (!is_within(j->brightness, LT_JITTER_MOST) || !is_within(j->contrast, LT_JITTER_MOST)
        || !is_within(j->saturation, LT_JITTER_MOST) || !is_within(j->hue, 0.5))
        return lt_fail(LT_E_ARG,
                       "transform: jitter %g, %g, %g is not in [0, %d], or hue %g not in [0, 0.5]",
                       j->brightness, j->contrast, j->saturation, (int)LT_JITTER_MOST, j->hue);
    if (!is_within(t->erase, 1))
        return lt_fail(LT_E_ARG, "transform: erase %g is no probability", t->erase);
    return LT_OK;
}

static lt_status check_rand_augment(const lt_transform *t)
{
    const lt_rand_augment *r = &t->rand_augment;
    if (r->ops < 0 || r->ops > LT_RAND_AUGMENT_MOST_OPS)
        return lt_fail(LT_E_ARG, "transform: %d operations of RandAugment, want 0 to %d", r->ops,
                       (int)LT_RAND_AUGMENT_MOST_OPS);
    if (!(r->magnitude >= 0 && r->magnitude <= LT_RAND_AUGMENT_MOST))
        return lt_fail(LT_E_ARG, "transform: RandAugment's magnitude %d is not in 0 .. %d",
                       r->magnitude, (int)LT_RAND_AUGMENT_MOST);
    if (r->ops && t->trivial_augment)
        return lt_fail(LT_E_ARG, "transform: TrivialAugment and RandAugment, want one of them");
    return LT_OK;
}

lt_status lt_transform_check(lt_transform *t)
{
    if (t->size < 1 || t->size > LT_TRANSFORM_MOST_SIZE)
        return lt_fail(LT_E_ARG, "transform: size %d is not in 1 .. %d", t->size,
                       (int)LT_TRANSFORM_MOST_SIZE);
    if (t->limits.pixels < 0 || !(t->limits.seconds >= 0))
        return lt_fail(LT_E_ARG, "transform: limits of %lld pixels, %g seconds",
                       (long long)t->limits.pixels, t->limits.seconds);
    LT_TRY(check_resize(t));
    if (t->filter != LT_FILTER_BILINEAR && t->filter != LT_FILTER_BICUBIC)
        return lt_fail(LT_E_ARG, "transform: no filter %d", (int)t->filter);
    if (!is_within(t->flip, 1))
        return lt_fail(LT_E_ARG, "transform: flip %g is no probability", t->flip);
    t->min_scale = t->min_scale != 0 ? t->min_scale : 0.08;
    t->max_scale = t->max_scale != 0 ? t->max_scale : 1;
    t->min_ratio = t->min_ratio != 0 ? t->min_ratio : 3.0 / 4;
    t->max_ratio = t->max_ratio != 0 ? t->max_ratio : 4.0 / 3;
    LT_TRY(check_colours(t));
    LT_TRY(check_rand_augment(t));
    LT_TRY(check_range("scale", t->min_scale, t->max_scale, 1));
    return check_range("ratio", t->min_ratio, t->max_ratio, MAX_RATIO);
}

/* Half to even, like Python's round(). */
static int32_t round_even(double x)
{
    return (int32_t)nearbyint(x);
}

static double between(double low, double high, lt_rng *rng)
{
    return low + (high - low) * lt_rng_uniform(rng);
}

static lt_window central_crop(const lt_transform *t, int32_t width, int32_t height)
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
    double low = log(t->min_ratio), high = log(t->max_ratio);
    for (int i = 0; i < TRIES; i++) {
        double target = area * between(t->min_scale, t->max_scale, rng);
        double ratio = exp(between(low, high, rng));
        double w = nearbyint(sqrt(target * ratio)), h = nearbyint(sqrt(target / ratio));
        if (w < 1 || w > width || h < 1 || h > height)
            continue;
        lt_window found = {.width = (int32_t)w, .height = (int32_t)h};
        found.y = (int32_t)lt_rng_below(rng, (uint32_t)(height - found.height + 1));
        found.x = (int32_t)lt_rng_below(rng, (uint32_t)(width - found.width + 1));
        return found;
    }
    return central_crop(t, width, height);
}

/* Resamples a whole side to `size` pixels and takes count of them from first on. */
static lt_axis axis(int32_t side, int64_t size, int64_t first, int32_t count)
{
    return (lt_axis){.limit = side, .extent = side, .size = size, .first = first, .count = count};
}

/* Short side to resize, then a square of t->size in the centre. */
static void plan_centre(lt_plan *p, const lt_transform *t, int32_t resize, int32_t width,
                        int32_t height)
{
    int32_t small = width < height ? width : height;
    int64_t w = (int64_t)((double)((int64_t)resize * width) / small);
    int64_t h = (int64_t)((double)((int64_t)resize * height) / small);
    p->x = axis(width, w, (int64_t)nearbyint((double)(w - t->size) / 2), t->size);
    p->y = axis(height, h, (int64_t)nearbyint((double)(h - t->size) / 2), t->size);
}

/* Shifts the output by so many pixels; pixels from outside of the square are zero. */
static void shift_axis(lt_axis *a, int32_t shift, int32_t *margin)
{
    a->count -= abs(shift);
    a->first += shift > 0 ? shift : 0;
    *margin = shift < 0 ? -shift : 0;
}

static void plan_small(lt_plan *p, const lt_transform *t, int32_t width, int32_t height,
                       lt_rng *rng)
{
    plan_centre(p, t, t->size, width, height);
    int32_t pad = t->size / 8;
    uint32_t places = 2 * (uint32_t)pad + 1;
    shift_axis(&p->y, (int32_t)lt_rng_below(rng, places) - pad, &p->top);
    shift_axis(&p->x, (int32_t)lt_rng_below(rng, places) - pad, &p->left);
}

lt_plan lt_augment_plan(const lt_transform *t, int32_t width, int32_t height, lt_rng *rng)
{
    lt_plan p = {.crop = {0, 0, width, height}};
    bool flip = t->augment != LT_AUGMENT_NONE && lt_rng_uniform(rng) < t->flip;
    if (t->augment == LT_AUGMENT_IMAGENET) {
        p.crop = lt_random_crop(t, width, height, rng);
        p.x = axis(p.crop.width, t->size, 0, t->size);
        p.y = axis(p.crop.height, t->size, 0, t->size);
    } else if (t->augment == LT_AUGMENT_NONE) {
        plan_centre(&p, t, t->resize, width, height);
    } else {
        plan_small(&p, t, width, height, rng);
    }
    p.x.filter = p.y.filter = t->filter;
    p.x.reverse = flip;
    if (flip)
        p.left = t->size - p.left - p.x.count;
    return p;
}
