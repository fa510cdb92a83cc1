/* Pixel operations compared with Pillow and torchvision; distributions of random augmentation. */

#include "data/transform/colour.h"
#include "data/transform/transform.h"
#include "golden.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SIDE = 40 };

/* Makes the image of tests/golden/data/make_policy.py. */
static void make_image(uint8_t *pixels, int channels)
{
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int c = 0; c < channels; c++) {
                int value = 40 + x * 3 + y * 2 + c * 29 + x * y % 17 * 3
                            + (x / 5 + y / 4) % 2 * 30 * (c + 1) / 2;
                *pixels++ = (uint8_t)(value < 250 ? value : 250);
            }
}

static void check_operations(void **state)
{
    (void)state;
    uint8_t pixels[SIDE * SIDE * 3], other[SIDE * SIDE * 3];
    FILE *file = open_golden("data/policy.txt");
    int channels, op, rows = 0, wrong = 0;
    double value;
    unsigned long want;
    while (fscanf(file, "%d %d %lf %lu", &channels, &op, &value, &want) == 4) {
        lt_canvas canvas = {pixels, other, SIDE, channels};
        make_image(pixels, channels);
        lt_pixel_apply(&canvas, (lt_pixel_op)op, value);
        unsigned long got = crc32(0, pixels, (uInt)(SIDE * SIDE * channels));
        if (got != want) {
            print_message("operation %d, value %g, %d channels differs\n", op, value, channels);
            wrong++;
        }
        rows++;
    }
    fclose(file);
    assert_int_equal(wrong, 0);
    assert_int_equal(rows, 126);
}

/* Equal random numbers give equal images. */
static void check_trivial(void **state)
{
    (void)state;
    enum { DRAWS = 300 };
    uint8_t a[SIDE * SIDE * 3], b[SIDE * SIDE * 3], other[SIDE * SIDE * 3];
    int changed = 0;
    for (uint64_t key = 0; key < DRAWS; key++) {
        lt_rng x = {.key = key}, y = {.key = key};
        lt_canvas p = {a, other, SIDE, 3}, q = {b, other, SIDE, 3};
        make_image(a, 3);
        make_image(b, 3);
        lt_trivial_augment(&p, &x);
        lt_trivial_augment(&q, &y);
        assert_memory_equal(a, b, sizeof a);
        make_image(b, 3);
        changed += memcmp(a, b, sizeof a) != 0;
    }
    assert_in_range(changed, DRAWS * 70 / 100, DRAWS * 95 / 100); /* except identity, strength 0 */
}

static void check_strengths(void **state)
{
    (void)state;
    FILE *file = open_golden("data/randaugment.txt");
    int side, op, magnitude, rows = 0;
    double want;
    while (fscanf(file, "%d %d %d %lf", &side, &op, &magnitude, &want) == 4) {
        const double got = lt_rand_augment_strength((lt_pixel_op)op, magnitude, side);
        assert_near(got, want, 4e-7 * fabs(want)); /* torchvision has single precision */
        assert_int_equal((int)got, (int)want);     /* translations are in whole pixels */
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, 3 * LT_PIXEL_OPS * (LT_RAND_AUGMENT_MOST + 1));
}

/* torchvision's float32 values as rounded by torch.linspace of PyTorch 2. */
static void check_trivial_strengths(void **state)
{
    (void)state;
    static const struct {
        lt_pixel_op op;
        uint32_t bin;
        double want;
    } row[] = {
        {LT_PIXEL_TRANSLATE_X, 14, 14.9333343505859},
        {LT_PIXEL_TRANSLATE_X, 15, 15.9999990463257},
        {LT_PIXEL_TRANSLATE_Y, 30, 32},
        {LT_PIXEL_TRANSLATE_Y, 16, 17.0666656494141},
        {LT_PIXEL_BRIGHTNESS, 15, 0.495000004768372},
        {LT_PIXEL_COLOUR, 1, 0.0329999998211861},
        {LT_PIXEL_ROTATE, 7, 31.5},
        {LT_PIXEL_SOLARIZE, 0, 255},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_near(lt_trivial_augment_strength(row[i].op, row[i].bin), row[i].want, 1e-12);
    assert_int_equal((int)lt_trivial_augment_strength(LT_PIXEL_TRANSLATE_X, 15), 15);
}

/* Returns true if the operation's strength has a random sign. */
static bool has_sign(lt_pixel_op op)
{
    return op >= LT_PIXEL_SHEAR_X && op <= LT_PIXEL_SHARPNESS;
}

/* Returns the value to which the strength is added. */
static double neutral_value(lt_pixel_op op)
{
    return op >= LT_PIXEL_BRIGHTNESS && op <= LT_PIXEL_SHARPNESS ? 1 : 0;
}

/* Each image is the result of one of the 14 operations, which occur equally often, with each sign in half of the cases. */
static void check_rand(void **state)
{
    (void)state;
    enum { DRAWS = 1400, BYTES = SIDE * SIDE * 3, MAGNITUDE = 9 };
    static uint8_t made[2 * LT_PIXEL_OPS][BYTES], got[BYTES], other[BYTES];
    int count[2 * LT_PIXEL_OPS] = {0};
    for (int i = 0; i < 2 * LT_PIXEL_OPS; i++) {
        const lt_pixel_op op = (lt_pixel_op)(i / 2);
        const double value = lt_rand_augment_strength(op, MAGNITUDE, SIDE);
        lt_canvas canvas = {made[i], other, SIDE, 3};
        make_image(made[i], 3);
        lt_pixel_apply(&canvas, op, neutral_value(op) + (i % 2 ? -value : value));
    }
    for (uint64_t key = 0; key < DRAWS; key++) {
        lt_rng rng = {.key = key};
        lt_canvas canvas = {got, other, SIDE, 3};
        int i = 0;
        make_image(got, 3);
        lt_rand_augment_apply(&canvas, &(lt_rand_augment){1, MAGNITUDE}, &rng, NULL);
        while (i < 2 * LT_PIXEL_OPS
               && ((i % 2 && !has_sign((lt_pixel_op)(i / 2))) || memcmp(got, made[i], BYTES) != 0))
            i++;
        assert_in_range(i, 0, 2 * LT_PIXEL_OPS - 1);
        count[i]++;
    }
    /* 100 of each operation, 50 of each sign, within five standard deviations. */
    for (int i = 0; i < 2 * LT_PIXEL_OPS; i++)
        if (has_sign((lt_pixel_op)(i / 2)))
            assert_in_range(count[i], 50 - 35, 50 + 35);
        else if (i % 2 == 0)
            assert_in_range(count[i], 100 - 49, 100 + 49);
}

/* Two operations equal one and another one; zero operations change nothing. */
static void check_rand_ops(void **state)
{
    (void)state;
    uint8_t a[SIDE * SIDE * 3], b[SIDE * SIDE * 3], other[SIDE * SIDE * 3];
    int changed = 0;
    for (uint64_t key = 0; key < 100; key++) {
        lt_rng x = {.key = key}, y = {.key = key};
        lt_canvas p = {a, other, SIDE, 3}, q = {b, other, SIDE, 3};
        make_image(a, 3);
        make_image(b, 3);
        lt_rand_augment_apply(&p, &(lt_rand_augment){0, 9}, &x, NULL);
        assert_memory_equal(a, b, sizeof a);
        lt_rand_augment_apply(&p, &(lt_rand_augment){2, 9}, &x, NULL);
        lt_rand_augment_apply(&q, &(lt_rand_augment){1, 9}, &y, NULL);
        changed += memcmp(a, b, sizeof a) != 0;
        lt_rand_augment_apply(&q, &(lt_rand_augment){1, 9}, &y, NULL);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_in_range(changed, 60, 100); /* the second one mostly has an effect */
}

static void check_jitter(void **state)
{
    (void)state;
    uint8_t a[SIDE * SIDE * 3], b[SIDE * SIDE * 3], other[SIDE * SIDE * 3];
    const lt_jitter none = {0}, some = {.brightness = 0.4, .hue = 0.1};
    lt_canvas canvas = {a, other, SIDE, 3};
    lt_rng rng = {.key = 4};
    make_image(a, 3);
    make_image(b, 3);
    lt_colour_jitter(&canvas, &none, &rng);
    assert_memory_equal(a, b, sizeof a);
    lt_colour_jitter(&canvas, &some, &rng);
    assert_memory_not_equal(a, b, sizeof a);
}

/* Counts how often and how much is erased. */
static void check_erase(void **state)
{
    (void)state;
    enum { DRAWS = 400 };
    static const uint8_t fill[3] = {1, 2, 3};
    uint8_t a[SIDE * SIDE * 3], other[SIDE * SIDE * 3];
    lt_canvas canvas = {a, other, SIDE, 3};
    int erased = 0;
    for (uint64_t key = 0; key < DRAWS; key++) {
        lt_rng rng = {.key = key};
        int pixels = 0;
        make_image(a, 3);
        lt_random_erase(&canvas, 0.25, fill, &rng);
        for (int i = 0; i < SIDE * SIDE; i++)
            pixels += !memcmp(a + 3 * i, fill, 3);
        if (!pixels)
            continue;
        erased++;
        assert_in_range(pixels, SIDE * SIDE * 15 / 1000, SIDE * SIDE * 36 / 100);
    }
    assert_in_range(erased, DRAWS * 18 / 100, DRAWS * 32 / 100);
}

/* Returns a value of the sampled Gaussian of 23 taps. */
static double tap(int at, double sigma)
{
    double sum = 0;
    for (int k = -11; k <= 11; k++)
        sum += exp(-0.5 * k * k / sigma / sigma);
    return abs(at) <= 11 ? exp(-0.5 * at * at / sigma / sigma) / sum : 0;
}

/* Two bright points, one of which is mirrored at the left edge. */
static void check_blur(void **state)
{
    (void)state;
    const double sigma = 1.5;
    uint8_t pixels[SIDE * SIDE] = {0};
    float other[SIDE * SIDE];
    lt_canvas canvas = {pixels, (uint8_t *)other, SIDE, 1};
    pixels[20 * SIDE + 1] = pixels[20 * SIDE + 30] = 255;
    lt_gaussian_blur(&canvas, sigma);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            const double across = tap(x - 1, sigma) + (x > 0 ? tap(x + 1, sigma) : tap(1, sigma));
            const double want = 255 * tap(y - 20, sigma) * (across + tap(x - 30, sigma));
            assert_near(pixels[y * SIDE + x], want, 0.501);
        }
    memset(pixels, 77, sizeof pixels);
    lt_gaussian_blur(&canvas, 0.1);
    for (size_t i = 0; i < sizeof pixels; i++)
        assert_int_equal(pixels[i], 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"every operation equals Pillow's and torchvision's", check_operations, 0, 0, 0},
        {"TrivialAugment: equal numbers give equal images", check_trivial, 0, 0, 0},
        {"RandAugment: torchvision's strengths", check_strengths, 0, 0, 0},
        {"TrivialAugment: torchvision's strengths", check_trivial_strengths, 0, 0, 0},
        {"RandAugment: all operations and signs are equally likely", check_rand, 0, 0, 0},
        {"RandAugment: two operations equal one and another one", check_rand_ops, 0, 0, 0},
        {"colour jitter", check_jitter, 0, 0, 0},
        {"a Gaussian blur, mirrored at the edge", check_blur, 0, 0, 0},
        {"random erasing: frequency and area", check_erase, 0, 0, 0},
    };
    return cmocka_run_group_tests_name("colour", tests, NULL, NULL);
}
