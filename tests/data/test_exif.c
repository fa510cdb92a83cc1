/* EXIF orientation: parsing, malformed headers, and the pixels of upright images. */

#include "base/alloc.h"
#include "data/formats/exif.h"
#include "data/pack/pack.h"
#include "data/transform/transform.h"
#include "images.h"
#include "near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEAD = 256 };

/* The beginning of a JPEG with an Exif segment: entries before the tag, its type, count and value. */
typedef struct head {
    bool little;
    int entries_before, type, count, value;
    bool fill, other_first; /* preceded by a fill byte; by an XMP APP1 segment */
} head;

static size_t put16(uint8_t *to, bool little, uint32_t v)
{
    to[little ? 0 : 1] = (uint8_t)v;
    to[little ? 1 : 0] = (uint8_t)(v >> 8);
    return 2;
}

static size_t put32(uint8_t *to, bool little, uint32_t v)
{
    put16(to + (little ? 0 : 2), little, v & 0xFFFF);
    put16(to + (little ? 2 : 0), little, v >> 16);
    return 4;
}

static size_t put_entry(uint8_t *to, bool little, uint32_t tag, const head *h)
{
    size_t n = put16(to, little, tag);
    n += put16(to + n, little, (uint32_t)h->type);
    n += put32(to + n, little, (uint32_t)h->count);
    if (h->type == 3) {
        n += put16(to + n, little, (uint32_t)h->value);
        return n + put16(to + n, little, 0);
    }
    return n + put32(to + n, little, (uint32_t)h->value);
}

static size_t put_tiff(uint8_t *to, const head *h)
{
    static const head other = {.type = 3, .count = 1, .value = 7};
    bool little = h->little;
    memcpy(to, little ? "II" : "MM", 2);
    size_t n = 2;
    n += put16(to + n, little, 42);
    n += put32(to + n, little, 8);
    n += put16(to + n, little, (uint32_t)h->entries_before + 1);
    for (int i = 0; i < h->entries_before; i++)
        n += put_entry(to + n, little, 0x0100 + (uint32_t)i, &other);
    n += put_entry(to + n, little, 0x0112, h);
    return n + put32(to + n, little, 0);
}

static size_t make_head(uint8_t to[MOST_HEAD], const head *h)
{
    static const uint8_t xmp[] = {0xFF, 0xE1, 0,   12,  'h', 't', 't',
                                  'p',  ':',  '/', '/', 'n', 's', 0};
    size_t n = 2;
    memcpy(to, "\xff\xd8", 2);
    if (h->other_first) {
        memcpy(to + n, xmp, sizeof xmp);
        n += sizeof xmp;
    }
    if (h->fill)
        to[n++] = 0xFF;
    memcpy(to + n, "\xff\xe1\0\0Exif\0", 10);
    size_t length_at = n + 2, tiff = n + 10, bytes = put_tiff(to + tiff, h);
    put16(to + length_at, false, (uint32_t)(2 + 6 + bytes));
    return tiff + bytes;
}

/* Parses an exact copy, so that a sanitizer detects reads past the end. */
static int orientation(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    if (size)
        memcpy(copy, bytes, size);
    int found = lt_exif_orientation(copy, size);
    free(copy);
    return found;
}

static void check_headers(void **state)
{
    (void)state;
    uint8_t bytes[MOST_HEAD];
    for (int value = 1; value <= 8; value++)
        for (int form = 0; form < 32; form++) {
            const head h = {.little = form & 1,
                            .entries_before = form & 2 ? 3 : 0,
                            .type = form & 4 ? 4 : 3,
                            .count = 1,
                            .value = value,
                            .fill = form & 8,
                            .other_first = form & 16};
            size_t size = make_head(bytes, &h);
            assert_int_equal(orientation(bytes, size), value);
            /* A truncated segment means orientation 1. */
            for (size_t k = 0; k < size; k++)
                assert_int_equal(orientation(bytes, k), 1);
        }
}

typedef struct odd {
    const char *name;
    int at, value; /* offset of the changed byte and its new value */
} odd;

/* Changes a big-endian header with orientation 6, whose TIFF part begins at 12 and its entry at 22. */
static void check_odd(void **state)
{
    (void)state;
    static const odd rows[] = {
        {"not a JPEG", 1, 0xD9},
        {"another segment", 3, 0xE2},
        {"another name", 9, 'F'},
        {"no byte order", 13, 'I'},
        {"another magic number", 15, 43},
        {"a directory after the end", 19, 200},
        {"a directory far after it", 16, 0xFF},
        {"no entries", 21, 0},
        {"another tag", 23, 0x13},
        {"another type", 25, 5},
        {"two values", 29, 2},
        {"the value 0", 31, 0},
        {"the value 9", 31, 9},
        {"a large value", 30, 1},
        {"a segment of length 1", 5, 1},
        {"a segment longer than the file", 4, 1},
        {"coded data before it", 3, 0xDA},
    };
    const head h = {.type = 3, .count = 1, .value = 6};
    uint8_t bytes[MOST_HEAD];
    size_t size = make_head(bytes, &h);
    assert_int_equal(orientation(bytes, size), 6);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint8_t before = bytes[rows[i].at];
        bytes[rows[i].at] = (uint8_t)rows[i].value;
        if (orientation(bytes, size) != 1)
            fail_msg("%s: orientation %d", rows[i].name, orientation(bytes, size));
        bytes[rows[i].at] = before;
    }
    bytes[21] = 255; /* more entries than fit: the existing ones are read */
    assert_int_equal(orientation(bytes, size), 6);
}

/* The grid abc/def in each orientation, as in the standard's table and Pillow's exif_transpose(). */
static void check_turns(void **state)
{
    (void)state;
    static const char *const want[] = {"abcdef", "cbafed", "fedcba", "defabc",
                                       "adbecf", "daebfc", "fcebda", "cfbead"};
    const lt_image p = {
        .pixels = (const uint8_t *)"abc.def.", .stride = 4, .width = 3, .height = 2};
    for (int turn = 1; turn <= 8; turn++) {
        lt_image from = p, out = {0};
        from.channels = 1;
        assert_ok(lt_exif_apply(turn, &from, &out));
        assert_int_equal(out.width, lt_exif_swaps_axes(turn) ? 2 : 3);
        assert_int_equal(out.width * out.height, 6);
        assert_memory_equal(out.memory, want[turn - 1], 6);
        /* Each pixel's window in the stored image. */
        for (int32_t i = 0; i < 6; i++) {
            lt_window w = {.x = i % out.width, .y = i / out.width, .width = 1, .height = 1};
            w = lt_exif_stored_window(turn, 3, 2, w);
            assert_int_equal(p.pixels[w.y * 4 + w.x], want[turn - 1][i]);
        }
        lt_image_clear(&out);
    }
}

/* Decodes the whole file upright, the reference for the transform. */
static void turn_whole(const uint8_t *bytes, size_t size, int turn, lt_record *out)
{
    lt_image whole = {0}, turned = {0};
    lt_window w = {0};
    assert_ok(lt_image_size(bytes, size, NULL, &w.width, &w.height));
    assert_ok(lt_image_decode(bytes, size, NULL, 3, w, &whole));
    assert_ok(lt_exif_apply(turn, &whole, &turned));
    const size_t turned_size = (size_t)turned.width * (size_t)turned.height * 3;
    assert_ok(lt_record_reserve(out, turned_size));
    memcpy(out->bytes, turned.memory, turned_size);
    out->size = turned_size;
    out->encoding = LT_ENCODING_PIXELS;
    out->width = turned.width;
    out->height = turned.height;
    lt_image_clear(&whole);
    lt_image_clear(&turned);
}

enum { SIDE = 24 };

static void run(lt_transform t, lt_sample_workspace *s, uint64_t key, uint8_t *out)
{
    lt_rng rng = {.key = lt_rng_key(key, LT_STREAM_AUGMENT, 0, 0)};
    assert_ok(lt_transform_check(&t));
    assert_ok(lt_transform_run(&t, 3, &rng, s, out));
}

/* Partially decoded crops equal crops of the whole upright image. */
static void check_crops(void **state)
{
    (void)state;
    static const jpeg_spec specs[] = {{97, 61, 3, 2, 2, 90, 0, 0, 0, 0},
                                      {64, 120, 3, 1, 1, 85, 0, 0, 8, 0},
                                      {80, 57, 3, 2, 1, 80, 1, 0, 0, 0}};
    lt_sample_workspace file = {0}, pixels = {0};
    uint8_t a[SIDE * SIDE * 3], b[SIDE * SIDE * 3], stored[SIDE * SIDE * 3];
    uint32_t seed = 3;
    int others = 0;
    for (size_t i = 0; i < COUNT_OF(specs); i++)
        for (int turn = 1; turn <= 8; turn++) {
            size_t plain_size, size;
            uint8_t *plain = make_jpeg(&specs[i], &seed, &plain_size);
            uint8_t *bytes = tag_jpeg(plain, plain_size, turn, &size);
            assert_ok(lt_record_reserve(&file.record, size));
            memcpy(file.record.bytes, bytes, size);
            file.record.size = size;
            file.record.encoding = LT_ENCODING_FILE;
            turn_whole(bytes, size, turn, &pixels.record);
            for (uint64_t key = 0; key < 12; key++) {
                lt_transform t = {.augment = key ? LT_AUGMENT_IMAGENET : LT_AUGMENT_NONE,
                                  .size = SIDE,
                                  .exif = true};
                t.flip = 0.5;
                run(t, &file, key, a);
                run(t, &pixels, key, b);
                assert_memory_equal(a, b, sizeof a);
                t.exif = false; /* control: not turned */
                run(t, &file, key, stored);
                others += memcmp(a, stored, sizeof a) != 0;
                if (turn == 1)
                    assert_memory_equal(a, stored, sizeof a);
            }
            free(plain);
            free(bytes);
        }
    assert_true(others > 200); /* out of 252 */
    lt_sample_workspace_clear(&file);
    lt_sample_workspace_clear(&pixels);
}

/* Packs keep the orientation, whether JPEG files are transcoded or encoded again. */
static void check_packs(void **state)
{
    (void)state;
    const jpeg_spec spec = {97, 61, 3, 2, 2, 90, 0, 0, 0, 0};
    static const lt_pack_mode modes[] = {LT_PACK_ORIGINAL, LT_PACK_LOSSLESS, LT_PACK_RESIZED};
    uint32_t seed = 4;
    size_t plain_size, size;
    uint8_t *plain = make_jpeg(&spec, &seed, &plain_size);
    for (size_t i = 0; i < COUNT_OF(modes); i++)
        for (int turn = 1; turn <= 8; turn++) {
            const lt_pack_config c = {.mode = modes[i], .max_side = 40, .quality = 90};
            lt_pack_encoder *e = NULL;
            lt_record r = {0};
            bool kept = false;
            uint8_t *bytes = tag_jpeg(plain, plain_size, turn, &size);
            assert_ok(lt_record_reserve(&r, size));
            memcpy(r.bytes, bytes, size);
            r.size = size;
            assert_ok(lt_pack_encoder_new(&e, &c));
            assert_ok(lt_pack_encode(e, &r, 3, &kept));
            assert_true(kept == (modes[i] == LT_PACK_ORIGINAL));
            assert_int_equal(lt_exif_orientation(r.bytes, r.size), turn);
            lt_pack_encoder_free(&e);
            lt_free(r.bytes);
            free(bytes);
        }
    free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"headers in both byte orders, whole and truncated", check_headers, 0, 0, 0},
        {"malformed headers mean orientation 1", check_odd, 0, 0, 0},
        {"the eight orientations of a grid of six pixels", check_turns, 0, 0, 0},
        {"crops equal those of the whole upright image", check_crops, 0, 0, 0},
        {"packs keep the orientation", check_packs, 0, 0, 0},
    };
    return cmocka_run_group_tests_name("exif", tests, NULL, NULL);
}
