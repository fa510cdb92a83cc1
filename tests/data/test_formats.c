/* Images of the less common formats: pixels equal Pillow's, a window equals that of the whole image, limits are applied. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"
#include "data/formats/decoder.h"
#include "data/formats/image.h"
#include "golden.h"
#include "images.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64, NAME = 40 };

typedef struct format_row {
    char name[NAME];
    int width, height, tolerance;
    uint8_t *pixels;
} format_row;

static format_row rows[MOST];
static size_t count;

static void read_rows(void)
{
    FILE *file = open_golden("data/formats.txt");
    format_row *r = rows;
    while (count < MOST
           && fscanf(file, "%39s %d %d %d ", r->name, &r->width, &r->height, &r->tolerance) == 4) {
        r->pixels = read_hex(file, (size_t)r->width * (size_t)r->height * 3);
        count++;
        r++;
    }
    fclose(file);
}

static void read_file(const format_row *row, lt_record *out)
{
    char name[NAME + 16];
    snprintf(name, sizeof name, "data/formats/%s", row->name);
    char *path = golden_path(name);
    assert_ok(lt_file_read(path, out));
    free(path);
}

static const uint8_t *pixel(const lt_image *p, int x, int y)
{
    return p->pixels + (size_t)y * p->stride + (size_t)(x * p->channels);
}

/* Returns the largest difference from the expected pixels; compares grey with the luma of the decoded colours. */
static int compare(const format_row *row, const lt_image *colours, const lt_image *grey)
{
    int worst = 0;
    const uint8_t *want = row->pixels;
    for (int y = 0; y < row->height; y++)
        for (int x = 0; x < row->width; x++, want += 3) {
            const uint8_t *got = pixel(colours, x, y);
            for (int c = 0; c < 3; c++)
                worst = abs(got[c] - want[c]) > worst ? abs(got[c] - want[c]) : worst;
            assert_int_equal(*pixel(grey, x, y), lt_luma(got[0], got[1], got[2]));
        }
    return worst;
}

static void check_windows(const lt_record *r, const format_row *row, const lt_image *whole)
{
    enum { WINDOWS = 20 };
    uint32_t seed = 5;
    lt_image part = {0};
    for (int i = 0; i < WINDOWS; i++) {
        lt_window w = random_window(row->width, row->height, &seed);
        assert_ok(lt_image_decode(r->bytes, r->size, NULL, 3, w, &part));
        assert_true(same_window(&part, whole, w));
    }
    lt_image_clear(&part);
}

static void check_format(void **state)
{
    format_row *row = *state;
    lt_record r = {0};
    lt_image colours = {0}, grey = {0};
    int32_t width = 0, height = 0;
    read_file(row, &r);
    lt_status st = lt_image_size(r.bytes, r.size, NULL, &width, &height);
    if (st == LT_E_UNSUPPORTED) {
        assert_non_null(strstr(lt_error_message(), "which this build lacks"));
        lt_free(r.bytes);
        skip();
    }
    assert_ok(st);
    assert_int_equal(width, row->width);
    assert_int_equal(height, row->height);
    const lt_window all = {0, 0, width, height};
    assert_true(lt_is_image(row->name));
    assert_ok(lt_image_decode(r.bytes, r.size, NULL, 3, all, &colours));
    assert_ok(lt_image_decode(r.bytes, r.size, NULL, 1, all, &grey));
    assert_in_range(compare(row, &colours, &grey), 0, row->tolerance);
    check_windows(&r, row, &colours);

    const lt_image_limits limits = {.pixels = width * height - 1};
    assert_int_equal(lt_image_size(r.bytes, r.size, &limits, &width, &height), LT_E_FORMAT);
    assert_int_equal(lt_image_decode(r.bytes, r.size, &limits, 3, all, &grey), LT_E_FORMAT);
    row->pixels[width + 1] ^= 0x80; /* control */
    assert_true(compare(row, &colours, &grey) > row->tolerance);
    row->pixels[width + 1] ^= 0x80;
    lt_image_clear(&colours);
    lt_image_clear(&grey);
    lt_free(r.bytes);
}

/* A PNG without its IEND chunk has all pixels; one that lost more is corrupt. */
static void check_png_without_end(void **state)
{
    enum { END = 12 };
    (void)state;
    char *path = golden_path("data/images/palette.png");
    lt_record r = {0};
    lt_image whole = {0}, cut = {0};
    lt_window all = {0};
    assert_ok(lt_file_read(path, &r));
    assert_ok(lt_image_size(r.bytes, r.size, NULL, &all.width, &all.height));
    assert_ok(lt_image_decode(r.bytes, r.size, NULL, 3, all, &whole));
    for (size_t lost = 0; lost <= END; lost++) {
        assert_ok(lt_image_decode(r.bytes, r.size - lost, NULL, 3, all, &cut));
        assert_true(same_window(&cut, &whole, all));
    }
    for (size_t lost = END + 1; lost < r.size; lost++) {
        assert_int_equal(lt_image_decode(r.bytes, r.size - lost, NULL, 3, all, &cut), LT_E_FORMAT);
        assert_string_not_equal(lt_error_message(), "image: ");
    }
    lt_image_clear(&whole);
    lt_image_clear(&cut);
    lt_free(r.bytes);
    free(path);
}

static void check_rle_bmp(void **state)
{
    enum { COMPRESSION = 30 };
    (void)state;
    uint32_t seed = 1;
    size_t size;
    int32_t width, height;
    uint8_t *bmp = make_bmp(8, 8, &seed, &size);
    for (uint8_t kind = 1; kind <= 2; kind++) {
        bmp[COMPRESSION] = kind;
        assert_fails(lt_image_size(bmp, size, NULL, &width, &height), LT_E_FORMAT,
                     "a BMP with RLE compression");
    }
    free(bmp);
}

typedef struct corrupt_row {
    const char *name, *bytes, *message;
} corrupt_row;

static const corrupt_row corrupt[] = {
    {"pnm: a width that is not a number", "P6\nx 2\n255\n", "invalid header"},
    {"pnm: a number of more than 31 bits", "P5 99999999999999999999 1 255\n", "invalid header"},
    {"pnm: a maxval of 0", "P5 1 1 0\n1", "maxval of 0"},
    {"pnm: a maxval of 65536", "P5 1 1 65536\n11", "maxval of 65536"},
    {"pnm: pixels are missing", "P6 2 2 255\n01234567890", "truncated"},
    {"pnm: plain samples are missing", "P2 3 1 255\n1 255  ", "truncated"},
    {"pnm: no pixels", "P6 0 2 255\n", "0 x 2"},
    {"pnm: a sample is not a number", "P2 1 1 255\nq", "not a number"},
    {"tiff: nothing after the header", "II*", "tiff: "},
    {"webp: nothing after the header", "RIFF....WEBP", "webp: the file is truncated"},
    {"HEIC with any name", "....ftypheic....mif1", "the file is HEIC"},
    {"video with any name", "....ftypisom....mp41", "the file is MP4"},
    {"avif: nothing after the brand", "....ftypmif1....avif", "avif: "},
};

static void check_corrupt(void **state)
{
    const corrupt_row *row = *state;
    lt_image p = {0};
    lt_window w = {0};
    uint8_t bytes[64] = {0};
    size_t size = strlen(row->bytes);
    memcpy(bytes, row->bytes, size);
    if (*bytes == 'I')
        size = 8;
    lt_status st = lt_image_size(bytes, size, NULL, &w.width, &w.height);
    if (st == LT_E_UNSUPPORTED)
        skip();
    if (!st)
        st = lt_image_decode(bytes, size, NULL, 3, w, &p);
    assert_failed(st, LT_E_FORMAT, row->message);
    lt_image_clear(&p);
}

/* The header claims 30 x 20 pixels; the image has 37 x 22. */
static void check_avif_size(void **state)
{
    (void)state;
    const format_row row = {.name = "420.avif"};
    static const uint8_t smaller[] = {0, 0, 0, 30, 0, 0, 0, 20};
    lt_record r = {0};
    lt_image p = {0};
    lt_window w = {0};
    size_t at = 0;
    read_file(&row, &r);
    while (at + 16 < r.size && memcmp(r.bytes + at, "ispe", 4) != 0)
        at++;
    assert_true(at + 16 < r.size);
    memcpy(r.bytes + at + 8, smaller, sizeof smaller);
    lt_status st = lt_image_size(r.bytes, r.size, NULL, &w.width, &w.height);
    if (!st) {
        assert_int_equal(w.width, 30);
        st = lt_image_decode(r.bytes, r.size, NULL, 3, w, &p);
        assert_failed(st, LT_E_FORMAT, "avif: ");
    }
    lt_image_clear(&p);
    lt_free(r.bytes);
    if (st == LT_E_UNSUPPORTED)
        skip();
}

/* The header's pixels, of up to four samples, have more bytes than stb_image can count. */
static void check_huge_png(void **state)
{
    static const uint8_t png[] =
        "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x80\0\0\0\x40\0\x08\2\0\0\0...."
        "\0\0\0\0IDAT....\0\0\0\0IEND";
    const lt_image_limits any = {.pixels = INT64_C(1) << 40};
    lt_image p = {0};
    lt_window w = {0};
    (void)state;
    assert_ok(lt_stb_size(png, sizeof png + 3, &w.width, &w.height));
    assert_true(w.width == 32768 && w.height == 16384);
    assert_fails(lt_stb_decode(png, sizeof png - 1, &any, 3, w, &p), LT_E_FORMAT,
                 "image: 32768 x 16384 pixels are more than stb_image can decode");
    assert_fails(lt_stb_size(png, (size_t)INT32_MAX + 1, &w.width, &w.height), LT_E_FORMAT,
                 "a file of 2147483648 bytes, want at most 2147483647");
}

/* A TIFF file of 1 x 1 pixel with samples of 24 bits. */
static void check_tiff_depth(void **state)
{
    static const uint8_t tiff[] = {
        'I', 'I', '*', 0, 8, 0, 0, 0, 7,  0,                  /* 7 fields */
        0,   1,   3,   0, 1, 0, 0, 0, 1,  0, 0, 0,            /* width */
        1,   1,   3,   0, 1, 0, 0, 0, 1,  0, 0, 0,            /* height */
        2,   1,   3,   0, 1, 0, 0, 0, 24, 0, 0, 0,            /* bits per sample */
        3,   1,   3,   0, 1, 0, 0, 0, 1,  0, 0, 0,            /* no compression */
        6,   1,   3,   0, 1, 0, 0, 0, 1,  0, 0, 0,            /* black is 0 */
        17,  1,   4,   0, 1, 0, 0, 0, 8,  0, 0, 0,            /* offset of the strip */
        23,  1,   4,   0, 1, 0, 0, 0, 3,  0, 0, 0, 0, 0, 0, 0 /* bytes of the strip */
    };
    lt_image p = {0};
    lt_window w = {0};
    (void)state;
    lt_status st = lt_image_size(tiff, sizeof tiff, NULL, &w.width, &w.height);
    if (st == LT_E_UNSUPPORTED)
        skip();
    assert_ok(st);
    assert_fails(lt_image_decode(tiff, sizeof tiff, NULL, 3, w, &p), LT_E_FORMAT,
                 "tiff: Sorry, can not handle images with 24-bit samples");
    lt_image_clear(&p);
}

int main(void)
{
    enum { MORE = 5 };
    struct CMUnitTest tests[MORE + MOST + COUNT_OF(corrupt)] = {
        row_test("avif: an image larger than its header claims", check_avif_size, NULL),
        row_test("png: without its IEND chunk", check_png_without_end, NULL),
        row_test("bmp: RLE is named", check_rle_bmp, NULL),
        row_test("png: more pixels than stb_image can decode", check_huge_png, NULL),
        row_test("tiff: samples of 24 bits", check_tiff_depth, NULL),
    };
    size_t n = MORE;
    read_rows();
    for (size_t i = 0; i < count; i++)
        tests[n++] = row_test(rows[i].name, check_format, &rows[i]);
    for (size_t i = 0; i < COUNT_OF(corrupt); i++)
        tests[n++] = row_test(corrupt[i].name, check_corrupt, &corrupt[i]);
    int failed = count ? _cmocka_run_group_tests("formats", tests, n, NULL, NULL) : 1;
    for (size_t i = 0; i < count; i++)
        free(rows[i].pixels);
    return failed;
}
