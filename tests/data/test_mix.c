/* Mixup and CutMix: proportions, pixels and targets. */

#include "data/transform/mix.h"
#include "near.h"

#include <string.h>

enum { SIZE = 24, COUNT = 5, CLASSES = 4, PIXELS = SIZE * SIZE * 3 };

/* Moments of Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)); within 5 standard errors. */
static void check_beta(void **state)
{
    enum { DRAWS = 20000 };
    (void)state;
    static const double alphas[] = {0.1, 0.2, 1, 4};
    for (size_t i = 0; i < COUNT_OF(alphas); i++) {
        double sum = 0, squares = 0, want = 1 / (4 * (2 * alphas[i] + 1));
        lt_rng rng = {.key = 11};
        for (int k = 0; k < DRAWS; k++) {
            double x = lt_rng_beta(&rng, alphas[i]);
            assert_true(x >= 0 && x <= 1);
            sum += x - 0.5;
            squares += (x - 0.5) * (x - 0.5);
        }
        assert_near(sum / DRAWS, 0, 5 * sqrt(want / DRAWS));
        assert_near(squares / DRAWS, want, 5 * 0.25 / sqrt(DRAWS));
    }
}

static void fill(uint8_t *pixels)
{
    for (int n = 0; n < COUNT; n++)
        memset(pixels + n * PIXELS, 40 * n + 10, PIXELS);
}

/* Each image has one colour, so that the partner's proportion can be measured. */
static void check_images(void **state)
{
    (void)state;
    static uint8_t pixels[COUNT * PIXELS];
    static const int32_t labels[COUNT] = {0, 1, 2, 3, 1};
    float targets[COUNT * CLASSES];
    int cuts = 0, averages = 0;
    const lt_mix mix = {.mixup_alpha = 0.8, .cutmix_alpha = 1};
    for (uint64_t key = 0; key < 60; key++) {
        lt_rng rng = {.key = key};
        lt_mixing p = lt_mix_draw(&mix, SIZE, &rng);
        fill(pixels);
        lt_mix_pixels(&p, pixels, COUNT, SIZE, 3);
        lt_mix_targets(&p, labels, COUNT, CLASSES, targets);
        double mean = 0;
        for (int i = 0; i < PIXELS; i++)
            mean += pixels[i] / (double)PIXELS;
        assert_near(mean, 10 * p.share + 170 * (1 - p.share), p.cut ? 1e-9 : 0.51);
        assert_near((double)targets[0], p.share, 1e-6);
        assert_near((double)targets[1], 1 - p.share, 1e-6);
        for (int i = 0; i < PIXELS; i++) /* the middle image is its own partner */
            assert_int_equal(pixels[2 * PIXELS + i], 90);
        assert_near((double)targets[2 * CLASSES + 2], 1, 1e-6);
        cuts += p.cut;
        averages += !p.cut;
    }
    assert_true(cuts > 15 && averages > 15);
}

static void check_probability(void **state)
{
    (void)state;
    int mixed = 0;
    const lt_mix mix = {.mixup_alpha = 1, .probability = 0.25}, none = {0};
    for (uint64_t key = 0; key < 400; key++) {
        lt_rng rng = {.key = key}, other = {.key = key};
        mixed += lt_mix_draw(&mix, SIZE, &rng).share < 1;
        assert_true(lt_mix_draw(&none, SIZE, &other).share == 1);
    }
    assert_in_range(mixed, 70, 135);
    static const lt_mix wrong[] = {{.cutmix_alpha = -1},
                                   {.mixup_alpha = -0.1},
                                   {.mixup_alpha = (double)NAN},
                                   {.mixup_alpha = 1, .probability = 1.01},
                                   {.mixup_alpha = 1, .probability = -0.01}},
                        right[] = {{.probability = 1}, {.mixup_alpha = 0.1, .cutmix_alpha = 9}};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_status(lt_mix_check(&wrong[i]), LT_E_ARG);
    for (size_t i = 0; i < COUNT_OF(right); i++)
        assert_ok(lt_mix_check(&right[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"Beta variates have the right moments", check_beta, 0, 0, 0},
        {"pixels and targets have the same proportions", check_images, 0, 0, 0},
        {"batches are mixed with the given probability", check_probability, 0, 0, 0},
    };
    return cmocka_run_group_tests_name("mix", tests, NULL, NULL);
}
