/* Computes the filter weights and runs the two passes over an image.
 *
 * Equals Pillow's resize with BILINEAR or BICUBIC and a box: the centre of output pixel i is at start + (i + 1/2) scale
 * in the source; the filter is stretched by max(scale, 1); its half width before that is 1 (triangle) or 2 (cubic);
 * weights are normalized in double and rounded to 22 bits; each pass rounds to 8 bits, rows first. (Pillow 13 begins
 * with the columns if an image shrinks much more in height than in width, which differs by one level, with the cubic
 * filter by up to four.) Source: the documentation of Pillow's Image.resize, and its output in tests/golden. */

#include "data/transform/resize.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

static double triangle_filter(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys, "Cubic convolution interpolation for digital image processing", IEEE Trans. ASSP 29, 1981, equation 15, with a
 * = -1/2. */
static double cubic_filter(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

typedef struct kernel {
    double (*value)(double x);
    double radius; /* half width: the value is 0 from there on */
} kernel;

static const kernel kernels_of[] = {
    [LT_FILTER_BILINEAR] = {triangle_filter, 1},
    [LT_FILTER_BICUBIC] = {cubic_filter, 2},
};

typedef struct support {
    double (*value)(double x);
    double scale, stretch, radius;
} support;

/* Sets the source pixels first .. last-1 that contribute to output pixel i, and returns its centre. */
static double find_support(const lt_axis *a, const support *s, int64_t i, int32_t *first,
                           int32_t *last)
{
    double centre = a->start + ((double)i + 0.5) * s->scale;
    double low = centre - s->radius + 0.5, high = centre + s->radius + 0.5;
    *first = low > 0 ? (int32_t)low : 0;
    *last = high < a->limit ? (int32_t)high : a->limit;
    return centre;
}

static void set_weights(const lt_axis *a, const support *s, int64_t i, lt_taps *t, int32_t at)
{
    int32_t first, last;
    double centre = find_support(a, s, i, &first, &last), sum = 0;
    int32_t *weight = t->weight + (size_t)at * (size_t)t->width;
    for (int32_t j = first; j < last; j++)
        sum += s->value((j - centre + 0.5) * (1 / s->stretch));
    for (int32_t j = first; j < last; j++) {
        double w = s->value((j - centre + 0.5) * (1 / s->stretch)) / sum;
        weight[j - first] = (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << LT_RESIZE_BITS));
    }
    t->first[at] = first;
    t->used[at] = last - first;
    t->low = first < t->low ? first : t->low;
    t->high = last > t->high ? last : t->high;
}

lt_status lt_taps_make(lt_taps *taps, const lt_axis *axis)
{
    const kernel *filter = &kernels_of[axis->filter];
    support s = {.value = filter->value, .scale = axis->length / (double)axis->size};
    s.stretch = s.scale < 1 ? 1 : s.scale;
    s.radius = filter->radius * s.stretch;
    size_t width = (size_t)ceil(s.radius) * 2 + 2, count = (size_t)axis->count;
    size_t words = count * (2 + width);
    if (words > taps->capacity) {
        lt_taps_clear(taps);
        taps->memory = lt_alloc(words, sizeof *taps->memory);
        if (!taps->memory)
            return LT_E_NOMEM;
        taps->capacity = words;
    } else {
        memset(taps->memory, 0, words * sizeof *taps->memory);
    }
    taps->first = taps->memory;
    taps->used = taps->first + count;
    taps->weight = taps->used + count;
    taps->count = axis->count;
    taps->width = (int32_t)width;
    taps->overshoots = axis->filter != LT_FILTER_BILINEAR;
    taps->low = axis->limit;
    taps->high = 0;
    for (int32_t i = 0; i < axis->count; i++)
        set_weights(axis, &s, axis->first + i, taps, axis->reverse ? axis->count - 1 - i : i);
    for (int32_t i = 0; i < axis->count; i++)
        taps->first[i] -= taps->low;
    return LT_OK;
}

void lt_taps_clear(lt_taps *taps)
{
    lt_free(taps->memory);
    *taps = (lt_taps){0};
}

lt_resize_kernels lt_resize_portable_kernels(void)
{
    return (lt_resize_kernels){.across = lt_across_base, .down = lt_down_base};
}

lt_resize_kernels lt_resize_best_kernels(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return (lt_resize_kernels){.across = lt_across_wide, .down = lt_down_avx2};
#endif
    return lt_resize_portable_kernels();
}

lt_status lt_resize(lt_resize_kernels kernels, const lt_image *src, const lt_taps *x,
                    const lt_taps *y, lt_image *intermediate, uint8_t *dst, size_t stride)
{
    size_t bytes = (size_t)x->count * (size_t)src->channels;
    int32_t rows = y->high - y->low;
    LT_ASSERT(src->width == x->high - x->low && src->height == rows);
    LT_TRY(lt_image_reserve(intermediate, bytes * (size_t)rows));
    kernels.across(src->pixels, src->stride, rows, x, src->channels, intermediate->memory);
    kernels.down(intermediate->memory, bytes, y, dst, stride);
    return LT_OK;
}
