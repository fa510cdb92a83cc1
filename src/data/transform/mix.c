/* Mixup: Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, section 2. Cutmix: Yun et al., "CutMix:
 * Regularization Strategy to Train Strong Classifiers", ICCV 2019, section 3.1, in torchvision's form: the window is
 * clipped at the border, and the weights are computed from its area. */

#include "data/transform/mix.h"

#include "lather/ext/elementary.h"

#include <math.h>
#include <string.h>

lt_status lt_mix_check(const lt_mix *mix)
{
    if (!(mix->mixup_alpha >= 0 && mix->cutmix_alpha >= 0))
        return lt_fail(LT_E_ARG, "loader: mixup alpha is %g, cutmix alpha is %g; want 0 or more",
                       mix->mixup_alpha, mix->cutmix_alpha);
    if (!(mix->probability >= 0 && mix->probability <= 1))
        return lt_fail(LT_E_ARG, "loader: mix probability is %g, want 0 .. 1", mix->probability);
    return LT_OK;
}

bool lt_mix_is_enabled(const lt_mix *mix)
{
    return mix->mixup_alpha > 0 || mix->cutmix_alpha > 0;
}

/* Draws from Gamma(alpha), alpha >= 1. */
static double gamma_variate(lt_rng *rng, double alpha)
{
    double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = lt_rng_normal(rng), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (lt_f64_log(1 - lt_rng_uniform(rng)) < 0.5 * x * x + d - d * v + d * lt_f64_log(v))
            return d * v;
    }
}

/* Returns the logarithm of a gamma variate, as the variate may underflow for a small alpha. */
static double log_gamma_variate(lt_rng *rng, double alpha)
{
    if (alpha >= 1)
        return lt_f64_log(gamma_variate(rng, alpha));
    double boost = lt_f64_log(1 - lt_rng_uniform(rng)) / alpha;
    return lt_f64_log(gamma_variate(rng, alpha + 1)) + boost;
}

double lt_rng_beta(lt_rng *rng, double alpha)
{
    double a = log_gamma_variate(rng, alpha), b = log_gamma_variate(rng, alpha);
    return 1 / (1 + lt_f64_exp(b - a));
}

static int32_t clip_to_side(double x, int32_t high)
{
    return x < 0 ? 0 : x > high ? high : (int32_t)x;
}

static void draw_cutmix_window(lt_mixing *m, int size, lt_rng *rng)
{
    double x = lt_rng_below(rng, (uint32_t)size), y = lt_rng_below(rng, (uint32_t)size);
    double half = trunc(0.5 * sqrt(1 - m->share) * size);
    int32_t left = clip_to_side(x - half, size), right = clip_to_side(x + half, size);
    int32_t top = clip_to_side(y - half, size), low = clip_to_side(y + half, size);
    m->cut = true;
    m->window = (lt_window){left, top, right - left, low - top};
    m->share = 1 - (double)m->window.width * m->window.height / ((double)size * size);
}

lt_mixing lt_mix_draw(const lt_mix *mix, int size, lt_rng *rng)
{
    lt_mixing m = {.share = 1};
    double probability = mix->probability > 0 ? mix->probability : 1;
    if (!lt_mix_is_enabled(mix) || !(lt_rng_uniform(rng) < probability))
        return m;
    bool cut = mix->cutmix_alpha > 0;
    if (cut && mix->mixup_alpha > 0)
        cut = lt_rng_below(rng, 2) == 1;
    m.share = lt_rng_beta(rng, cut ? mix->cutmix_alpha : mix->mixup_alpha);
    if (cut)
        draw_cutmix_window(&m, size, rng);
    return m;
}

/* Sets a = share a + (1 - share) b and b = share b + (1 - share) a. */
static void average_pixels(uint8_t *a, uint8_t *b, size_t bytes, float share)
{
    for (size_t i = 0; i < bytes; i++) {
        float x = a[i], y = b[i];
        a[i] = (uint8_t)(y + share * (x - y) + 0.5F);
        b[i] = (uint8_t)(x + share * (y - x) + 0.5F);
    }
}

static void swap_pixels(uint8_t *a, uint8_t *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t swap = a[i];
        a[i] = b[i];
        b[i] = swap;
    }
}

void lt_mix_pixels(const lt_mixing *m, uint8_t *pixels, int count, int size, int channels)
{
    size_t row = (size_t)size * (size_t)channels, all = row * (size_t)size;
    if (m->share >= 1)
        return;
    for (int n = 0; n < count / 2; n++) {
        uint8_t *a = pixels + (size_t)n * all, *b = pixels + (size_t)(count - 1 - n) * all;
        if (!m->cut) {
            average_pixels(a, b, all, (float)m->share);
            continue;
        }
        for (int32_t y = m->window.y; y < m->window.y + m->window.height; y++) {
            size_t at = (size_t)y * row + (size_t)m->window.x * (size_t)channels;
            swap_pixels(a + at, b + at, (size_t)m->window.width * (size_t)channels);
        }
    }
}

void lt_mix_targets(const lt_mixing *m, const int32_t *labels, int count, int classes,
                    float *targets)
{
    memset(targets, 0, (size_t)count * (size_t)classes * sizeof *targets);
    for (int n = 0; n < count; n++) {
        float *row = targets + (size_t)n * (size_t)classes;
        row[labels[n]] += (float)m->share;
        row[labels[count - 1 - n]] += (float)(1 - m->share);
    }
}
