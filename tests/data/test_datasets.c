/* Data sets: folders, synthetic, idx files, registered ones; and their error messages. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"
#include "images.h"
#include "near.h"

#include "lather/ext/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static void check_order(void **state)
{
    (void)state;
    static const char *const files[] = {"b/2.JPG",          "b/10.jpeg",      "b/x.txt",
                                        "b/deep/sub/1.png", "b/deep.x/0.bmp", "B/z.Png",
                                        "a/.hidden.jpg",    "a/1.jpg",        ".git/1.jpg"};
    static const char *const want[] = {"B/z.Png", "a/1.jpg",        "b/10.jpeg",
                                       "b/2.JPG", "b/deep.x/0.bmp", "b/deep/sub/1.png"};
    static const int labels[] = {0, 1, 2, 2, 2, 2};
    char *root = make_folder();
    for (size_t i = 0; i < COUNT_OF(files); i++)
        write_file(root, files[i], files[i], strlen(files[i]));
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, root, true));
    assert_int_equal(lt_dataset_count(d), COUNT_OF(want));
    assert_int_equal(lt_dataset_classes(d), 3);
    assert_int_equal(lt_dataset_channels(d), 3);
    assert_string_equal(lt_dataset_class_name(d, 2), "b");
    assert_null(lt_dataset_class_name(d, 3));
    assert_null(lt_dataset_sample_name(d, COUNT_OF(want)));
    lt_record record = {0};
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        const char *name = lt_dataset_sample_name(d, (int64_t)i);
        assert_string_equal(name + strlen(root) + 1, want[i]);
        assert_ok(d->ops->read(d, (int64_t)i, &record));
        assert_int_equal(record.label, labels[i]);
        assert_int_equal(record.size, strlen(want[i]));
        assert_memory_equal(record.bytes, want[i], record.size);
    }
    lt_free(record.bytes);
    close_images(&d, root);
}

static void check_parts(void **state)
{
    (void)state;
    char *root = make_folder();
    write_file(root, "train/x/1.jpg", "t", 1);
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, root, true));
    assert_string_equal(lt_dataset_class_name(d, 0), "x");
    lt_dataset_free(&d);
    assert_ok(lt_dataset_open(&d, root, false)); /* the training images, for want of others */
    assert_true(d->unsplit);
    assert_string_equal(lt_dataset_class_name(d, 0), "x");
    lt_dataset_free(&d);
    write_file(root, "val/y/1.jpg", "v", 1);
    assert_ok(lt_dataset_open(&d, root, false));
    assert_false(d->unsplit);
    assert_string_equal(lt_dataset_class_name(d, 0), "y");
    lt_dataset_free(&d);
    assert_ok(lt_dataset_open(&d, root, true));
    assert_false(d->unsplit);
    lt_dataset_free(&d);
    run_in(root, "rm -r train");
    assert_fails(lt_dataset_open(&d, root, true), LT_E_IO,
                 "has a part val, but no folder or tar files train");
    remove_folder(root);
}

/* Writes records of label bytes and 3072 pixels, all equal to the class. */
static void write_cifar(const char *root, const char *name, int label_bytes, int count, int classes)
{
    enum { PIXELS = 3072, MOST = 200 };
    static uint8_t bytes[MOST * (PIXELS + 2)];
    uint8_t *at = bytes;
    for (int i = 0; i < count; i++, at += label_bytes + PIXELS) {
        memset(at, i % classes, (size_t)label_bytes + PIXELS);
        if (label_bytes > 1)
            at[0] = 99; /* the superclass */
    }
    write_file(root, name, bytes, (size_t)(at - bytes));
}

static void check_cifar_part(const char *root, bool train, int count, int classes)
{
    lt_dataset *d = NULL;
    lt_record r = {0};
    assert_ok(lt_dataset_open(&d, root, train));
    assert_int_equal(lt_dataset_count(d), count);
    assert_int_equal(lt_dataset_classes(d), classes);
    assert_string_equal(lt_dataset_class_name(d, 1), "b");
    assert_false(d->unsplit);
    for (int i = 0; i < count; i++) {
        int label = -1;
        assert_ok(d->ops->read(d, i, &r));
        assert_ok(lt_dataset_label(d, i, &label));
        assert_int_equal(r.label, label);
        assert_int_equal(r.bytes[0], label);
        assert_int_equal(r.bytes[3071], label);
        assert_int_equal(label, i % (train ? 10 : classes));
    }
    lt_free(r.bytes);
    lt_dataset_free(&d);
}

static void check_cifar(void **state)
{
    (void)state;
    char *root = make_folder(), *c10 = below(root, "a"), *c100 = below(root, "b"), name[64];
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "a/cifar-10-batches-bin/data_batch_%d.bin", i);
        write_cifar(root, name, 1, 20, 10);
    }
    write_cifar(root, "a/cifar-10-batches-bin/test_batch.bin", 1, 10, 10);
    write_file(root, "a/cifar-10-batches-bin/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n",
               21);
    check_cifar_part(c10, true, 100, 10);
    check_cifar_part(c10, false, 10, 10);
    write_cifar(root, "b/train.bin", 2, 20, 10);
    write_cifar(root, "b/test.bin", 2, 100, 100);
    char names[201];
    for (int i = 0; i < 100; i++)
        snprintf(names + (size_t)2 * (size_t)i, 3, "%c\n", i == 1 ? 'b' : 'x');
    write_file(root, "b/fine_label_names.txt", names, 200);
    check_cifar_part(c100, true, 20, 100);
    check_cifar_part(c100, false, 100, 100);
    lt_dataset *d = NULL;
    write_cifar(root, "b/test.bin", 2, 110, 110);
    assert_fails(lt_dataset_open(&d, c100, false), LT_E_FORMAT,
                 "sample 100 has label 100, want 0 .. 99");
    write_file(root, "b/fine_label_names.txt", names, 66);
    assert_fails(lt_dataset_open(&d, c100, true), LT_E_FORMAT,
                 "fine_label_names.txt: 33 names of classes, want 100");
    write_file(root, "b/train.bin", "xyz", 3);
    assert_fails(lt_dataset_open(&d, c100, true), LT_E_FORMAT,
                 "3 bytes, which are no whole records of 3074");
    run_in(root, "rm a/*/data_batch_3.bin");
    assert_fails(lt_dataset_open(&d, c10, true), LT_E_IO, "data_batch_3.bin");
    run_in(root, "rm -r a/*; mkdir a/cifar-10-batches-py");
    assert_fails(lt_dataset_open(&d, c10, true), LT_E_UNSUPPORTED, "unpack the binary version");
    assert_fails(lt_dataset_cifar(&d, root, true), LT_E_IO, ": no CIFAR files");
    free(c10);
    free(c100);
    remove_folder(root);
}

static void check_bad_folders(void **state)
{
    (void)state;
    char *root = make_folder();
    lt_dataset *d = NULL;
    assert_fails(lt_dataset_open(&d, "/no/such/folder", true), LT_E_IO, "/no/such/folder");
    assert_fails(lt_dataset_folder(&d, "/no/such/folder"), LT_E_IO,
                 "/no/such/folder: no such folder");
    assert_fails(lt_dataset_open(&d, root, true), LT_E_FORMAT, "no class folder");
    write_file(root, "cat/1.jpg", "c", 1);
    write_file(root, "dog/readme.txt", "d", 1);
    assert_ok(lt_dataset_open(&d, root, true)); /* without dog */
    assert_int_equal(lt_dataset_classes(d), 1);
    lt_dataset_free(&d);
    lt_record r = {0};
    run_in(root, "truncate -s 1073741825 cat/1.jpg");
    assert_ok(lt_dataset_open(&d, root, true));
    assert_fails(d->ops->read(d, 0, &r), LT_E_FORMAT,
                 "cat/1.jpg: 1073741825 bytes; an image file has at most 1073741824");
    lt_dataset_free(&d);
    run_in(root, "mv cat/1.jpg .");
    assert_fails(lt_dataset_open(&d, root, true), LT_E_FORMAT, "in 2 class folders: ");
    run_in(root, "mv 1.jpg cat");
    char *dog = below(root, "dog"), *loop = below(root, "dog/loop");
    assert_int_equal(symlink(dog, loop), 0);
    assert_fails(lt_dataset_open(&d, root, true), LT_E_FORMAT, "link");
    run_in(root, "rm dog/loop; cd dog; for i in $(seq 17); do mkdir f; cd f; done");
    assert_fails(lt_dataset_open(&d, root, true), LT_E_FORMAT,
                 "/f: nested more than 16 folders deep; is it a link to a parent folder?");
    char long_name[300] = "";
    memset(long_name, 'x', sizeof long_name - 1);
    assert_fails(lt_dataset_open(&d, long_name, true), LT_E_IO, "xx: File name too long");
    assert_null(d);
    free(dog);
    free(loop);
    remove_folder(root);
}

static void check_synthetic(void **state)
{
    (void)state;
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, "synthetic:7:5:3", true));
    assert_int_equal(lt_dataset_count(d), 7);
    assert_int_equal(lt_dataset_classes(d), 3);
    lt_record a = {0}, b = {0};
    assert_ok(d->ops->read(d, 4, &a));
    assert_ok(d->ops->read(d, 4, &b));
    assert_int_equal(a.size, 75);
    assert_int_equal(a.label, 1);
    assert_memory_equal(a.bytes, b.bytes, 75);
    assert_ok(d->ops->read(d, 5, &b));
    assert_memory_not_equal(a.bytes, b.bytes, 75);
    lt_free(a.bytes);
    lt_free(b.bytes);
    lt_dataset_free(&d);
    static const char *const wrong[] = {
        "synthetic:7:5",    "synthetic:7:5:3x", "synthetic:7:99999999999:3",
        "synthetic:-7:5:3", "synthetic:0:5:3",  "synthetic:7:0:3",
        "synthetic:7:5:0"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_status(lt_dataset_open(&d, wrong[i], true), LT_E_ARG);
}

static void check_arguments(void **state)
{
    static const char *const path[] = {"x.jpg"};
    lt_dataset *d = NULL;
    (void)state;
    assert_fails(lt_dataset_synthetic(&d, 4, 4, 2, 2), LT_E_ARG, "got 2 channels, want 1 or 3");
    assert_fails(lt_dataset_idx(&d, "i", "l", -1), LT_E_ARG, "got -1 classes, want 0 or more");
    assert_fails(lt_dataset_files(&d, path, 0, 3), LT_E_ARG, "got 0 paths, 3 channels; want");
    assert_fails(lt_dataset_files(&d, path, 1, 2), LT_E_ARG, "got 1 paths, 2 channels; want");
    assert_fails(lt_dataset_tar(&d, path, 0), LT_E_ARG, "got no tar file");
    assert_fails(lt_dataset_open(&d, "service", true), LT_E_ARG, "'service' needs an address");
    assert_null(d);
}

/* Changes to idx files of three images of 2 x 2 with labels 0, 9 and 3. */
typedef struct idx_row {
    const char *name;
    int images_size, labels_size; /* truncates the files to this size; 0: does not */
    int at, value;                /* changes a byte of the image file */
    int label_at, label_value;    /* changes a byte of the label file */
    int classes;
    lt_status want;
    const char *message;
} idx_row;

static const idx_row idx_rows[] = {
    {"idx: a valid pair is read", 0, 0, 0, 0, 0, 0, 10, LT_OK, NULL},
    {"idx: the number of classes is that of the labels", 0, 0, 0, 0, 9, 11, 0, LT_OK, NULL},
    {"idx: images end early", 27, 0, 0, 0, 0, 0, 10, LT_E_FORMAT, "images"},
    {"idx: images end within the header", 7, 0, 0, 0, 0, 0, 10, LT_E_FORMAT, "images"},
    {"idx: labels end early", 0, 10, 0, 0, 0, 0, 10, LT_E_FORMAT, "labels"},
    {"idx: a label out of range", 0, 0, 0, 0, 9, 10, 10, LT_E_FORMAT, "sample 1 has label 10"},
    {"idx: a header that claims 2^32 images", 0, 0, 4, 255, 0, 0, 10, LT_E_FORMAT, "too early"},
    {"idx: an image with no rows", 0, 0, 11, 0, 0, 0, 10, LT_E_FORMAT, "zero"},
    {"idx: another element type", 0, 0, 2, 13, 0, 0, 10, LT_E_FORMAT, "begins with 00 00 0d"},
    {"idx: more data than the header claims", 0, 0, 7, 2, 0, 0, 10, LT_E_FORMAT, "more data"},
    {"idx: counts that differ", 24, 0, 7, 2, 0, 0, 10, LT_E_FORMAT, "2 images"},
};

static void write_gzip(const char *folder, const char *name, const void *bytes, unsigned size)
{
    char *path = below(folder, name);
    gzFile f = gzopen(path, "wb");
    assert_true(f && gzwrite(f, bytes, size) == (int)size && gzclose(f) == Z_OK);
    free(path);
}

static void check_idx(void **state)
{
    enum { IMAGES = 28, LABELS = 11 };
    const idx_row *row = *state;
    uint8_t images[IMAGES] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0,  0,
                              0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    uint8_t labels[LABELS] = {0, 0, 8, 1, 0, 0, 0, 3, 0, 9, 3};
    unsigned image_size = row->images_size ? (unsigned)row->images_size : IMAGES;
    unsigned label_size = row->labels_size ? (unsigned)row->labels_size : LABELS;
    if (row->at || row->value)
        images[row->at] = (uint8_t)row->value;
    if (row->label_at)
        labels[row->label_at] = (uint8_t)row->label_value;
    char *root = make_folder();
    for (int packed = 0; packed < 2; packed++) {
        if (packed) {
            write_gzip(root, "images", images, image_size);
            write_gzip(root, "labels", labels, label_size);
        } else {
            write_file(root, "images", images, image_size);
            write_file(root, "labels", labels, label_size);
        }
        char *i = below(root, "images"), *l = below(root, "labels");
        lt_dataset *d = NULL;
        lt_status st = lt_dataset_idx(&d, i, l, row->classes);
        if (row->want) {
            assert_failed(st, row->want, row->message);
            assert_null(d);
        } else {
            assert_ok(st);
            lt_record r = {.encoding = LT_ENCODING_TOKENS}; /* loaders reuse records */
            assert_ok(d->ops->read(d, 2, &r));
            assert_int_equal(r.encoding, LT_ENCODING_PIXELS);
            assert_true(r.width == 2 && r.height == 2 && r.channels == 1);
            assert_int_equal(r.label, 3);
            assert_int_equal(r.size, 4);
            assert_memory_equal(r.bytes, images + 24, 4);
            assert_int_equal(lt_dataset_classes(d), row->classes ? row->classes : 12);
            lt_free(r.bytes);
        }
        lt_dataset_free(&d);
        free(i);
        free(l);
    }
    remove_folder(root);
}

static void check_mnist_folder(void **state)
{
    (void)state;
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 77};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 1, 4};
    char *root = make_folder();
    write_gzip(root, "train-images-idx3-ubyte.gz", images, sizeof images);
    lt_dataset *d = NULL;
    assert_fails(lt_dataset_open(&d, root, true), LT_E_IO, "no train-labels-idx1-ubyte");
    write_file(root, "train-labels-idx1-ubyte", labels, sizeof labels);
    assert_ok(lt_dataset_open(&d, root, true));
    assert_int_equal(lt_dataset_count(d), 1);
    assert_int_equal(lt_dataset_classes(d), 5);
    lt_dataset_free(&d);

    assert_int_equal(setenv("LATHER_FASHION_MNIST", root, 1), 0);
    assert_ok(lt_dataset_open(&d, "fashion-mnist", true));
    assert_int_equal(lt_dataset_classes(d), 10);
    assert_string_equal(lt_dataset_class_name(d, 9), "Ankle boot");
    lt_dataset_free(&d);
    assert_int_equal(setenv("LATHER_FASHION_MNIST", "/no/such/folder", 1), 0);
    assert_fails(lt_dataset_open(&d, "fashion-mnist", true), LT_E_IO, "dataset-fashion-mnist");
    unsetenv("LATHER_FASHION_MNIST");
    remove_folder(root);
}

/* Debian's package, if it is installed. */
static void check_fashion_mnist(void **state)
{
    (void)state;
    if (!lt_is_folder("/usr/share/datasets/fashion-mnist"))
        skip();
    for (int train = 0; train < 2; train++) {
        lt_dataset *d = NULL;
        assert_ok(lt_dataset_fashion_mnist(&d, train));
        assert_int_equal(lt_dataset_count(d), train ? 60000 : 10000);
        int count[10] = {0};
        lt_record r = {0};
        for (int64_t i = 0; i < lt_dataset_count(d); i++) {
            assert_ok(d->ops->read(d, i, &r));
            assert_in_range(r.label, 0, 9);
            count[r.label]++;
        }
        assert_int_equal(r.width, 28);
        for (int i = 0; i < 10; i++)
            assert_int_equal(count[i], train ? 6000 : 1000);
        lt_free(r.bytes);
        lt_dataset_free(&d);
    }
}

static char opened[64]; /* arguments of the last open_mine() */

static lt_status open_mine(lt_dataset **out, const char *spec, bool train)
{
    snprintf(opened, sizeof opened, "%s, %s", spec, train ? "train" : "val");
    return lt_dataset_synthetic(out, 3, 8, 1, 2);
}

static void check_registered(void **state)
{
    (void)state;
    static const lt_dataset_kind mine = {"mine:ARGS", open_mine}, bare = {"bare", open_mine},
                                 again = {"mine", open_mine}, none = {":ARGS", open_mine},
                                 taken = {"synthetic", open_mine};
    static const char *const specs[] = {"mine", "mine:1:2", "bare"};
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_register(&mine));
    assert_ok(lt_dataset_register(&bare));
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        char want[64];
        assert_ok(lt_dataset_open(&d, specs[i], i == 1));
        snprintf(want, sizeof want, "%s, %s", specs[i], i == 1 ? "train" : "val");
        assert_string_equal(opened, want);
        lt_dataset_free(&d);
    }
    assert_fails(
        lt_dataset_open(&d, "bare:1", true), LT_E_IO,
        "a .tar file, 'fashion-mnist', 'synthetic:COUNT:SIZE:CLASSES', 'service:ADDRESS[,ADDRESS]', 'mine:ARGS' or 'bare'");
    assert_fails(lt_dataset_open(&d, "miner", true), LT_E_IO, "'miner' is not a folder");
    assert_fails(lt_dataset_register(&again), LT_E_ARG, "the name 'mine' is taken");
    assert_fails(lt_dataset_register(&taken), LT_E_ARG, "the name 'synthetic' is taken");
    assert_fails(lt_dataset_register(&none), LT_E_ARG, "does not begin with a name");
    enum { FREE = 32 - 5 }; /* places after those of the library, mine and bare */
    static lt_dataset_kind many[FREE + 1];
    static char names[FREE + 1][4];
    for (int i = 0; i <= FREE; i++) {
        snprintf(names[i], sizeof names[i], "k%u", (unsigned)i % 100U);
        many[i] = (lt_dataset_kind){names[i], open_mine};
        if (i < FREE)
            assert_ok(lt_dataset_register(&many[i]));
    }
    assert_fails(lt_dataset_register(&many[FREE]), LT_E_NOMEM, "cannot register more than 32");
}

int main(void)
{
    enum { MORE = 9 };
    struct CMUnitTest tests[MORE + COUNT_OF(idx_rows)] = {
        row_test("folder: classes and files are sorted bytewise", check_order, NULL),
        row_test("folder: train and val are found below", check_parts, NULL),
        row_test("cifar: both sets, and damaged or missing files", check_cifar, NULL),
        row_test("folder: a missing or empty folder is named", check_bad_folders, NULL),
        row_test("registered: opened by name, with or without arguments", check_registered, NULL),
        row_test("synthetic: the same index has the same noise", check_synthetic, NULL),
        row_test("constructors: numbers out of range", check_arguments, NULL),
        row_test("mnist: a folder with its files; Fashion-MNIST by name", check_mnist_folder, NULL),
        row_test("fashion-mnist: 70,000 images, equally many per class", check_fashion_mnist, NULL),
    };
    for (size_t i = 0; i < COUNT_OF(idx_rows); i++)
        tests[MORE + i] = row_test(idx_rows[i].name, check_idx, &idx_rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
