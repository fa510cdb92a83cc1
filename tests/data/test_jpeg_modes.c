/* All combinations of sampling, quality, coding and restart interval: any window, at any size that the decoder supports,
 * equals that of libjpeg's whole image at that size. */

#include "data/formats/image.h"
#include "images.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 75, HEIGHT = 61, MOST_SHRINK = 8 };

typedef struct sampling {
    const char *name;
    int components, h, v;
    bool shrinks; /* the decoder supports smaller sizes */
} sampling;

static sampling samplings[] = {
    {"4:4:4, all qualities, codings and restarts", 3, 1, 1, true},
    {"4:2:2, all qualities, codings and restarts", 3, 2, 1, true},
    {"4:4:0, all qualities, codings and restarts", 3, 1, 2, true},
    {"4:2:0, all qualities, codings and restarts", 3, 2, 2, true},
    {"4:1:1, all qualities, codings and restarts", 3, 4, 1, false},
    {"4:1:0, all qualities, codings and restarts", 3, 4, 2, false},
    {"grey, all qualities, codings and restarts", 1, 1, 1, true},
    {"CMYK, all qualities, codings and restarts", 4, 1, 1, true},
};

/* Returns libjpeg's image; for CMYK our own, as libjpeg does not convert it. */
static lt_image whole_image(const sampling *s, const uint8_t *bytes, size_t size, int shrink)
{
    lt_image p = {0};
    if (s->components < 4)
        return whole_decode(bytes, size, 3, shrink);
    const lt_window all = {.width = (WIDTH + shrink - 1) / shrink,
                           .height = (HEIGHT + shrink - 1) / shrink};
    assert_ok(lt_image_decode_shrunk(bytes, size, NULL, 3, shrink, all, &p));
    return p;
}

static void check_file(const sampling *s, const uint8_t *bytes, size_t size, uint32_t *seed)
{
    enum { WINDOWS = 4 };
    lt_image part = {0};
    assert_int_equal(lt_image_can_shrink(bytes, size), s->shrinks);
    for (int shrink = 1; shrink <= (s->shrinks ? MOST_SHRINK : 1); shrink *= 2) {
        lt_image whole = whole_image(s, bytes, size, shrink);
        for (int i = 0; i < WINDOWS; i++) {
            lt_window w = random_window(whole.width, whole.height, seed);
            assert_ok(lt_image_decode_shrunk(bytes, size, NULL, 3, shrink, w, &part));
            if (!same_window(&part, &whole, w))
                fail_msg("at 1/%d the window %d,%d %dx%d differs", shrink, w.x, w.y, w.width,
                         w.height);
        }
        free(whole.memory);
    }
    lt_image_clear(&part);
}

static void check_sampling(void **state)
{
    static const int qualities[] = {1, 75, 100};
    const sampling *s = *state;
    int row = (WIDTH + 8 * s->h - 1) / (8 * s->h); /* MCUs */
    const int restarts[] = {0, 1, 3, row, 2 * row};
    uint32_t seed = 1;
    for (size_t q = 0; q < COUNT_OF(qualities); q++)
        for (int coding = 0; coding < 4; coding++)
            for (size_t r = 0; r < COUNT_OF(restarts); r++) {
                const jpeg_spec spec = {.width = WIDTH,
                                        .height = HEIGHT,
                                        .components = s->components,
                                        .h = s->h,
                                        .v = s->v,
                                        .quality = qualities[q],
                                        .progressive = coding & 1,
                                        .arithmetic = coding & 2,
                                        .restart = restarts[r]};
                size_t size = 0;
                uint8_t *bytes = make_jpeg(&spec, &seed, &size);
                check_file(s, bytes, size, &seed);
                free(bytes);
            }
}

static void check_control(void **state)
{
    (void)state;
    const jpeg_spec spec = {WIDTH, HEIGHT, 3, 2, 2, 90, 0, 0, 0, 0};
    uint32_t seed = 1;
    size_t size = 0;
    uint8_t *bytes = make_jpeg(&spec, &seed, &size);
    for (int shrink = 1; shrink <= MOST_SHRINK; shrink *= 2) {
        lt_image whole = whole_image(&samplings[3], bytes, size, shrink), part = {0};
        lt_window w = {1, 1, 5, 5}, shifted = {2, 1, 5, 5};
        assert_ok(lt_image_decode_shrunk(bytes, size, NULL, 3, shrink, w, &part));
        assert_true(same_window(&part, &whole, w));
        assert_false(same_window(&part, &whole, shifted));
        lt_image_clear(&part);
        free(whole.memory);
    }
    free(bytes);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(samplings) + 1] = {
        row_test("control: a window shifted by a pixel is rejected", check_control, NULL)};
    for (size_t i = 0; i < COUNT_OF(samplings); i++)
        tests[1 + i] = row_test(samplings[i].name, check_sampling, &samplings[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
