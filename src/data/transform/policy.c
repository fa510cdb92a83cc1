/* Draws operations and strengths: TrivialAugment, RandAugment, colour jitter, random erasing. */

#include "data/transform/colour.h"

#include "lather/ext/elementary.h"

#include <math.h>
#include <string.h>

enum { BINS = 31, TRIES = 10 };

/* Strengths from low to high in BINS steps. The strength is added to base, or if has_sign subtracted with probability
 * 1/2. */
typedef struct strength {
    double low, high, base;
    bool has_sign;
} strength;

/* TrivialAugment's wide space. */
static const strength wide[LT_PIXEL_OPS] = {
    [LT_PIXEL_SHEAR_X] = {0, 0.99, 0, true},   [LT_PIXEL_SHEAR_Y] = {0, 0.99, 0, true},
    [LT_PIXEL_TRANSLATE_X] = {0, 32, 0, true}, [LT_PIXEL_TRANSLATE_Y] = {0, 32, 0, true},
    [LT_PIXEL_ROTATE] = {0, 135, 0, true},     [LT_PIXEL_BRIGHTNESS] = {0, 0.99, 1, true},
    [LT_PIXEL_COLOUR] = {0, 0.99, 1, true},    [LT_PIXEL_CONTRAST] = {0, 0.99, 1, true},
    [LT_PIXEL_SHARPNESS] = {0, 0.99, 1, true}, [LT_PIXEL_POSTERIZE] = {8, 2, 0, false},
    [LT_PIXEL_SOLARIZE] = {255, 0, 0, false},
};

/* RandAugment's strengths in torchvision; translations are relative to the side. */
static const strength rand_space[LT_PIXEL_OPS] = {
    [LT_PIXEL_SHEAR_X] = {0, 0.3, 0, true},     [LT_PIXEL_SHEAR_Y] = {0, 0.3, 0, true},
    [LT_PIXEL_TRANSLATE_X] = {0, 150, 0, true}, /* for 331 pixels */
    [LT_PIXEL_TRANSLATE_Y] = {0, 150, 0, true}, [LT_PIXEL_ROTATE] = {0, 30, 0, true},
    [LT_PIXEL_BRIGHTNESS] = {0, 0.9, 1, true},  [LT_PIXEL_COLOUR] = {0, 0.9, 1, true},
    [LT_PIXEL_CONTRAST] = {0, 0.9, 1, true},    [LT_PIXEL_SHARPNESS] = {0, 0.9, 1, true},
    [LT_PIXEL_POSTERIZE] = {8, 4, 0, false},    [LT_PIXEL_SOLARIZE] = {255, 0, 0, false},
};

/* Returns the strength of a bin, an integer for posterize. */
static double strength_of_bin(const strength *s, lt_pixel_op op, uint32_t bin)
{
    if (op == LT_PIXEL_POSTERIZE)
        return s->low - nearbyint(bin / ((BINS - 1) / (s->low - s->high)));
    return s->low + (s->high - s->low) * bin / (BINS - 1);
}

/* Equals torchvision's values, which are floats of torch.linspace, computed from both ends: bin 15 of translations up
 * to 32 pixels is 15.999999, a translation by 15. */
double lt_trivial_augment_strength(lt_pixel_op op, uint32_t bin)
{
    const strength *s = &wide[op];
    const double step = (double)((float)(s->high - s->low) / (BINS - 1));
    if (op == LT_PIXEL_POSTERIZE)
        return strength_of_bin(s, op, bin);
    return (double)(float)(bin < BINS / 2 ? s->low + step * bin
                                          : (double)(float)s->high - step * (BINS - 1 - bin));
}

static void apply_with_random_sign(lt_canvas *canvas, const strength *s, lt_pixel_op op,
                                   double value, lt_rng *rng)
{
    bool minus = s->has_sign && lt_rng_below(rng, 2);
    lt_pixel_apply(canvas, op, s->base + (minus ? -value : value));
}

void lt_trivial_augment(lt_canvas *canvas, lt_rng *rng)
{
    lt_pixel_op op = (lt_pixel_op)lt_rng_below(rng, LT_PIXEL_OPS);
    uint32_t bin = lt_rng_below(rng, BINS);
    apply_with_random_sign(canvas, &wide[op], op, lt_trivial_augment_strength(op, bin), rng);
}

double lt_rand_augment_strength(lt_pixel_op op, int magnitude, int side)
{
    const bool moves = op == LT_PIXEL_TRANSLATE_X || op == LT_PIXEL_TRANSLATE_Y;
    return strength_of_bin(&rand_space[op], op, (uint32_t)magnitude) * (moves ? side / 331.0 : 1);
}

void lt_rand_augment_apply(lt_canvas *canvas, const lt_rand_augment *config, lt_rng *rng,
                           const atomic_bool *stop)
{
    for (int i = 0; i < config->ops && !(stop && atomic_load(stop)); i++) {
        lt_pixel_op op = (lt_pixel_op)lt_rng_below(rng, LT_PIXEL_OPS);
        apply_with_random_sign(canvas, &rand_space[op], op,
                               lt_rand_augment_strength(op, config->magnitude, canvas->size), rng);
    }
}

static double draw_uniform(double low, double high, lt_rng *rng)
{
    return low + (high - low) * lt_rng_uniform(rng);
}

void lt_colour_jitter(lt_canvas *canvas, const lt_jitter *jitter, lt_rng *rng)
{
    struct {
        lt_pixel_op op;
        double amount, low, high;
    } part[] = {
        {LT_PIXEL_BRIGHTNESS, jitter->brightness, 1 - jitter->brightness, 1 + jitter->brightness},
        {LT_PIXEL_CONTRAST, jitter->contrast, 1 - jitter->contrast, 1 + jitter->contrast},
        {LT_PIXEL_COLOUR, jitter->saturation, 1 - jitter->saturation, 1 + jitter->saturation},
        {LT_PIXEL_HUE, jitter->hue, -jitter->hue, jitter->hue},
    };
    uint32_t left = sizeof part / sizeof *part;
    while (left) { /* without replacement */
        uint32_t at = lt_rng_below(rng, left--);
        double low = part[at].op == LT_PIXEL_HUE ? part[at].low : fmax(part[at].low, 0);
        double value = draw_uniform(low, part[at].high, rng);
        if (part[at].amount > 0)
            lt_pixel_apply(canvas, part[at].op, value);
        part[at] = part[left];
    }
}

static void fill_rectangle(lt_canvas *c, lt_window w, const uint8_t fill[3])
{
    for (int32_t y = w.y; y < w.y + w.height; y++)
        for (int32_t x = w.x; x < w.x + w.width; x++)
            memcpy(c->pixels + ((size_t)y * (size_t)c->size + (size_t)x) * (size_t)c->channels,
                   fill, (size_t)c->channels);
}

void lt_random_erase(lt_canvas *c, double probability, const uint8_t fill[3], lt_rng *rng)
{
    const double low_area = 0.02, high_area = 0.33;
    const double low_ratio = lt_f64_log(0.3), high_ratio = lt_f64_log(3.3);
    if (!(lt_rng_uniform(rng) < probability))
        return;
    double area = (double)c->size * c->size;
    for (int i = 0; i < TRIES; i++) {
        double wanted = area * draw_uniform(low_area, high_area, rng);
        double ratio = lt_f64_exp(draw_uniform(low_ratio, high_ratio, rng));
        lt_window w = {.width = (int32_t)nearbyint(sqrt(wanted / ratio)),
                       .height = (int32_t)nearbyint(sqrt(wanted * ratio))};
        if (w.width < 1 || w.height < 1 || w.width >= c->size || w.height >= c->size)
            continue;
        w.y = (int32_t)lt_rng_below(rng, (uint32_t)(c->size - w.height + 1));
        w.x = (int32_t)lt_rng_below(rng, (uint32_t)(c->size - w.width + 1));
        fill_rectangle(c, w, fill);
        return;
    }
}
