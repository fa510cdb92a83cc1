/* Random crops compared with torchvision; flips, padding, and the checks of transforms. */

#include "data/transform/transform.h"
#include "golden.h"
#include "images.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>

static void check_crops(void **state)
{
    (void)state;
    FILE *f = open_golden("data/crop.txt");
    unsigned key;
    int width, height, x, y, w, h, rows = 0;
    lt_transform t = {.size = 224};
    while (fscanf(f, "%u %d %d %la %la %la %la %d %d %d %d", &key, &width, &height, &t.min_scale,
                  &t.max_scale, &t.min_ratio, &t.max_ratio, &x, &y, &w, &h)
           == 11) {
        lt_rng rng = {.key = key};
        lt_window got = lt_random_crop(&t, width, height, &rng);
        if (got.x != x || got.y != y || got.width != w || got.height != h)
            fail_msg("key %u, %d x %d: %d,%d %dx%d, torchvision has %d,%d %dx%d", key, width,
                     height, got.x, got.y, got.width, got.height, x, y, w, h);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 8 * 9 * 3);
}

/* Makes a grey ramp as decoded pixels: pixel (x, y) is 10 y + x. */
static void make_ramp(lt_sample_workspace *s, int width, int height)
{
    assert_ok(lt_record_reserve(&s->record, (size_t)(width * height)));
    for (int i = 0; i < width * height; i++)
        s->record.bytes[i] = (uint8_t)(10 * (i / width) + i % width);
    s->record.size = (size_t)(width * height);
    s->record.encoding = LT_ENCODING_PIXELS;
    s->record.width = width;
    s->record.height = height;
}

/* Every result is the padded ramp at an offset, flipped or not, and all of these occur. */
static void check_small(void **state)
{
    enum { SIDE = 8, PAD = 1, OFFSETS = 2 * PAD + 1, DRAWS = 400 };
    (void)state;
    lt_sample_workspace s = {0};
    make_ramp(&s, SIDE, SIDE);
    lt_transform t = {.augment = LT_AUGMENT_SMALL, .size = SIDE, .flip = 0.5};
    assert_ok(lt_transform_check(&t));
    int seen[2][OFFSETS][OFFSETS] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint8_t got[SIDE * SIDE];
        memset(got, 0xEE, sizeof got);
        lt_rng rng = {.key = (uint64_t)i};
        assert_ok(lt_transform_run(&t, 1, &rng, &s, got));
        int found = 0;
        for (int flip = 0; flip < 2; flip++)
            for (int dy = 0; dy < OFFSETS; dy++)
                for (int dx = 0; dx < OFFSETS; dx++) {
                    bool same = true;
                    for (int p = 0; p < SIDE * SIDE; p++) {
                        int y = p / SIDE + dy - PAD;
                        int column = flip ? SIDE - 1 - p % SIDE : p % SIDE, x = column + dx - PAD;
                        bool inside = x >= 0 && x < SIDE && y >= 0 && y < SIDE;
                        same = same && got[p] == (inside ? 10 * y + x : 0);
                    }
                    found += same;
                    seen[flip][dy][dx] += same;
                }
        assert_int_equal(found, 1);
    }
    for (int i = 0; i < 2 * OFFSETS * OFFSETS; i++)
        assert_true(seen[i / 9][i / 3 % 3][i % 3] > 0);
    lt_sample_workspace_clear(&s);
}

/* The crop does not depend on the flip. */
static void check_flip(void **state)
{
    enum { SIDE = 6 };
    (void)state;
    lt_sample_workspace s = {0};
    make_ramp(&s, 11, 9);
    for (uint64_t key = 0; key < 20; key++) {
        uint8_t straight[SIDE * SIDE], mirrored[SIDE * SIDE], turned[SIDE * SIDE];
        lt_transform t = {.augment = LT_AUGMENT_IMAGENET, .size = SIDE};
        assert_ok(lt_transform_check(&t));
        lt_rng a = {.key = key}, b = {.key = key};
        assert_ok(lt_transform_run(&t, 1, &a, &s, straight));
        t.flip = 1;
        assert_ok(lt_transform_run(&t, 1, &b, &s, mirrored));
        for (int i = 0; i < SIDE * SIDE; i++)
            assert_int_equal(mirrored[i], straight[i / SIDE * SIDE + SIDE - 1 - i % SIDE]);
        t.vflip = 1;
        b = (lt_rng){.key = key};
        assert_ok(lt_transform_run(&t, 1, &b, &s, turned));
        for (int i = 0; i < SIDE * SIDE; i++)
            assert_int_equal(turned[i], straight[SIDE * SIDE - 1 - i]);
    }
    lt_sample_workspace_clear(&s);
}

static void check_planes(void **state)
{
    enum { SIDE = 5 };
    (void)state;
    uint8_t got[2][SIDE * SIDE * 3];
    for (int planes = 0; planes < 2; planes++) {
        lt_sample_workspace s = {0};
        assert_ok(lt_record_reserve(&s.record, 7 * 9 * 3));
        for (int i = 0; i < 7 * 9; i++)
            for (int c = 0; c < 3; c++)
                s.record.bytes[planes ? c * 63 + i : i * 3 + c] = (uint8_t)(i * 3 + c * 20);
        s.record.size = 7 * 9 * 3;
        s.record.width = 7;
        s.record.height = 9;
        s.record.encoding = planes ? LT_ENCODING_PLANES : LT_ENCODING_PIXELS;
        lt_transform t = {.size = SIDE};
        lt_rng rng = {0};
        assert_ok(lt_transform_check(&t));
        assert_ok(lt_transform_run(&t, 3, &rng, &s, got[planes]));
        s.record.size--;
        assert_status(lt_transform_run(&t, 3, &rng, &s, got[planes]), LT_E_FORMAT);
        lt_sample_workspace_clear(&s);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

/* One number of each is out of range. */
static struct {
    lt_transform t;
    const char *says;
} wrong[] = {
    {{.size = 0}, ""},
    {{.size = 224, .resize = 223}, "resize is 223, want 224 .. 32768"},
    {{.size = 224, .resize = 32769}, "resize is 32769, want 224 .. 32768"},
    {{.size = 224, .flip = 1.01}, ""},
    {{.size = 224, .flip = -0.01}, ""},
    {{.size = 224, .min_scale = 0.9, .max_scale = 0.5}, ""},
    {{.size = 224, .max_scale = 1.5}, ""},
    {{.size = 224, .min_ratio = -1}, ""},
    {{.size = 224, .crop_ratio = 1.01}, ""},
    {{.size = 224, .crop_ratio = -0.5}, ""},
    {{.size = 224, .crop_ratio = 1e-9}, ""},
    {{.size = 224, .filter = (lt_filter)2}, ""},
    {{.size = 32, .jitter.hue = 0.51}, ""},
    {{.size = 32, .erase = 1.01}, ""},
    {{.size = 32, .vflip = 1.01}, "vflip is 1.01, want a probability"},
    {{.size = 32, .rotation = 180.5}, "rotation is 180.5 degrees, want 0 .. 180"},
    {{.size = 32, .rand_augment = {2, 31}}, "magnitude is 31, want 0 .. 30"},
    {{.size = 32, .rand_augment = {-1, 9}}, ""},
    {{.size = 32, .rand_augment = {101, 9}}, "RandAugment has 101 operations, want 0 .. 100"},
    {{.size = 4097}, "size is 4097, want 1 .. 4096"},
    {{.size = 32, .jitter.saturation = LT_JITTER_MOST + 0.1}, ""},
    {{.size = 32, .jitter.contrast = (double)NAN}, ""},
    {{.size = 32, .limits.seconds = -1}, "limits are 0 pixels and -1 seconds, want 0 or more"},
    {{.size = 32, .limits.pixels = -1}, "limits are -1 pixels and 0 seconds, want 0 or more"},
    {{.size = 32, .flip = (double)NAN}, "flip is nan, want a probability"},
    {{.size = 32, .vflip = -0.01}, "vflip is -0.01, want a probability"},
    {{.size = 32, .grayscale = 1.01}, "grayscale is 1.01, want a probability"},
    {{.size = 32, .grayscale = -0.01}, "grayscale is -0.01, want a probability"},
    {{.size = 32, .blur = 1.01}, "blur is 1.01, want a probability"},
    {{.size = 32, .blur = -0.01}, "blur is -0.01, want a probability"},
    {{.size = 32, .erase = -0.01}, "erase is -0.01, want a probability"},
    {{.size = 32, .rotation = -0.5}, "rotation is -0.5 degrees, want 0 .. 180"},
    {{.size = 32, .rand_augment = {2, -1}}, "magnitude is -1, want 0 .. 30"},
    {{.size = 32, .jitter.brightness = LT_JITTER_MOST + 0.5}, "jitter is 10.5, 0, 0, hue 0"},
    {{.size = 32, .jitter.brightness = -0.5}, "jitter is -0.5, 0, 0, hue 0; want 0 .. 10"},
    {{.size = 32, .jitter.contrast = LT_JITTER_MOST + 0.5}, "jitter is 0, 10.5, 0, hue 0"},
    {{.size = 32, .jitter.hue = -0.1}, "hue -0.1; want 0 .. 10, hue 0 .. 0.5"},
    {{.size = 32, .min_scale = -0.5}, "scale is -0.5 to 1, want a range in (0, 1]"},
    {{.size = 32, .min_ratio = 2, .max_ratio = 1.5}, "ratio is 2 to 1.5, want a range in"},
    {{.size = 32, .max_ratio = 16385}, "ratio is 0.75 to 16385, want a range in (0, 16384]"},
    {{.size = 32, .rand_augment = {2, 9}, .trivial_augment = true}, ""},
};

static void check_arguments(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_fails(lt_transform_check(&wrong[i].t), LT_E_ARG, wrong[i].says);
    lt_transform right[] = {
        {.size = 224},
        {.size = 32, .rand_augment = {2, 9}},
        {.size = 32, .erase = 0.5, .jitter = {0.4, 0.4, 0.4, 0.1}},
        {.size = 1, .erase = 1, .flip = 1, .jitter.hue = 0.5},
        {.size = 4096, .resize = 32768, .jitter.saturation = LT_JITTER_MOST},
        {.size = 224, .resize = 224, .rand_augment = {100, 30}},
        {.size = 224, .filter = (lt_filter)1, .rand_augment = {1, 0}},
        {.size = 32, .grayscale = 1, .blur = 1, .vflip = 1, .rotation = 180, .crop_ratio = 1},
        {.size = 32, .min_scale = 1, .min_ratio = 16384, .max_ratio = 16384},
        {.size = 32, .jitter = {LT_JITTER_MOST, LT_JITTER_MOST, 0, 0}, .limits = {1, 0.5}},
    };
    for (size_t i = 0; i < COUNT_OF(right); i++)
        assert_ok(lt_transform_check(&right[i]));
    assert_int_equal(right[0].resize, 256);
    static const struct {
        double ratio;
        int resize;
    } ratios[] = {{0.875, 256}, {0.95, 235}, {1, 224}, {0.5, 448}}; /* as timm rounds them */
    for (size_t i = 0; i < COUNT_OF(ratios); i++) {
        lt_transform t = {.size = 224, .crop_ratio = ratios[i].ratio};
        assert_ok(lt_transform_check(&t));
        assert_int_equal(t.resize, ratios[i].resize);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"random crops equal torchvision's for equal random numbers", check_crops, 0, 0, 0},
        {"small images are padded and cropped at every offset", check_small, 0, 0, 0},
        {"a flip mirrors the input without changing the crop", check_flip, 0, 0, 0},
        {"planes and pixels of an image give the same input", check_planes, 0, 0, 0},
        {"a transform out of range is rejected", check_arguments, 0, 0, 0},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
