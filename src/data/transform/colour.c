/* Pixel operations as Pillow computes them: blends in f32, truncated to integers; luma of ITU-R BT.601 in 16-bit fixed
 * point. */

#include "data/transform/colour.h"

#include "lather/ext/elementary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 256 };

static size_t canvas_bytes(const lt_canvas *c)
{
    return (size_t)c->size * (size_t)c->size * (size_t)c->channels;
}

static uint8_t pixel_luma(const uint8_t *p, int channels)
{
    return channels == 1 ? p[0] : lt_luma(p[0], p[1], p[2]);
}

/* Returns from + amount * (to - from), truncated and clamped to 0 .. 255. */
static uint8_t blend(uint8_t from, uint8_t to, float amount)
{
    float value = (float)from + amount * ((float)to - (float)from);
    return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)value;
}

static void adjust_brightness(lt_canvas *c, double factor)
{
    for (size_t i = 0; i < canvas_bytes(c); i++)
        c->pixels[i] = blend(0, c->pixels[i], (float)factor);
}

static void adjust_saturation(lt_canvas *c, double factor)
{
    for (size_t i = 0; i < canvas_bytes(c); i += (size_t)c->channels) {
        uint8_t grey = pixel_luma(c->pixels + i, c->channels);
        for (int k = 0; k < c->channels; k++)
            c->pixels[i + (size_t)k] = blend(grey, c->pixels[i + (size_t)k], (float)factor);
    }
}

static void adjust_contrast(lt_canvas *c, double factor)
{
    uint64_t sum = 0;
    size_t pixels = canvas_bytes(c) / (size_t)c->channels;
    for (size_t i = 0; i < pixels; i++)
        sum += pixel_luma(c->pixels + i * (size_t)c->channels, c->channels);
    uint8_t mean = (uint8_t)((double)sum / (double)pixels + 0.5);
    for (size_t i = 0; i < canvas_bytes(c); i++)
        c->pixels[i] = blend(mean, c->pixels[i], (float)factor);
}

/* Returns the weighted mean of a pixel (weight 5) and the eight pixels around it. */
static uint8_t smoothed_pixel(const lt_canvas *c, size_t i)
{
    size_t step = (size_t)c->channels, row = (size_t)c->size * step;
    const uint8_t *p = c->pixels + i;
    int sum = 5 * p[0] + p[-(ptrdiff_t)step] + p[step];
    for (ptrdiff_t x = -(ptrdiff_t)step; x <= (ptrdiff_t)step; x += (ptrdiff_t)step)
        sum += p[x - (ptrdiff_t)row] + p[x + (ptrdiff_t)row];
    return (uint8_t)floorf((float)sum * (1.0F / 13) + 0.5F);
}

/* Blends with the smoothed image, in which the border is unchanged. */
static void adjust_sharpness(lt_canvas *c, double factor)
{
    size_t row = (size_t)c->size * (size_t)c->channels;
    for (size_t i = 0; i < canvas_bytes(c); i++) {
        size_t x = i % row / (size_t)c->channels, y = i / row, last = (size_t)c->size - 1;
        bool border = x == 0 || y == 0 || x == last || y == last;
        c->other[i] = border ? c->pixels[i] : smoothed_pixel(c, i);
    }
    for (size_t i = 0; i < canvas_bytes(c); i++)
        c->pixels[i] = blend(c->other[i], c->pixels[i], (float)factor);
}

/* Maps the values of each channel through its lookup table. */
static void apply_tables(lt_canvas *c, uint8_t table[3][LEVELS])
{
    for (size_t i = 0; i < canvas_bytes(c); i++)
        c->pixels[i] = table[i % (size_t)c->channels][c->pixels[i]];
}

static void posterize(lt_canvas *c, double bits)
{
    uint8_t mask = (uint8_t) ~((1U << (8 - (int)bits)) - 1);
    for (size_t i = 0; i < canvas_bytes(c); i++)
        c->pixels[i] &= mask;
}

static void solarize(lt_canvas *c, double threshold)
{
    for (size_t i = 0; i < canvas_bytes(c); i++)
        if (c->pixels[i] >= threshold)
            c->pixels[i] = (uint8_t)(255 - c->pixels[i]);
}

static void histogram(const lt_canvas *c, int channel, uint32_t count[LEVELS])
{
    memset(count, 0, LEVELS * sizeof *count);
    for (size_t i = (size_t)channel; i < canvas_bytes(c); i += (size_t)c->channels)
        count[c->pixels[i]]++;
}

/* Makes the table that maps the smallest value of a channel to 0, its largest to 255. */
static void stretch_table(const uint32_t count[LEVELS], uint8_t table[LEVELS])
{
    int low = 0, high = LEVELS - 1;
    while (low < LEVELS - 1 && !count[low])
        low++;
    while (high > 0 && !count[high])
        high--;
    double scale = high > low ? 255.0 / (high - low) : 1;
    double offset = high > low ? -low * scale : 0;
    for (int i = 0; i < LEVELS; i++) {
        double value = i * scale + offset;
        table[i] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
    }
}

/* Makes the table of a histogram equalization. */
static void equalize_table(const uint32_t count[LEVELS], uint8_t table[LEVELS])
{
    uint32_t sum = 0, last = 0, used = 0;
    for (int i = 0; i < LEVELS; i++) {
        sum += count[i];
        used += count[i] != 0;
        last = count[i] ? count[i] : last;
    }
    uint32_t step = used > 1 ? (sum - last) / 255 : 0, n = step / 2;
    for (int i = 0; i < LEVELS; i++) {
        uint32_t value = step ? n / step : (uint32_t)i;
        table[i] = (uint8_t)(value > 255 ? 255 : value);
        n += count[i];
    }
}

static void map_by_histogram(lt_canvas *c, void (*make)(const uint32_t *count, uint8_t *table))
{
    uint8_t table[3][LEVELS];
    uint32_t count[LEVELS];
    for (int k = 0; k < c->channels; k++) {
        histogram(c, k, count);
        make(count, table[k]);
    }
    apply_tables(c, table);
}

static void auto_contrast(lt_canvas *c, double unused)
{
    (void)unused;
    map_by_histogram(c, stretch_table);
}

static void equalize(lt_canvas *c, double unused)
{
    (void)unused;
    map_by_histogram(c, equalize_table);
}

typedef struct hsv {
    uint8_t h, s, v;
} hsv;

static hsv to_hsv(const uint8_t p[3])
{
    uint8_t high = p[0] > p[1] ? p[0] : p[1], low = p[0] < p[1] ? p[0] : p[1];
    high = high > p[2] ? high : p[2];
    low = low < p[2] ? low : p[2];
    if (high == low)
        return (hsv){.v = high};
    float range = (float)(high - low);
    float r = (float)(high - p[0]) / range, g = (float)(high - p[1]) / range;
    float b = (float)(high - p[2]) / range;
    /* as in Pillow, sums in double and results in float */
    float h = p[0] == high   ? b - g
              : p[1] == high ? (float)(2.0 + (double)r - (double)b)
                             : (float)(4.0 + (double)g - (double)r);
    h = (float)fmod((double)h / 6.0 + 1.0, 1.0);
    return (hsv){.h = (uint8_t)((double)h * 255.0),
                 .s = (uint8_t)((double)(range / (float)high) * 255.0),
                 .v = high};
}

static void from_hsv(hsv x, uint8_t p[3])
{
    static const uint8_t order[6][3] = {{0, 3, 1}, {2, 0, 1}, {1, 0, 3},
                                        {1, 2, 0}, {3, 1, 0}, {0, 1, 2}}; /* indices of v p q t */
    double turn = x.h * 6.0 / 255.0, f = turn - floor(turn), s = x.s / 255.0;
    const uint8_t value[4] = {x.v, (uint8_t)lround(x.v * (1 - s)),
                              (uint8_t)lround(x.v * (1 - s * f)),
                              (uint8_t)lround(x.v * (1 - s * (1 - f)))};
    for (int k = 0; k < 3; k++)
        p[k] = value[order[(int)turn % 6][k]];
}

static void shift_hue(lt_canvas *c, double turn)
{
    uint8_t shift = (uint8_t)(int)(turn * 255);
    for (size_t i = 0; i < canvas_bytes(c) && c->channels == 3; i += 3) {
        hsv x = to_hsv(c->pixels + i);
        x.h = (uint8_t)(x.h + shift);
        from_hsv(x, c->pixels + i);
    }
}

/* Copies to each pixel the one that the matrix [m0 m1 m2; m3 m4 m5] maps its centre to; black if that is outside.
 * Nearest neighbour in 16-bit fixed point, as in Pillow. */
static void warp_affine(lt_canvas *c, const double m[6])
{
    const size_t step = (size_t)c->channels;
    int64_t fixed[6];
    for (int i = 0; i < 6; i++) {
        double centre = i == 2 ? 0.5 * (m[0] + m[1]) : i == 5 ? 0.5 * (m[3] + m[4]) : 0;
        fixed[i] = (int64_t)floor((m[i] + centre) * 65536.0 + 0.5);
    }
    for (int64_t y = 0; y < c->size; y++)
        for (int64_t x = 0; x < c->size; x++) {
            int64_t from_x = (fixed[0] * x + fixed[1] * y + fixed[2]) >> 16;
            int64_t from_y = (fixed[3] * x + fixed[4] * y + fixed[5]) >> 16;
            bool inside = from_x >= 0 && from_x < c->size && from_y >= 0 && from_y < c->size;
            uint8_t *to = c->other + (size_t)(y * c->size + x) * step;
            const uint8_t *from =
                c->pixels + (inside ? (size_t)(from_y * c->size + from_x) * step : 0);
            for (size_t k = 0; k < step; k++)
                to[k] = inside ? from[k] : 0;
        }
    memcpy(c->pixels, c->other, canvas_bytes(c));
}

static void rotate(lt_canvas *c, double degrees)
{
    const double to_radians = 3.14159265358979323846 / 180, centre = c->size / 2.0;
    double angle = -degrees * to_radians;
    double a = nearbyint(lt_f64_cos(angle) * 1e15) / 1e15;
    double b = nearbyint(lt_f64_sin(angle) * 1e15) / 1e15;
    double m[6] = {a, b, 0, -b, a, 0};
    m[2] = centre - centre * a - centre * b;
    m[5] = centre + centre * b - centre * a;
    warp_affine(c, m);
}

static void shear_x(lt_canvas *c, double value)
{
    warp_affine(c, (double[]){1, value, 0, 0, 1, 0});
}

static void shear_y(lt_canvas *c, double value)
{
    warp_affine(c, (double[]){1, 0, 0, value, 1, 0});
}

static void translate_x(lt_canvas *c, double pixels)
{
    warp_affine(c, (double[]){1, 0, -trunc(pixels), 0, 1, 0});
}

static void translate_y(lt_canvas *c, double pixels)
{
    warp_affine(c, (double[]){1, 0, 0, 0, 1, -trunc(pixels)});
}

void lt_pixel_apply(lt_canvas *c, lt_pixel_op op, double value)
{
    static void (*const apply[])(lt_canvas *, double) = {
        [LT_PIXEL_SHEAR_X] = shear_x,
        [LT_PIXEL_SHEAR_Y] = shear_y,
        [LT_PIXEL_TRANSLATE_X] = translate_x,
        [LT_PIXEL_TRANSLATE_Y] = translate_y,
        [LT_PIXEL_ROTATE] = rotate,
        [LT_PIXEL_BRIGHTNESS] = adjust_brightness,
        [LT_PIXEL_COLOUR] = adjust_saturation,
        [LT_PIXEL_CONTRAST] = adjust_contrast,
        [LT_PIXEL_SHARPNESS] = adjust_sharpness,
        [LT_PIXEL_POSTERIZE] = posterize,
        [LT_PIXEL_SOLARIZE] = solarize,
        [LT_PIXEL_EQUALIZE] = equalize,
        [LT_PIXEL_AUTO_CONTRAST] = auto_contrast,
        [LT_PIXEL_HUE] = shift_hue,
    };
    if (op != LT_PIXEL_IDENTITY)
        apply[op](c, value);
}

/* Returns the position of a pixel beyond the edge, mirrored without the edge: -1 is 1. */
static int mirror(int at, int size)
{
    at = abs(at);
    return at < size ? at : 2 * (size - 1) - at;
}

void lt_gaussian_blur(lt_canvas *c, double sigma)
{
    enum { RADIUS = 11 };
    const int radius = c->size > RADIUS ? RADIUS : c->size - 1, channels = c->channels;
    const int stride = c->size * channels;
    float weight[RADIUS + 1], total = 0, *column = (float *)(void *)c->other;
    for (int k = 0; k <= radius; k++) {
        weight[k] = (float)lt_f64_exp(-0.5 * k * k / (sigma * sigma));
        total += k ? 2 * weight[k] : weight[k];
    }
    memset(column, 0, canvas_bytes(c) * sizeof *column);
    for (int y = 0; y < c->size; y++)
        for (int k = -radius; k <= radius; k++) {
            const uint8_t *from = c->pixels + (size_t)mirror(y + k, c->size) * (size_t)stride;
            float *to = column + (size_t)y * (size_t)stride;
            for (int i = 0; i < stride; i++)
                to[i] += weight[abs(k)] * (float)from[i];
        }
    for (int y = 0; y < c->size; y++)
        for (int i = 0; i < stride; i++) {
            const float *from = column + (size_t)y * (size_t)stride + i % channels;
            float sum = 0;
            for (int k = -radius; k <= radius; k++)
                sum +=
                    weight[abs(k)] * from[(ptrdiff_t)mirror(i / channels + k, c->size) * channels];
            c->pixels[y * stride + i] = (uint8_t)(sum / (total * total) + 0.5F);
        }
}
