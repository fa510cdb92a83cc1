/* Mixup: Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, section 2. Cutmix:
 * Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers", ICCV 2019, section
 * 3.1, in torchvision's form: the window is cut off at the border, and the share is that of its
 * area. */

#include "data/transform/mix.h"

#include <math.h>
#include <string.h>

lt_status lt_mix_check(const lt_mix *mix)
{
    if (!(mix->mixup_alpha >= 0 && mix->cutmix_alpha >= 0))
        return lt_fail(LT_E_ARG, "loader: mixup alpha %g, cutmix alpha %g: below 0",
                       mix->mixup_alpha, mix->cutmix_alpha);
    if (!(mix->probability >= 0 && mix->probability <= 1))
        return lt_fail(LT_E_ARG, "loader: mix probability %g", mix->probability);
    return LT_OK;
}

bool lt_mix_wanted(const lt_mix *mix)
{
    return mix->mixup_alpha > 0 || mix->cutmix_alpha > 0;
}

/* Gamma(alpha), alpha >= 1. */
static double gamma_large(lt_rng *rng, double alpha)
{
    double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = lt_rng_normal(rng), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(1 - lt_rng_uniform(rng)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

/* The logarithm: for a small alpha the number itself may be 0. */
static double log_gamma_variate(lt_rng *rng, double alpha)
{
    if (alpha >= 1)
        return log(gamma_large(rng, alpha));
    double boost = log(1 - lt_rng_uniform(rng)) / alpha;
    return log(gamma_large(rng, alpha + 1)) + boost;
}

double lt_rng_beta(lt_rng *rng, double alpha)
{
    double a = log_gamma_variate(rng, alpha), b = log_gamma_variate(rng, alpha);
    return 1 / (1 + exp(b - a));
}

static int32_t clip(double x, int32_t high)
{
    return x < 0 ? 0 : x > high ? high : (int32_t)x;
}

static void draw_box(lt_mix_plan *p, int size, lt_rng *rng)
{
    double x = lt_rng_below(rng, (uint32_t)size), y = lt_rng_below(rng, (uint32_t)size);
    double half = trunc(0.5 * sqrt(1 - p->share) * size);
    int32_t left = clip(x - half, size), right = clip(x + half, size);
    int32_t top = clip(y - half, size), low = clip(y + half, size);
    p->cut = true;
    p->box = (lt_window){left, top, right - left, low - top};
    p->share = 1 - (double)p->box.width * p->box.height / ((double)size * size);
}

lt_mix_plan lt_mix_draw(const lt_mix *mix, int size, lt_rng *rng)
{
    lt_mix_plan p = {.share = 1};
    double probability = mix->probability > 0 ? mix->probability : 1;
    if (!lt_mix_wanted(mix) || !(lt_rng_uniform(rng) < probability))
        return p;
    bool cut = mix->cutmix_alpha > 0;
    if (cut && mix->mixup_alpha > 0)
        cut = lt_rng_below(rng, 2) == 1;
    p.share = lt_rng_beta(rng, cut ? mix->cutmix_alpha : mix->mixup_alpha);
    if (cut)
        draw_box(&p, size, rng);
    return p;
}

/* a = share a + (1 - share) b, and b = share b + (1 - share) a. */
static void average(uint8_t *a, uint8_t *b, size_t bytes, float share)
{
    for (size_t i = 0; i < bytes; i++) {
        float x = a[i], y = b[i];
        a[i] = (uint8_t)(y + share * (x - y) + 0.5F);
        b[i] = (uint8_t)(x + share * (y - x) + 0.5F);
    }
}

static void exchange(uint8_t *a, uint8_t *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

void lt_mix_pixels(const lt_mix_plan *p, uint8_t *pixels, int count, int size, int channels)
{
    size_t row = (size_t)size * (size_t)channels, all = row * (size_t)size;
    if (p->share >= 1)
        return;
    for (int n = 0; n < count / 2; n++) {
        uint8_t *a = pixels + (size_t)n * all, *b = pixels + (size_t)(count - 1 - n) * all;
        if (!p->cut) {
            average(a, b, all, (float)p->share);
            continue;
        }
        for (int32_t y = p->box.y; y < p->box.y + p->box.height; y++) {
            size_t at = (size_t)y * row + (size_t)p->box.x * (size_t)channels;
            exchange(a + at, b + at, (size_t)p->box.width * (size_t)channels);
        }
    }
}

void lt_mix_targets(const lt_mix_plan *p, const int32_t *labels, int count, int classes,
                    float *targets)
{
    memset(targets, 0, (size_t)count * (size_t)classes * sizeof *targets);
    for (int n = 0; n < count; n++) {
        float *row = targets + (size_t)n * (size_t)classes;
        row[labels[n]] += (float)p->share;
        row[labels[count - 1 - n]] += (float)(1 - p->share);
    }
}
