/* Transforms of files compared with torchvision and Pillow; where --decode fast changes pixels. */

#include "base/hash.h"
#include "data/files/files.h"
#include "data/transform/transform.h"
#include "golden.h"
#include "images.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>

/* Returns the transformed file of tests/golden/data; free() it. */
static uint8_t *transformed(const char *folder, const char *name, lt_transform t, uint64_t key)
{
    char *relative = NULL;
    assert_true(asprintf(&relative, "data/%s/%s", folder, name) > 0);
    char *path = golden_path(relative);
    lt_sample_workspace s = {0};
    lt_rng rng = {.key = key};
    uint8_t *got = malloc(3 * (size_t)t.size * (size_t)t.size);
    assert_ok(lt_file_read(path, &s.record));
    assert_ok(lt_transform_check(&t));
    assert_ok(lt_transform_run(&t, 3, &rng, &s, got));
    lt_sample_workspace_clear(&s);
    free(path);
    free(relative);
    return got;
}

typedef struct recorded {
    const char *file;
    lt_filter filter;
} recorded;

static int worst_difference(const char *name, lt_transform t, const uint8_t *want)
{
    uint8_t *got = transformed("images", name, t, 1);
    int worst = 0;
    for (int i = 0; i < t.size * t.size * 3; i++)
        worst = abs(got[i] - want[i]) > worst ? abs(got[i] - want[i]) : worst;
    free(got);
    return worst;
}

static void check_images(void **state)
{
    enum { SIZE = 32, RESIZE = 36, BYTES = SIZE * SIZE * 3 };
    const recorded *r = *state;
    FILE *f = open_golden(r->file);
    char name[64];
    int rows = 0;
    for (; fscanf(f, "%63s", name) == 1; rows++) {
        uint8_t *want = read_hex(f, BYTES);
        lt_transform t = {.size = SIZE, .resize = RESIZE, .filter = r->filter};
        int worst = worst_difference(name, t, want);
        if (worst > 1)
            fail_msg("%s: %d levels from torchvision, 1 allowed", name, worst);
        t.resize++;
        if (worst_difference(name, t, want) <= 1)
            fail_msg("%s: control: a resize to 37 was not noticed", name);
        free(want);
    }
    fclose(f);
    assert_int_equal(rows, 10);
}

/* Counts values that differ by more than one level; every 32nd row is recorded. */
static int count_others(const uint8_t *want, const uint8_t *got, int size, int *total)
{
    enum { EVERY = 32 };
    int others = 0;
    *total = 0;
    for (int y = 0; y < size; y += EVERY)
        for (int i = 0; i < size * 3; i++, ++*total)
            others += abs(got[y * size * 3 + i] - want[*total]) > 1;
    return others;
}

/* 99.9 % of the values must differ by at most one level. */
static void check_photos(void **state)
{
    (void)state;
    FILE *f = open_golden("data/eval_photos.txt");
    char name[64], filter[16];
    int size, resize, rows = 0, total;
    for (; fscanf(f, "%63s %d %d %15s", name, &size, &resize, filter) == 4; rows++) {
        uint8_t *want = read_hex(f, 3 * (size_t)((size + 31) / 32) * (size_t)size);
        bool cubic = !strcmp(filter, "bicubic");
        lt_transform t = {.size = size, .filter = cubic ? LT_FILTER_BICUBIC : LT_FILTER_BILINEAR};
        t.crop_ratio = (double)size / (resize + 0.5); /* rounds down to it */
        t.crop_ratio = t.crop_ratio > 1 || resize == size ? 1 : t.crop_ratio;
        uint8_t *got = transformed("photos", name, t, 1);
        int others = count_others(want, got, size, &total);
        if (1000 * others > total)
            fail_msg("%s %d of %d: %d of %d values are off", name, size, resize, others, total);
        free(got);
        t.filter = cubic ? LT_FILTER_BILINEAR : LT_FILTER_BICUBIC; /* control */
        got = transformed("photos", name, t, 1);
        assert_true(1000 * count_others(want, got, size, &total) > total);
        free(got);
        free(want);
    }
    fclose(f);
    assert_int_equal(rows, 8);
}

static double mean_difference(const uint8_t *a, const uint8_t *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += abs(a[i] - b[i]);
    return sum / count;
}

/* Fast decoding uses a box filter, so that pixels are similar but not equal. */
static void check_fast(void **state)
{
    enum { SIZE = 64, BYTES = SIZE * SIZE * 3, DRAWS = 40 };
    (void)state;
    int others = 0;
    for (uint64_t key = 0; key < DRAWS; key++) {
        lt_transform t = {.augment = LT_AUGMENT_IMAGENET, .size = SIZE, .flip = 0.5};
        uint8_t *exact = transformed("photos", "skirt.jpg", t, key);
        uint8_t *again = transformed("photos", "skirt.jpg", t, key);
        t.fast = true;
        uint8_t *fast = transformed("photos", "skirt.jpg", t, key);
        assert_memory_equal(exact, again, BYTES);
        assert_true(mean_difference(exact, fast, BYTES) < 2);
        others += memcmp(exact, fast, BYTES) != 0;
        free(exact);
        free(again);
        free(fast);
    }
    assert_in_range(others, DRAWS / 2, DRAWS); /* crops of twice the size are frequent */
}

/* Crops of less than twice the size, other formats and evaluation are not changed. */
static void check_fast_leaves(void **state)
{
    enum { SIZE = 224, BYTES = SIZE * SIZE * 3 };
    (void)state;
    static const struct {
        const char *folder, *name;
        lt_augment augment;
        int size;
    } rows[] = {{"photos", "hat.jpg", LT_AUGMENT_IMAGENET, 224},
                {"photos", "hat.jpg", LT_AUGMENT_NONE, 32},
                {"photos", "hat.jpg", LT_AUGMENT_SMALL, 32},
                {"images", "alpha.png", LT_AUGMENT_IMAGENET, 8}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        lt_transform t = {.augment = rows[i].augment, .size = rows[i].size};
        size_t bytes = 3 * (size_t)t.size * (size_t)t.size;
        uint8_t *exact = transformed(rows[i].folder, rows[i].name, t, i);
        t.fast = true;
        uint8_t *fast = transformed(rows[i].folder, rows[i].name, t, i);
        assert_memory_equal(exact, fast, bytes);
        free(exact);
        free(fast);
    }
}

/* Decoded and transformed pixels have the same bits on every processor, and with every version of libjpeg-turbo. */
static void check_bits(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *name;
        lt_transform t;
        uint64_t hash;
    } rows[] = {
        {"images", "420.jpg", {.size = 32, .resize = 36}, 0xa0e6bacdf28d3e45},
        {"images",
         "444-progressive.jpg",
         {.size = 32, .resize = 36, .filter = LT_FILTER_BICUBIC},
         0x69476a60c8f919c5},
        {"photos",
         "hat.jpg",
         {.augment = LT_AUGMENT_IMAGENET, .size = 96, .flip = 0.5},
         0x2c190da343e06381},
        {"photos",
         "skirt.jpg",
         {.augment = LT_AUGMENT_IMAGENET, .size = 64, .trivial_augment = true},
         0x391f81a1018c7f98},
        {"photos",
         "skirt.jpg",
         {.augment = LT_AUGMENT_IMAGENET, .size = 64, .jitter = {0.4, 0.4, 0.4, 0}},
         0x72abacc344060d56},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint64_t hash = LT_FNV1A_BEGIN;
        for (uint64_t key = 0; key < 20; key++) {
            uint8_t *pixels = transformed(rows[i].folder, rows[i].name, rows[i].t, key);
            hash = lt_fnv1a(hash, pixels, 3 * (size_t)rows[i].t.size * (size_t)rows[i].t.size);
            free(pixels);
        }
        if (hash != rows[i].hash)
            fail_msg("row %zu, %s: hash 0x%016llx", i, rows[i].name, (unsigned long long)hash);
    }
}

int main(void)
{
    static recorded bilinear = {"data/eval.txt", LT_FILTER_BILINEAR};
    static recorded bicubic = {"data/eval_bicubic.txt", LT_FILTER_BICUBIC};
    const struct CMUnitTest tests[] = {
        row_test("Resize(36) + CenterCrop(32) equals torchvision's within one level", check_images,
                 &bilinear),
        row_test("the same with the bicubic filter", check_images, &bicubic),
        row_test("photographs at 224 and 128 and several crop ratios equal torchvision's",
                 check_photos, NULL),
        row_test("fast decoding gives similar pixels", check_fast, NULL),
        row_test("fast decoding does not change small crops, other formats and evaluation",
                 check_fast_leaves, NULL),
        row_test("pixels have recorded hashes", check_bits, NULL),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
