/* The loader with corrupt images and with labels out of range. */

#include "data/formats/image.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"

#include "lather/ext/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 24, IMAGE = SIDE * SIDE * 3 };

static lt_loader_config usual(int threads)
{
    return (lt_loader_config){
        .transform = {.augment = LT_AUGMENT_IMAGENET, .size = SIDE, .flip = 0.5},
        .batch = 4,
        .threads = threads,
        .seed = 11,
        .shuffle = true,
    };
}

/* Adds a truncated file, an empty one and a text; and a good image with a wrong extension. */
static lt_dataset *open_corrupt(char **root_of)
{
    char *root = *root_of = make_image_folder();
    uint32_t seed = 9;
    jpeg_spec spec = {60, 50, 3, 2, 2, 85, 0, 0, 0, 0};
    size_t size = 0;
    uint8_t *jpeg = make_jpeg(&spec, &seed, &size);
    write_file(root, "class0/cut.jpg", jpeg, size / 2);
    write_file(root, "class1/empty.jpg", jpeg, 0);
    write_file(root, "class2/text.png", "not an image", 12);
    write_file(root, "class2/jpeg.bmp", jpeg, size);
    free(jpeg);
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, root, true));
    return d;
}

static void check_listed(void **state)
{
    (void)state;
    static const char *const reasons[] = {
        "class0/cut.jpg: jpeg: the file is truncated", "class1/empty.jpg: the file is empty",
        "class2/text.png: image: neither JPEG, PNG, BMP, GIF, WebP"};
    char *root;
    lt_dataset *d = open_corrupt(&root);
    lt_loader *l = NULL;
    assert_int_equal(d->count, 19);
    char *order[2] = {NULL, NULL};
    for (int run = 0; run < 2; run++) {
        lt_loader_config c = usual(run ? 5 : 1);
        c.max_bad = 3;
        assert_ok(lt_loader_new(&l, d, device, &c));
        lt_batch b;
        for (int epoch = 0; epoch < 2; epoch++) {
            int count = 0;
            while (lt_loader_next(l, &b) == LT_OK)
                count += b.count;
            assert_int_equal(count, 19); /* the batches keep their size */
        }
        assert_int_equal(lt_loader_statistics(l).bad, 3);
        assert_null(lt_loader_corrupt(l, 3));
        for (size_t i = 0; i < COUNT_OF(reasons); i++) {
            bool found = false;
            for (int64_t j = 0; j < 3; j++)
                found = found || strstr(lt_loader_corrupt(l, j), reasons[i]);
            if (!found)
                fail_msg("'%s' is not in the list", reasons[i]);
        }
        order[run] = strdup(lt_loader_corrupt(l, 0));
        lt_loader_free(&l);
    }
    assert_string_equal(order[0], order[1]);
    free(order[0]);
    free(order[1]);
    close_images(&d, root);
}

/* The first image decides the default input size; a corrupt one decides nothing. */
static void check_short_side(void **state)
{
    (void)state;
    char *root = make_image_folder();
    lt_dataset *d = NULL;
    int side = 0, corrupt = 1;
    assert_ok(lt_dataset_open(&d, root, true));
    assert_ok(lt_dataset_short_side(d, &side));
    lt_dataset_free(&d);
    write_file(root, "class0/!.jpg", "not an image", 12);
    assert_ok(lt_dataset_open(&d, root, true));
    assert_ok(lt_dataset_short_side(d, &corrupt));
    assert_true(side > 1);
    assert_int_equal(corrupt, 0);
    close_images(&d, root);
}

/* A corrupt file is replaced by the next sample in index order. */
static void check_replacement(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_corrupt(&root);
    lt_loader *l = NULL;
    lt_loader_config c = usual(2);
    c.shuffle = false;
    c.transform.augment = LT_AUGMENT_NONE;
    c.batch = 1;
    c.max_bad = -1;
    assert_ok(lt_loader_new(&l, d, device, &c));
    lt_batch b;
    uint8_t got[2][IMAGE];
    int32_t label = -1;
    assert_ok(lt_loader_seek(l, 0, 4)); /* class0/cut.jpg; then class1/00.jpg */
    for (int i = 0; i < 2; i++) {
        assert_ok(lt_loader_next(l, &b));
        assert_ok(lt_tensor_read(b.inputs, got[i], IMAGE));
        assert_ok(lt_tensor_read(b.labels, &label, sizeof label));
        assert_int_equal(label, 1);
    }
    assert_memory_equal(got[0], got[1], IMAGE);
    lt_loader_free(&l);
    close_images(&d, root);
}

/* Each row of a batch has the index of its sample and why the original one is corrupt; kept corrupt samples are zeros. */
static void check_rows(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_corrupt(&root);
    lt_loader *l = NULL;
    for (int keep = 0; keep < 2; keep++) {
        lt_loader_config c = usual(2);
        c.shuffle = false;
        c.keep_broken = keep;
        c.max_bad = -1;
        assert_ok(lt_loader_new(&l, d, device, &c));
        lt_batch b;
        int corrupt = 0;
        uint8_t got[4][IMAGE];
        while (!lt_loader_next(l, &b)) {
            assert_ok(lt_tensor_read(b.inputs, got, lt_tensor_bytes(b.inputs)));
            for (int row = 0; row < b.count; row++) {
                int64_t index = b.index * 4 + row;
                const char *why = b.row[row].why, *name = lt_dataset_sample_name(d, index);
                assert_int_equal(b.row[row].sample, why && !keep ? (index + 1) % 19 : index);
                assert_true(!why || !strncmp(why, name, strlen(name)));
                assert_true((why && keep)
                            == (got[row][0] == 0 && !memcmp(got[row], got[row] + 1, IMAGE - 1)));
                corrupt += why != NULL;
            }
        }
        assert_int_equal(corrupt, 3);
        lt_loader_free(&l);
    }
    close_images(&d, root);
}

/* A folder in a list of files is replaced by the images below it, sorted by path, without hidden files. */
static void check_folders(void **state)
{
    (void)state;
    static const char *const names[] = {"/b.png",      "/b/.x/1.jpg", "/b/c/2.jpg", "/b/1.jpg",
                                        "/b/note.txt", "/b-/3.GIF",   "/.h.jpg"};
    static const char *const want[] = {"/b/1.jpg",   "/b-/3.GIF",  "/b.png",   "/b/1.jpg",
                                       "/b/c/2.jpg", "/b/.x/none", "/none.jpg"};
    char *root = make_image_folder(), path[5][256];
    snprintf(path[0], sizeof path[0], "%s/list", root);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "list%s", names[i]);
        write_file(root, name, "x", 1);
    }
    snprintf(path[1], sizeof path[1], "%s/list/b/1.jpg", root);
    snprintf(path[2], sizeof path[2], "%s/list//", root);
    snprintf(path[3], sizeof path[3], "%s/list/b/.x/none", root);
    snprintf(path[4], sizeof path[4], "%s/list/none.jpg", root);
    write_file(root, "list/b/.x/none/empty", "x", 1);
    const char *list[] = {path[1], path[2], path[3], path[4]};
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_files(&d, list, 4, 3));
    assert_int_equal(lt_dataset_count(d), COUNT_OF(want));
    for (size_t i = 0; i < COUNT_OF(want); i++)
        assert_string_equal(lt_dataset_sample_name(d, (int64_t)i) + strlen(path[0]), want[i]);
    close_images(&d, root);
}

static void check_too_many(void **state)
{
    (void)state;
    char *root;
    lt_dataset *d = open_corrupt(&root);
    lt_loader *l = NULL;
    for (int allowed = 0; allowed < 3; allowed++) {
        lt_loader_config c = usual(2);
        c.max_bad = allowed;
        assert_ok(lt_loader_new(&l, d, device, &c));
        lt_batch b;
        lt_status st = LT_OK;
        while (!st)
            st = lt_loader_next(l, &b);
        assert_int_equal(st, LT_E_FORMAT);
        assert_non_null(strstr(lt_error_message(), "corrupt images"));
        assert_non_null(strstr(lt_error_message(), root));
        assert_non_null(lt_loader_corrupt(l, allowed));
        assert_status(lt_loader_next(l, &b), LT_E_FORMAT);
        lt_loader_free(&l);
    }
    close_images(&d, root);
}

static lt_status read_mislabelled(const lt_dataset *self, int64_t index, lt_record *record)
{
    if (self->count == 1)
        return lt_fail(LT_E_UNSUPPORTED, "no decoder");
    LT_TRY(lt_record_reserve(record, 3));
    record->size = 3;
    record->encoding = LT_ENCODING_PIXELS;
    record->width = record->height = 1;
    record->label = index == 5 ? 2 : 0;
    return LT_OK;
}

static void check_labels(void **state)
{
    (void)state;
    static const lt_dataset_ops ops = {
        .name = "mislabelled", .bytes = sizeof(lt_dataset), .read = read_mislabelled};
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    assert_ok(lt_dataset_new(&d, &ops));
    d->count = 8;
    d->classes = 2;
    lt_loader_config c = usual(2);
    c.shuffle = false;
    c.max_bad = -1;
    assert_ok(lt_loader_new(&l, d, device, &c));
    lt_batch b;
    assert_ok(lt_loader_next(l, &b));
    assert_fails(lt_loader_next(l, &b), LT_E_FORMAT, "sample 5 has label 2, want 0 .. 1");
    lt_loader_free(&l);
    d->count = 1; /* an error that no other sample avoids */
    assert_ok(lt_loader_new(&l, d, device, &c));
    assert_fails(lt_loader_next(l, &b), LT_E_UNSUPPORTED, "mislabelled: sample 0: no decoder");
    lt_loader_free(&l);
    lt_dataset_free(&d);
}

/* A BMP with a palette of two colours and pixels 0, 1 and 7. Expects Pillow's pixels. */
static void check_palette(void **state)
{
    (void)state;
    static const uint8_t file[] = {
        'B', 'M', 66, 0, 0,  0,  0,  0, 0, 0, 62, 0, 0, 0,       /* offset of the pixels */
        40,  0,   0,  0, 3,  0,  0,  0, 1, 0, 0,  0, 1, 0, 8, 0, /* 3 x 1, 8 bits */
        0,   0,   0,  0, 4,  0,  0,  0, 0, 0, 0,  0, 0, 0, 0, 0,
        2,   0,   0,  0, 0,  0,  0,  0, /* colours */
        16,  32,  48, 0, 16, 32, 48, 0, /* blue first */
        0,   1,   7,  0,
    };
    static const uint8_t want[] = {48, 32, 16, 48, 32, 16, 0, 0, 0};
    lt_image image = {0};
    assert_ok(lt_image_decode(file, sizeof file, NULL, 3, (lt_window){0, 0, 3, 1}, &image));
    assert_memory_equal(image.pixels, want, sizeof want);
    lt_image_clear(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"corrupt images are replaced, counted once and listed", check_listed, 0, 0, 0},
        {"a corrupt first image has no size", check_short_side, 0, 0, 0},
        {"a corrupt image is replaced by the next one", check_replacement, 0, 0, 0},
        {"a row has its sample and why the original one is corrupt", check_rows, 0, 0, 0},
        {"a folder in a list of files means the images below it", check_folders, 0, 0, 0},
        {"more corrupt images than allowed are an error", check_too_many, 0, 0, 0},
        {"a label out of range names the sample", check_labels, 0, 0, 0},
        {"a colour past the end of a palette is black", check_palette, 0, 0, 0},
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
