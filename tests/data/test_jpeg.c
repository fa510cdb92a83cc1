/* The window that lt_jpeg_decode() gives equals the same part of a whole decode by libjpeg, for
 * every way of sampling and coding; broken files are refused with a reason. */

#include "base/alloc.h"
#include "data/files/files.h"
#include "data/formats/image.h"
#include "golden.h"
#include "images.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *name;
    jpeg_spec spec;
} row;

static row rows[] = {
    {"4:4:4 at quality 90", {163, 121, 3, 1, 1, 90, 0, 0, 0, 0}},
    {"4:2:0 at quality 75", {163, 121, 3, 2, 2, 75, 0, 0, 0, 0}},
    {"4:2:0 at quality 30, even sides", {160, 128, 3, 2, 2, 30, 0, 0, 0, 0}},
    {"4:2:2", {163, 121, 3, 2, 1, 85, 0, 0, 0, 0}},
    {"4:4:0", {163, 121, 3, 1, 2, 85, 0, 0, 0, 0}},
    {"4:1:1, where nothing is cropped", {163, 121, 3, 4, 1, 85, 0, 0, 0, 0}},
    {"luma 2 x 4", {163, 121, 3, 2, 4, 85, 0, 0, 0, 0}},
    {"4:2:0 progressive", {163, 121, 3, 2, 2, 80, 1, 0, 0, 0}},
    {"4:4:4 progressive with restarts", {163, 121, 3, 1, 1, 80, 1, 0, 3, 0}},
    {"4:2:0 with restarts every MCU", {163, 121, 3, 2, 2, 80, 0, 0, 1, 0}},
    {"4:2:2 with restarts every 7 MCUs", {163, 121, 3, 2, 1, 80, 0, 0, 7, 0}},
    {"4:2:0 with restarts every row", {163, 121, 3, 2, 2, 80, 0, 0, 11, 0}},
    {"4:4:4 with restarts every row", {163, 221, 3, 1, 1, 80, 0, 0, 21, 0}},
    {"4:4:4 with restarts three times a row", {163, 121, 3, 1, 1, 80, 0, 0, 7, 0}},
    {"4:2:2 with restarts every second row", {163, 221, 3, 2, 1, 80, 0, 0, 22, 0}},
    {"4:4:0 with restarts every row", {163, 221, 3, 1, 2, 80, 0, 0, 21, 0}},
    {"grey with restarts every row", {163, 221, 1, 1, 1, 80, 0, 0, 21, 0}},
    {"stored as RGB with restarts every row", {163, 121, 3, 1, 1, 80, 0, 0, 21, 1}},
    {"arithmetic coding with restarts every row", {163, 121, 3, 2, 2, 80, 0, 1, 11, 0}},
    {"arithmetic coding", {163, 121, 3, 2, 2, 80, 0, 1, 0, 0}},
    {"grey", {163, 121, 1, 1, 1, 80, 0, 0, 0, 0}},
    {"grey with sampling factor 2", {163, 121, 1, 2, 2, 80, 0, 0, 0, 0}},
    {"grey progressive", {163, 121, 1, 1, 1, 80, 1, 0, 0, 0}},
    {"stored as RGB", {163, 121, 3, 1, 1, 80, 0, 0, 0, 1}},
    {"quality 100", {97, 61, 3, 2, 2, 100, 0, 0, 0, 0}},
    {"quality 1", {97, 61, 3, 2, 2, 1, 0, 0, 0, 0}},
    {"one pixel", {1, 1, 3, 2, 2, 80, 0, 0, 0, 0}},
    {"one column", {1, 50, 3, 2, 2, 80, 0, 0, 0, 0}},
    {"one row", {50, 1, 3, 2, 2, 80, 0, 0, 0, 0}},
    {"narrower than a block", {5, 3, 3, 2, 1, 80, 0, 0, 0, 0}},
};

static bool same_window(const lt_image *part, const uint8_t *whole, int width, lt_window w)
{
    size_t c = (size_t)part->channels;
    for (int32_t y = 0; y < w.height; y++)
        if (memcmp(part->pixels + (size_t)y * part->stride,
                   whole + ((size_t)(w.y + y) * (size_t)width + (size_t)w.x) * c,
                   (size_t)w.width * c))
            return false;
    return part->width == w.width && part->height == w.height;
}

static lt_window random_window(const jpeg_spec *s, uint32_t *seed)
{
    lt_window w = {.width = 1 + (int32_t)(next_random(seed) % (uint32_t)s->width),
                   .height = 1 + (int32_t)(next_random(seed) % (uint32_t)s->height)};
    w.x = (int32_t)(next_random(seed) % (uint32_t)(s->width - w.width + 1));
    w.y = (int32_t)(next_random(seed) % (uint32_t)(s->height - w.height + 1));
    return w;
}

static void check_row(void **state)
{
    enum { WINDOWS = 60 };
    const jpeg_spec *s = &((row *)*state)->spec;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(s, &seed, &size);
    int32_t width = 0, height = 0;
    assert_ok(lt_image_size(bytes, size, NULL, &width, &height));
    assert_int_equal(width, s->width);
    assert_int_equal(height, s->height);
    for (int channels = 1; channels <= 3; channels += 2) {
        uint8_t *whole = whole_decode(bytes, size, channels);
        lt_image part = {0};
        for (int i = 0; i < WINDOWS; i++) {
            lt_window w = random_window(s, &seed);
            if (i == 0)
                w = (lt_window){0, 0, s->width, s->height};
            assert_ok(lt_image_decode(bytes, size, NULL, channels, w, &part));
            if (!same_window(&part, whole, s->width, w))
                fail_msg("window %d,%d %dx%d differs at %d channels", w.x, w.y, w.width, w.height,
                         channels);
        }
        lt_image_clear(&part);
        free(whole);
    }
    free(bytes);
}

static void check_control(void **state)
{
    (void)state;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(&rows[0].spec, &seed, &size);
    uint8_t *whole = whole_decode(bytes, size, 3);
    lt_image part = {0};
    lt_window w = {20, 30, 40, 50};
    assert_ok(lt_image_decode(bytes, size, NULL, 3, w, &part));
    assert_true(same_window(&part, whole, 163, w));
    whole[(size_t)(30 * 163 + 20) * 3] ^= 1;
    assert_false(same_window(&part, whole, 163, w));
    lt_image_clear(&part);
    free(whole);
    free(bytes);
}

static void expect_broken(const uint8_t *bytes, size_t size, lt_window w, const char *why)
{
    lt_image part = {0};
    int32_t width, height;
    lt_status st = lt_image_size(bytes, size, NULL, &width, &height);
    if (!st)
        st = lt_image_decode(bytes, size, NULL, 3, w, &part);
    assert_int_equal(st, LT_E_FORMAT);
    if (!strstr(lt_error_message(), why))
        fail_msg("the message is '%s', without '%s'", lt_error_message(), why);
    lt_image_clear(&part);
}

/* Also for a window that lies before the cut: the same file is not broken in one epoch and good in
 * the next. */
static void check_truncated(void **state)
{
    const jpeg_spec *s = &((row *)*state)->spec;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(s, &seed, &size);
    lt_window top = {0, 0, s->width, 1};
    expect_broken(bytes, size * 6 / 10, top, "truncated");
    expect_broken(bytes, size * 9 / 10, top, "truncated");
    expect_broken(bytes, 100, top, "truncated");
    expect_broken(bytes, 3, top, "truncated");
    expect_broken(bytes, 0, top, "empty");
    free(bytes);
}

static void check_missing_end(void **state)
{
    (void)state;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(&rows[1].spec, &seed, &size);
    uint8_t *whole = whole_decode(bytes, size, 3);
    lt_image part = {0};
    lt_window w = {0, 0, 163, 121};
    assert_ok(lt_image_decode(bytes, size - 2, NULL, 3, w, &part));
    assert_true(same_window(&part, whole, 163, w));
    lt_image_clear(&part);
    free(whole);
    free(bytes);
}

static void check_tolerated_damage(void **state)
{
    (void)state;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(&rows[0].spec, &seed, &size);
    for (size_t i = size / 2; i < size / 2 + 20; i++)
        bytes[i] = 0x55;
    lt_image part = {0};
    assert_ok(lt_image_decode(bytes, size, NULL, 3, (lt_window){0, 0, 163, 121}, &part));
    lt_image_clear(&part);
    free(bytes);
}

/* Coded data above the window are not even looked at: destroyed ones change nothing below. */
static void check_left_out(void **state)
{
    const jpeg_spec *s = &((row *)*state)->spec;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(s, &seed, &size);
    uint8_t *whole = whole_decode(bytes, size, 3);
    uint8_t *first = memmem(bytes, size, "\xff\xd0", 2);
    assert_non_null(first);
    memset(first - 200, 0x55, 150);
    lt_image part = {0};
    lt_window low = {3, s->height - 40, 100, 30}, top = {0, 0, s->width, 30};
    assert_ok(lt_image_decode(bytes, size, NULL, 3, low, &part));
    assert_true(same_window(&part, whole, s->width, low));
    assert_ok(lt_image_decode(bytes, size, NULL, 3, top, &part));
    assert_false(same_window(&part, whole, s->width, top));
    lt_image_clear(&part);
    free(whole);
    free(bytes);
}

/* A marker with a wrong number, or one too few: the image is decoded as a whole. */
static void check_wrong_markers(void **state)
{
    const jpeg_spec *s = &((row *)*state)->spec;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(s, &seed, &size);
    uint8_t *second = memmem(bytes, size, "\xff\xd1", 2);
    assert_non_null(second);
    second[1] = 0xd5;
    uint8_t *whole = whole_decode(bytes, size, 3);
    lt_image part = {0};
    lt_window w = {3, s->height - 40, 100, 30};
    assert_ok(lt_image_decode(bytes, size, NULL, 3, w, &part));
    assert_true(same_window(&part, whole, s->width, w));
    lt_image_clear(&part);
    free(whole);
    free(bytes);
}

static void check_huge(void **state)
{
    (void)state;
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(&rows[0].spec, &seed, &size);
    uint8_t *frame = memmem(bytes, size, "\xff\xc0", 2);
    assert_non_null(frame);
    memcpy(frame + 5, "\xff\xdc\xff\xdc", 4); /* 65500 x 65500 */
    expect_broken(bytes, size, (lt_window){0, 0, 1, 1}, "65500 x 65500 pixels are more");
    free(bytes);
}

static void check_cmyk(void **state)
{
    (void)state;
    static const jpeg_spec spec = {33, 21, 4, 1, 1, 95, 0, 0, 0, 0};
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(&spec, &seed, &size);
    seed = 1;
    uint8_t *ink = make_pixels(33, 21, 4, &seed);
    lt_image part = {0};
    assert_ok(lt_image_decode(bytes, size, NULL, 3, (lt_window){0, 0, 33, 21}, &part));
    double worst = 0;
    for (size_t i = 0; i < 33U * 21U; i++)
        for (size_t c = 0; c < 3; c++) { /* inverted inks: light is the product of both */
            double want = ink[i * 4 + c] * (double)ink[i * 4 + 3] / 255;
            double got = part.pixels[i / 33 * part.stride + i % 33 * 3 + c];
            worst = fmax(worst, fabs(want - got));
        }
    assert_near(worst, 0, 12); /* what JPEG loses at quality 95 */
    lt_image_clear(&part);
    free(ink);
    free(bytes);
}

static void check_gif(void **state)
{
    (void)state;
    static const uint8_t palette[4][3] = {
        {250, 10, 20}, {30, 240, 50}, {60, 70, 230}, {255, 255, 255}};
    char *path = golden_path("data/images/two-frames.gif");
    lt_record record = {0};
    lt_image part = {0};
    int32_t width, height;
    assert_ok(lt_file_read(path, &record));
    assert_ok(lt_image_size(record.bytes, record.size, NULL, &width, &height));
    assert_int_equal(width, 9);
    assert_int_equal(height, 7);
    assert_ok(lt_image_decode(record.bytes, record.size, NULL, 3, (lt_window){2, 1, 5, 4}, &part));
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 5; x++)
            assert_memory_equal(part.pixels + (size_t)y * part.stride + (size_t)x * 3,
                                palette[(x + 2 + 2 * (y + 1)) % 4], 3);
    lt_image_clear(&part);
    lt_free(record.bytes);
    free(path);
}

static row *find_row(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    abort();
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 10];
    size_t n = 0;
    for (; n < COUNT_OF(rows); n++)
        tests[n] = (struct CMUnitTest){rows[n].name, check_row, NULL, NULL, &rows[n]};
    const struct CMUnitTest more[] = {
        {"control: a window with one changed pixel is rejected", check_control, 0, 0, NULL},
        {"a truncated baseline file is broken for every window", check_truncated, 0, 0, &rows[1]},
        {"a truncated progressive file is broken", check_truncated, 0, 0, &rows[7]},
        {"only the end marker is missing: the image is whole", check_missing_end, 0, 0, NULL},
        {"damage inside the coded data is tolerated", check_tolerated_damage, 0, 0, NULL},
        {"rows above the window are left out", check_left_out, 0, 0,
         find_row("4:4:4 with restarts every row")},
        {"wrong markers leave nothing out", check_wrong_markers, 0, 0,
         find_row("4:4:4 with restarts every row")},
        {"65500 x 65500 pixels are refused before memory is taken", check_huge, 0, 0, NULL},
        {"the first frame of a GIF", check_gif, 0, 0, NULL},
        {"CMYK as Adobe writes it becomes RGB", check_cmyk, 0, 0, NULL},
    };
    memcpy(tests + n, more, sizeof more);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
