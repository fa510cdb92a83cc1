/* Resampling compared with recorded output of Pillow, and invariants for any image. */

#include "data/transform/resize.h"
#include "golden.h"
#include "images.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    int width, height, channels;
    double x0, y0, x1, y1;
    int out_width, out_height;
} job;

/* Makes the bytes of noise() in tests/golden/data/make.py, plus padding for the kernels. */
static uint8_t *noise(const job *j)
{
    size_t bytes = (size_t)(j->width * j->height * j->channels);
    uint8_t *pixels = calloc(bytes + LT_IMAGE_PADDING, 1);
    uint32_t seed = (uint32_t)(1000 * j->width + j->height);
    for (size_t i = 0; pixels && i < bytes; i++) {
        seed = seed * 1664525U + 1013904223U;
        pixels[i] = (uint8_t)(seed >> 24);
    }
    return pixels;
}

static lt_axis along(int limit, double from, double to, int size)
{
    return (lt_axis){
        .limit = limit, .start = from, .length = to - from, .size = size, .count = size};
}

typedef struct subject {
    lt_resize_kernels kernels;
    lt_filter filter;
    const char *golden;
} subject;

static uint8_t *resized(const lt_resize_kernels *k, const job *j, const uint8_t *pixels,
                        lt_axis across, lt_axis down)
{
    lt_taps x = {0}, y = {0};
    assert_ok(lt_taps_make(&x, &across));
    assert_ok(lt_taps_make(&y, &down));
    size_t stride = (size_t)(j->width * j->channels);
    lt_image between = {0};
    lt_image src = {.pixels = pixels + (size_t)y.low * stride + (size_t)(x.low * j->channels),
                    .stride = stride,
                    .width = x.high - x.low,
                    .height = y.high - y.low,
                    .channels = j->channels};
    size_t row = (size_t)(across.count * j->channels);
    uint8_t *out = malloc(row * (size_t)down.count);
    assert_non_null(out);
    assert_ok(lt_resize(*k, &src, &x, &y, &between, out, row));
    lt_image_clear(&between);
    lt_taps_clear(&x);
    lt_taps_clear(&y);
    return out;
}

static lt_axis filtered(const subject *s, lt_axis axis)
{
    axis.filter = s->filter;
    return axis;
}

/* Returns the largest difference from Pillow over all recorded rows. shift: error of the box, for the control. */
static int worst_difference(const subject *s, double shift, int *rows)
{
    FILE *f = open_golden(s->golden);
    job j;
    int worst = 0;
    for (*rows = 0; fscanf(f, "%d %d %d %la %la %la %la %d %d", &j.width, &j.height, &j.channels,
                           &j.x0, &j.y0, &j.x1, &j.y1, &j.out_width, &j.out_height)
                    == 9;
         ++*rows) {
        size_t bytes = (size_t)(j.out_width * j.out_height * j.channels);
        uint8_t *want = read_hex(f, bytes), *pixels = noise(&j);
        lt_axis across = along(j.width, j.x0 + shift, j.x1, j.out_width);
        lt_axis down = along(j.height, j.y0, j.y1, j.out_height);
        uint8_t *got = resized(&s->kernels, &j, pixels, filtered(s, across), filtered(s, down));
        for (size_t i = 0; i < bytes; i++)
            worst = abs(got[i] - want[i]) > worst ? abs(got[i] - want[i]) : worst;
        free(got);
        free(want);
        free(pixels);
    }
    fclose(f);
    return worst;
}

static void check_golden(void **state)
{
    int rows;
    assert_int_equal(worst_difference(*state, 0, &rows), 0);
    assert_true(rows >= 12);
}

static void check_control(void **state)
{
    int rows;
    assert_true(worst_difference(*state, 0.01, &rows) > 1);
}

/* Both kernels give equal results on images of many sizes. */
static void check_kernels(void **state)
{
    const subject *s = *state;
    const lt_resize_kernels base = lt_resize_portable_kernels();
    for (int side = 1; side < 90; side += 4)
        for (int channels = 1; channels <= 3; channels += 2)
            for (int out = 3; out < 70; out += 21) {
                job j = {.width = side, .height = 91 - side, .channels = channels};
                uint8_t *pixels = noise(&j);
                lt_axis x = filtered(s, along(j.width, 0, j.width, out));
                lt_axis y = filtered(s, along(j.height, 0, j.height, out + 1));
                uint8_t *a = resized(&base, &j, pixels, x, y);
                uint8_t *b = resized(&s->kernels, &j, pixels, x, y);
                assert_memory_equal(a, b, (size_t)(out * (out + 1) * channels));
                free(a);
                free(b);
                free(pixels);
            }
}

/* A part of the output, also mirrored, equals that part of the whole output. */
static void check_part(void **state)
{
    job j = {.width = 61, .height = 47, .channels = 3};
    uint8_t *pixels = noise(&j);
    const subject *s = *state;
    lt_axis x = filtered(s, along(61, 0, 61, 30)), y = filtered(s, along(47, 0, 47, 52));
    uint8_t *whole = resized(&s->kernels, &j, pixels, x, y);
    x.first = 7, x.count = 11, x.reverse = true;
    y.first = 20, y.count = 13;
    uint8_t *part = resized(&s->kernels, &j, pixels, x, y);
    for (int r = 0; r < 13; r++)
        for (int c = 0; c < 11; c++)
            for (int k = 0; k < 3; k++)
                assert_int_equal(part[(r * 11 + c) * 3 + k],
                                 whole[((20 + r) * 30 + 7 + 10 - c) * 3 + k]);
    free(part);
    free(whole);
    free(pixels);
}

/* The sum of the rounded weights never overflows a pixel. */
static void check_white(void **state)
{
    const subject *s = *state;
    for (int side = 1; side < 200; side += 3) {
        job j = {.width = side, .height = 2, .channels = 3};
        uint8_t *pixels = noise(&j);
        memset(pixels, 255, (size_t)side * 6);
        uint8_t *out = resized(&s->kernels, &j, pixels, filtered(s, along(side, 0, side, 37)),
                               filtered(s, along(2, 0, 2, 3)));
        for (int i = 0; i < 37 * 3 * 3; i++)
            assert_int_equal(out[i], 255);
        free(out);
        free(pixels);
    }
}

static void check_same_size(void **state)
{
    const subject *s = *state;
    job j = {.width = 19, .height = 23, .channels = 1};
    uint8_t *pixels = noise(&j);
    uint8_t *out = resized(&s->kernels, &j, pixels, filtered(s, along(19, 0, 19, 19)),
                           filtered(s, along(23, 0, 23, 23)));
    assert_memory_equal(out, pixels, 19 * 23);
    free(out);
    free(pixels);
}

int main(void)
{
    static subject plain = {.golden = "data/resize.txt"};
    static subject best = {.golden = "data/resize.txt"};
    static subject plain_cubic = {.filter = LT_FILTER_BICUBIC, .golden = "data/resize_bicubic.txt"};
    static subject cubic = {.filter = LT_FILTER_BICUBIC, .golden = "data/resize_bicubic.txt"};
    static subject mistaken = {.filter = LT_FILTER_BICUBIC, .golden = "data/resize.txt"};
    plain.kernels = plain_cubic.kernels = lt_resize_portable_kernels();
    best.kernels = cubic.kernels = mistaken.kernels = lt_resize_best_kernels();
    const struct CMUnitTest tests[] = {
        {"plain kernels give Pillow's bytes", check_golden, 0, 0, &plain},
        {"this CPU's kernels give Pillow's bytes", check_golden, 0, 0, &best},
        {"bicubic: plain kernels give Pillow's bytes", check_golden, 0, 0, &plain_cubic},
        {"bicubic: this CPU's kernels give Pillow's bytes", check_golden, 0, 0, &cubic},
        {"control: a box moved by 0.01 pixels is noticed", check_control, 0, 0, &best},
        {"control: a cubic that is moved is noticed", check_control, 0, 0, &cubic},
        {"control: the other filter is noticed", check_control, 0, 0, &mistaken},
        {"both kernels give the same bytes at any size", check_kernels, 0, 0, &best},
        {"bicubic: both kernels give the same bytes at any size", check_kernels, 0, 0, &cubic},
        {"a part of the output, mirrored, equals the whole output's part", check_part, 0, 0, &best},
        {"bicubic: a part of the output equals the whole output's part", check_part, 0, 0, &cubic},
        {"white is preserved at every scale", check_white, 0, 0, &best},
        {"bicubic: white is preserved at every scale", check_white, 0, 0, &cubic},
        {"the same size gives the same pixels", check_same_size, 0, 0, &best},
        {"bicubic: the same size gives the same pixels", check_same_size, 0, 0, &cubic},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
