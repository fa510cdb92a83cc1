/* Compares a tiny vision transformer with PyTorch and torchvision (tests/golden/make_vit_fixture.py), and its
 * resized positional embeddings. */

#include "fixture.h"
#include "vit.h"

#include "lather/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 12, PATCH = 4, WIDTH = 8, HEADS = 2, DEPTH = 2, HIDDEN = 20, CLASSES = 5 };

static const lt_vit_config tiny = {.patch = PATCH,
                                   .width = WIDTH,
                                   .depth = DEPTH,
                                   .heads = HEADS,
                                   .hidden = HIDDEN,
                                   .size = SIDE,
                                   .classes = CLASSES};

static lt_status make(lt_module **out, lt_device *device)
{
    return lt_vit_new(out, device, &tiny);
}

static const lt_safetensors_entry *find(const lt_safetensors *file, const char *name)
{
    const lt_safetensors_entry *e = lt_safetensors_find(file, name);
    assert_non_null(e);
    return e;
}

/* Returns the largest distance from torchvision's of positional embeddings resized to side x side patches. */
static double distance(const lt_safetensors *file, int side, bool interpolate)
{
    enum { MOST = 64 * WIDTH };
    char key[32];
    double from[MOST], to[MOST], far = 0;
    float single[MOST];
    lt_vit_config c = tiny;
    c.size = side * PATCH;
    c.interpolate = interpolate;
    snprintf(key, sizeof key, "resized.%d", side);
    const lt_safetensors_entry *have = find(file, "init.encoder.pos_embedding"),
                               *want = find(file, key);
    memcpy(single, have->data, have->bytes);
    for (int64_t i = 0; i < lt_shape_count(have->shape); i++)
        from[i] = (double)single[i];
    if (lt_vit_resize_positions(&c, "encoder.pos_embedding", have->shape, from, want->shape, to))
        return (double)INFINITY;
    for (int64_t i = 0; i < lt_shape_count(want->shape); i++) {
        double w;
        memcpy(&w, (const char *)want->data + (size_t)i * sizeof w, sizeof w);
        far = fmax(far, fabs(to[i] - w));
    }
    return far;
}

static void positions_are_resized_like_torchvision(void **state)
{
    static const int sides[] = {1, 2, 5, 7};
    char path[512];
    lt_safetensors *file = NULL;
    const char *root = getenv("LATHER_TEST_SOURCE");
    (void)state;
    snprintf(path, sizeof path, "%s/tests/golden/vit_fixture.safetensors", root ? root : ".");
    assert_ok(lt_safetensors_open(&file, path));
    for (size_t i = 0; i < COUNT_OF(sides); i++)
        assert_near(distance(file, sides[i], true), 0, 1e-12);
    assert_true(distance(file, 5, false) > 1); /* rejected */
    assert_non_null(strstr(lt_error_message(),
                           "is for 3x3 patches, but images of 20 pixels have 5x5; "
                           "--interpolate-pos-embed"));
    lt_safetensors_close(&file);
}

int main(void)
{
    static const fixture_family family = {"vit_fixture.safetensors", make};
    static const struct CMUnitTest more[] = {
        cmocka_unit_test(positions_are_resized_like_torchvision),
    };
    return fixture_main(&family, fixture_transformer_rows, FIXTURE_TRANSFORMER_ROWS, more,
                        COUNT_OF(more));
}
