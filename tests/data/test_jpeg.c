/* A window that lt_image_decode() returns equals that of a whole decode by libjpeg, for all kinds of sampling and coding;
 * corrupt files are rejected with a reason. */

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

static const row rows[] = {
    {"4:4:4 at quality 90", {163, 121, 3, 1, 1, 90, 0, 0, 0, 0}},
    {"4:2:0 at quality 75", {163, 121, 3, 2, 2, 75, 0, 0, 0, 0}},
    {"4:2:0 at quality 30, even sides", {160, 128, 3, 2, 2, 30, 0, 0, 0, 0}},
    {"4:2:2", {163, 121, 3, 2, 1, 85, 0, 0, 0, 0}},
    {"4:4:0", {163, 121, 3, 1, 2, 85, 0, 0, 0, 0}},
    {"4:1:1, which is never cropped", {163, 121, 3, 4, 1, 85, 0, 0, 0, 0}},
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

/* A file, its pixels as libjpeg decodes them, and a decoded window. */
typedef struct jpeg {
    uint8_t *bytes;
    size_t size;
    lt_image whole, part;
} jpeg;

static jpeg open_jpeg(const jpeg_spec *s)
{
    uint32_t seed = 1;
    jpeg j = {0};
    j.bytes = make_jpeg(s, &seed, &j.size);
    j.whole = whole_decode(j.bytes, j.size, s->components == 1 ? 1 : 3, 1);
    return j;
}

static void close_jpeg(jpeg *j)
{
    lt_image_clear(&j->part);
    free(j->whole.memory);
    free(j->bytes);
}

static bool window_is_right(jpeg *j, lt_window w)
{
    assert_ok(lt_image_decode(j->bytes, j->size, NULL, j->whole.channels, w, &j->part));
    return same_window(&j->part, &j->whole, w);
}

static void check_row(void **state)
{
    enum { WINDOWS = 60 };
    const jpeg_spec *s = &((const row *)*state)->spec;
    uint32_t seed = 1;
    int32_t width = 0, height = 0;
    jpeg j = open_jpeg(s);
    assert_ok(lt_image_size(j.bytes, j.size, NULL, &width, &height));
    assert_int_equal(width, s->width);
    assert_int_equal(height, s->height);
    for (int channels = 1; channels <= 3; channels += 2) {
        free(j.whole.memory);
        j.whole = whole_decode(j.bytes, j.size, channels, 1);
        assert_true(window_is_right(&j, (lt_window){0, 0, width, height}));
        for (int i = 0; i < WINDOWS; i++) {
            lt_window w = random_window(width, height, &seed);
            if (!window_is_right(&j, w))
                fail_msg("window %d,%d %dx%d differs at %d channels", w.x, w.y, w.width, w.height,
                         channels);
        }
    }
    close_jpeg(&j);
}

static void check_control(void **state)
{
    (void)state;
    jpeg j = open_jpeg(&rows[0].spec);
    lt_window w = {20, 30, 40, 50};
    assert_true(window_is_right(&j, w));
    j.whole.memory[(size_t)(30 * 163 + 20) * 3] ^= 1;
    assert_false(window_is_right(&j, w));
    close_jpeg(&j);
}

static void expect_corrupt(const uint8_t *bytes, size_t size, const char *why)
{
    lt_image part = {0};
    int32_t width, height;
    lt_status st = lt_image_size(bytes, size, NULL, &width, &height);
    if (!st)
        st = lt_image_decode(bytes, size, NULL, 3, (lt_window){0, 0, width, 1}, &part);
    assert_failed(st, LT_E_FORMAT, why);
    lt_image_clear(&part);
}

/* Also for a window before the missing data: a file must not be corrupt in one epoch and good in the next. */
static void check_truncated(void **state)
{
    const row *r = *state;
    jpeg j = open_jpeg(&r->spec);
    expect_corrupt(j.bytes, j.size * 6 / 10, "truncated");
    expect_corrupt(j.bytes, j.size * 9 / 10, "truncated");
    expect_corrupt(j.bytes, 100, "truncated");
    expect_corrupt(j.bytes, 3, "truncated");
    expect_corrupt(j.bytes, 0, "empty");
    close_jpeg(&j);
}

static void check_missing_end(void **state)
{
    (void)state;
    jpeg j = open_jpeg(&rows[1].spec);
    j.size -= 2;
    assert_true(window_is_right(&j, (lt_window){0, 0, 163, 121}));
    close_jpeg(&j);
}

static void check_tolerated_damage(void **state)
{
    (void)state;
    jpeg j = open_jpeg(&rows[0].spec);
    memset(j.bytes + j.size / 2, 0x55, 20);
    (void)window_is_right(&j, (lt_window){0, 0, 163, 121});
    close_jpeg(&j);
}

/* Coded data above the window are not decoded: destroying them does not change the window. */
static void check_left_out(void **state)
{
    const jpeg_spec *s = &((const row *)*state)->spec;
    jpeg j = open_jpeg(s);
    uint8_t *first = memmem(j.bytes, j.size, "\xff\xd0", 2);
    assert_non_null(first);
    memset(first - 200, 0x55, 150);
    assert_true(window_is_right(&j, (lt_window){3, s->height - 40, 100, 30}));
    assert_false(window_is_right(&j, (lt_window){0, 0, s->width, 30}));
    close_jpeg(&j);
}

/* A wrong or missing restart marker: the image is decoded as a whole. */
static void check_wrong_markers(void **state)
{
    const jpeg_spec *s = &((const row *)*state)->spec;
    jpeg j = open_jpeg(s);
    uint8_t *second = memmem(j.bytes, j.size, "\xff\xd1", 2);
    assert_non_null(second);
    second[1] = 0xd5;
    free(j.whole.memory);
    j.whole = whole_decode(j.bytes, j.size, 3, 1);
    assert_true(window_is_right(&j, (lt_window){3, s->height - 40, 100, 30}));
    close_jpeg(&j);
}

static void check_huge(void **state)
{
    (void)state;
    jpeg j = open_jpeg(&rows[0].spec);
    uint8_t *frame = memmem(j.bytes, j.size, "\xff\xc0", 2);
    assert_non_null(frame);
    memcpy(frame + 5, "\xff\xdc\xff\xdc", 4); /* 65500 x 65500 */
    expect_corrupt(j.bytes, j.size, "65500 x 65500 pixels are more");
    close_jpeg(&j);
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
        for (size_t c = 0; c < 3; c++) { /* inks are inverted, so light is the product */
            double want = ink[i * 4 + c] * (double)ink[i * 4 + 3] / 255;
            double got = part.pixels[i / 33 * part.stride + i % 33 * 3 + c];
            worst = fmax(worst, fabs(want - got));
        }
    assert_near(worst, 0, 12); /* the loss of JPEG at quality 95 */
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

static const row *find_row(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    abort();
}

int main(void)
{
    const row *restarts = find_row("4:4:4 with restarts every row");
    struct CMUnitTest tests[COUNT_OF(rows) + 10] = {
        row_test("control: a window with one changed pixel is rejected", check_control, NULL),
        row_test("a truncated baseline file is corrupt for every window", check_truncated,
                 &rows[1]),
        row_test("a truncated progressive file is corrupt", check_truncated, &rows[7]),
        row_test("a file without its end marker has all pixels", check_missing_end, NULL),
        row_test("corrupt coded data are tolerated", check_tolerated_damage, NULL),
        row_test("rows above the window are not decoded", check_left_out, restarts),
        row_test("with wrong restart markers all rows are decoded", check_wrong_markers, restarts),
        row_test("65500 x 65500 pixels are rejected before allocation", check_huge, NULL),
        row_test("the first frame of a GIF", check_gif, NULL),
        row_test("CMYK as Adobe writes it becomes RGB", check_cmyk, NULL),
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[10 + i] = row_test(rows[i].name, check_row, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
