/* The cache of decoded images: counts and capacity. test_loader_determinism.c compares the bytes with and without. */

#include "images.h"
#include "near.h"
#include "ref_device.h"

#include "lather/data.h"
#include "lather/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* AHEAD: most samples that the loader prefetches. */
enum { ALL = 15, SIDE = 16, EPOCHS = 3, AHEAD = 16, TURNED = 2 };

static lt_loader_stats run_epochs(lt_dataset *d, int64_t cache_bytes, int epochs)
{
    const lt_loader_config c = {.transform = {.augment = LT_AUGMENT_IMAGENET, .size = SIDE},
                                .batch = 4,
                                .threads = 1, /* more might decode an image twice */
                                .shuffle = true,
                                .max_bad = -1,
                                .cache_bytes = cache_bytes};
    lt_loader *l = NULL;
    lt_batch b;
    assert_ok(lt_loader_new(&l, d, device, &c));
    for (int i = 0; i < epochs; i++) {
        lt_status st;
        while (!(st = lt_loader_next(l, &b)))
            continue;
        assert_int_equal(st, LT_END);
    }
    lt_loader_stats s = lt_loader_statistics(l);
    lt_loader_free(&l);
    return s;
}

static void check_memory(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_images(&root);
    lt_loader_stats all = run_epochs(d, 1 << 20, EPOCHS);
    assert_int_equal(all.cache_misses, ALL);
    assert_in_range(all.cache_hits, (EPOCHS - 1) * ALL, EPOCHS * ALL + AHEAD - ALL);
    lt_loader_stats some = run_epochs(d, all.cache_bytes / 2, EPOCHS);
    assert_in_range(some.cache_bytes, all.cache_bytes / 4, all.cache_bytes / 2);
    assert_in_range(some.cache_hits, 4, (EPOCHS - 1) * (ALL - 4) + AHEAD);
    assert_in_range(some.cache_hits + some.cache_misses, EPOCHS * ALL, EPOCHS * ALL + AHEAD);
    lt_loader_stats none = run_epochs(d, 100, EPOCHS);
    assert_int_equal(none.cache_hits, 0);
    assert_int_equal(none.cache_bytes, 0);
    assert_int_equal(run_epochs(d, 0, 1).cache_misses, 0);
    /* Cached images are not read again; a corrupt image is not cached and listed once. */
    run_in(root, "echo text >class1/00.jpg");
    all = run_epochs(d, 1 << 20, EPOCHS);
    assert_int_equal(all.bad, 1);
    assert_in_range(all.cache_misses, ALL - 1 + EPOCHS, ALL - 1 + EPOCHS + 2);
    close_images(&d, root);
}

/* Uncompressed planes, as in Fashion-MNIST. */
static void check_plain(void **state)
{
    (void)state;
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_synthetic(&d, 50, 8, 3, 10));
    lt_loader_stats s = run_epochs(d, 1 << 20, 2);
    assert_int_equal(s.cache_misses, 50);
    assert_in_range(s.cache_hits, 50, 50 + AHEAD);
    assert_in_range(s.cache_bytes, 50 * 192, 50 * 512);
    lt_dataset_free(&d);
}

/* Copies the last epoch's inputs of two, without augmentation. */
static void read_second_epoch(const char *root, int64_t cache_bytes, uint8_t *out, size_t bytes)
{
    const lt_loader_config c = {
        .transform = {.augment = LT_AUGMENT_NONE, .size = SIDE, .exif = true},
        .batch = TURNED,
        .threads = 1,
        .cache_bytes = cache_bytes};
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_batch b;
    assert_ok(lt_dataset_open(&d, root, true));
    assert_ok(lt_loader_new(&l, d, device, &c));
    for (int i = 0; i < 2; i++) {
        assert_ok(lt_loader_next(l, &b));
        assert_ok(lt_tensor_read(b.inputs, out, bytes));
        assert_int_equal(lt_loader_next(l, &b), LT_END);
    }
    assert_int_equal(lt_loader_statistics(l).cache_misses, cache_bytes ? TURNED : 0);
    lt_loader_free(&l);
    lt_dataset_free(&d);
}

/* Photos of cameras that were held upright: Exif says by which turn. */
static void check_turned(void **state)
{
    const jpeg_spec spec = {
        .width = 40, .height = 30, .components = 3, .h = 1, .v = 1, .quality = 85};
    uint8_t cached[TURNED * 3 * SIDE * SIDE], decoded[TURNED * 3 * SIDE * SIDE];
    char *root = make_folder(), name[32];
    uint32_t seed = 3;
    (void)state;
    for (int i = 0; i < TURNED; i++) {
        size_t size = 0, tagged_size = 0;
        uint8_t *plain = make_jpeg(&spec, &seed, &size);
        uint8_t *tagged = tag_jpeg(plain, size, 6, &tagged_size);
        snprintf(name, sizeof name, "class%d/image.jpg", i);
        write_file(root, name, tagged, tagged_size);
        free(plain);
        free(tagged);
    }
    read_second_epoch(root, 1 << 20, cached, sizeof cached);
    read_second_epoch(root, 0, decoded, sizeof decoded);
    assert_memory_equal(cached, decoded, sizeof cached);
    remove_folder(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"decoded images are cached up to the capacity", check_memory, 0, 0, 0},
        {"uncompressed images are cached too", check_plain, 0, 0, 0},
        {"turned images are cached upright", check_turned, 0, 0, 0},
    };
    return cmocka_run_group_tests_name("cache", tests, open_device, close_device);
}
