/* Truncated files: every prefix of files of every format is an error or has the contents of the whole file, and nothing past
 * its end is read (ASan notices, as the memory of an image has its size). */

#include "base/alloc.h"
#include "data/files/files.h"
#include "data/formats/image.h"
#include "data/pack/pack.h"
#include "full.h"
#include "golden.h"
#include "images.h"
#include "near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An image file: made from spec, or read from tests/golden/data/images. */
typedef struct image_row {
    const char *name;
    const char *file;
    jpeg_spec spec;
    bool bmp;
} image_row;

static const image_row rows[] = {
    {"JPEG, 4:2:0", NULL, {40, 24, 3, 2, 2, 60, 0, 0, 0, 0}, false},
    {"JPEG, progressive", NULL, {24, 18, 3, 1, 1, 60, 1, 0, 0, 0}, false},
    {"JPEG, arithmetic", NULL, {24, 18, 3, 2, 2, 60, 0, 1, 0, 0}, false},
    {"JPEG, restarts in every row", NULL, {24, 60, 3, 1, 1, 30, 0, 0, 3, 0}, false},
    {"JPEG, grey", NULL, {24, 18, 1, 1, 1, 60, 0, 0, 0, 0}, false},
    {"JPEG, CMYK", NULL, {24, 18, 4, 1, 1, 40, 0, 0, 0, 0}, false},
    {"BMP", NULL, {21, 9, 3, 1, 1, 0, 0, 0, 0, 0}, true},
    {"PNG of a palette", "palette.png", {0}, false},
    {"PNG", "enlarged.png", {0}, false},
    {"GIF of two frames", "two-frames.gif", {0}, false},
    {"WebP", "../formats/lossy.webp", {0}, false},
    {"WebP without a loss", "../formats/lossless.webp", {0}, false},
    {"AVIF", "../formats/420.avif", {0}, false},
    {"TIFF, deflate", "../formats/deflate.tif", {0}, false},
    {"TIFF, tiles", "../formats/tiles.tif", {0}, false},
    {"PPM", "../formats/plain.ppm", {0}, false},
    {"PGM", "../formats/raw.pgm", {0}, false},
};

static uint8_t *image_bytes(const image_row *row, size_t *size)
{
    uint32_t seed = 3;
    if (row->bmp)
        return make_bmp(row->spec.width, row->spec.height, &seed, size);
    if (!row->file)
        return make_jpeg(&row->spec, &seed, size);
    char name[64];
    snprintf(name, sizeof name, "data/images/%s", row->file);
    char *path = golden_path(name);
    lt_record record = {0};
    assert_ok(lt_file_read(path, &record));
    uint8_t *bytes = malloc(record.size);
    assert_non_null(bytes);
    memcpy(bytes, record.bytes, record.size);
    *size = record.size;
    lt_free(record.bytes);
    free(path);
    return bytes;
}

static bool is_file_error(lt_status st)
{
    return (st == LT_E_FORMAT || st == LT_E_UNSUPPORTED) && *lt_error_message();
}

/* Decodes the whole image, a window near its end, and a smaller image. */
static lt_status decode(const uint8_t *bytes, size_t size)
{
    int32_t width, height;
    lt_image p = {0};
    LT_TRY(lt_image_size(bytes, size, NULL, &width, &height));
    lt_window corner = {width - 1, height - 1, 1, 1}, all = {0, 0, width, height};
    lt_status st = lt_image_decode(bytes, size, NULL, 3, all, &p), other;
    other = lt_image_decode(bytes, size, NULL, 1, corner, &p);
    assert_true(!other || is_file_error(other));
    if (lt_image_can_shrink(bytes, size)) {
        lt_window small = {0, 0, (width + 3) / 4, (height + 3) / 4};
        other = lt_image_decode_shrunk(bytes, size, NULL, 3, 4, small, &p);
        assert_true(!other || is_file_error(other));
    }
    lt_image_clear(&p);
    return st;
}

static void check_image(void **state)
{
    size_t size = 0, images = 0;
    uint8_t *whole = image_bytes(*state, &size);
    if (decode(whole, size) == LT_E_UNSUPPORTED) { /* a build without that library */
        free(whole);
        skip();
    }
    for (size_t n = 0; n <= size; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, whole, n);
        lt_status st = decode(cut, n);
        if (st && !is_file_error(st))
            fail_msg("%zu of %zu bytes: status %d, '%s'", n, size, (int)st, lt_error_message());
        if (n == size)
            assert_ok(st);
        images += !st;
        free(cut);
    }
    assert_in_range(images, 1, size / 2); /* control: most prefixes are rejected */
    free(whole);
}

/* A data set and its file to truncate. */
typedef struct set_row {
    const char *name;
    const char *make; /* shell commands in a folder with images/; PACK: a pack is written */
    const char *spec, *file;
    bool rebuilt; /* truncation changes nothing, as the file is rebuilt */
} set_row;

static const set_row sets[] = {
    {"a tar file", "tar -b 1 --sort=name -cf x.tar -C images .", "x.tar", "x.tar", false},
    {"a pax tar file", "tar -b 1 --format=pax --sort=name -cf x.tar -C images .", "x.tar", "x.tar",
     false},
    {"the cached index of a tar file", "tar -b 1 --sort=name -cf x.tar -C images .", "x.tar",
     "x.tar.index", true},
    {"the shard of a pack", "PACK", "pack", "pack/shard-00000.pack", false},
    {"the manifest of a pack", "PACK", "pack", "pack/manifest.json", false},
    {"idx images", "true", "idx", "idx/train-images-idx3-ubyte", false},
    {"idx labels", "true", "idx", "idx/train-labels-idx1-ubyte", false},
    {"idx images, gzip", "gzip -n idx/train-images-idx3-ubyte", "idx",
     "idx/train-images-idx3-ubyte.gz", false},
    {"idx labels, gzip", "gzip -n idx/train-labels-idx1-ubyte", "idx",
     "idx/train-labels-idx1-ubyte.gz", false},
};

static void write_idx(const char *root)
{
    static const uint8_t pixels[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2,  0,  0,
                                     0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 0};
    static const char *const parts[] = {"train", "t10k"};
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        char name[64];
        snprintf(name, sizeof name, "idx/%s-images-idx3-ubyte", parts[i]);
        write_file(root, name, pixels, sizeof pixels);
        snprintf(name, sizeof name, "idx/%s-labels-idx1-ubyte", parts[i]);
        write_file(root, name, labels, sizeof labels);
    }
}

static void write_pack(const char *root)
{
    char *from = below(root, "images"), *to = below(root, "pack");
    const lt_pack_config config = {.mode = LT_PACK_ORIGINAL, .threads = 1};
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_folder(&d, from));
    assert_ok(lt_pack_write(to, d, &config, NULL, NULL, NULL));
    lt_dataset_free(&d);
    free(from);
    free(to);
}

/* Makes three tiny images in two classes, the idx files, and the files of the row. */
static char *make_set(const set_row *row)
{
    char *root = make_folder();
    uint32_t seed = 7;
    for (int i = 0; i < 3; i++) {
        const jpeg_spec spec = {8, 8, 1, 1, 1, 30, 0, 0, 0, 0};
        size_t size = 0;
        uint8_t *bytes = make_jpeg(&spec, &seed, &size);
        char name[32];
        snprintf(name, sizeof name, "images/%c/%d.jpg", "abb"[i], i);
        write_file(root, name, bytes, size);
        free(bytes);
    }
    write_idx(root);
    if (!strcmp(row->make, "PACK")) {
        write_pack(root);
        return root;
    }
    run_in(root, row->make);
    return root;
}

static bool is_error(lt_status st)
{
    return (st == LT_E_FORMAT || st == LT_E_IO) && *lt_error_message();
}

/* Reads the data set: every sample must be an error or equal to that of whole. Returns the number of samples read, or -1 if
 * the data set cannot be opened. */
static int read_set(const char *path, const lt_dataset *whole)
{
    lt_dataset *d = NULL;
    lt_record got = {0}, want = {0};
    int good = 0;
    lt_status st = lt_dataset_open(&d, path, true);
    if (st) {
        assert_true(is_error(st));
        return -1;
    }
    assert_in_range(lt_dataset_count(d), 1, lt_dataset_count(whole));
    for (int64_t i = 0; i < lt_dataset_count(d); i++) {
        st = d->ops->read(d, i, &got);
        assert_true(!st || is_error(st));
        if (st)
            continue;
        assert_ok(whole->ops->read(whole, i, &want));
        assert_int_equal(got.size, want.size);
        assert_memory_equal(got.bytes, want.bytes, got.size);
        good++;
    }
    lt_free(got.bytes);
    lt_free(want.bytes);
    lt_dataset_free(&d);
    return good;
}

/* Returns true if truncation to n bytes is tested: always near the boundaries of tar blocks, otherwise every 11th, as thousands
 * of sizes, each of which writes an index, take half a minute on a busy disk. */
static bool is_tried(size_t n, size_t size)
{
    enum { BLOCK = 512, STRIDE = 11 };
    const size_t in_block = n % BLOCK;
    return test_full() || size < BLOCK || in_block < 2 || in_block == BLOCK - 1 || n % STRIDE == 0;
}

static void check_set(void **state)
{
    const set_row *row = *state;
    char *root = make_set(row), *reference = make_set(row);
    char *spec = below(root, row->spec), *file = below(root, row->file);
    char *other = below(reference, row->spec);
    lt_dataset *whole = NULL;
    lt_record r = {0};
    assert_ok(lt_dataset_open(&whole, other, true));
    assert_int_equal(read_set(spec, whole), 3); /* writes the index of a tar file */
    assert_ok(lt_file_read(file, &r));
    for (size_t n = r.size; n-- > 0;) {
        if (!is_tried(n, r.size))
            continue;
        FILE *f = fopen(file, "wb");
        assert_true(f && fwrite(r.bytes, 1, n, f) == n && !fclose(f));
        int good = read_set(spec, whole);
        if (row->rebuilt ? good != 3 : n < r.size / 4 && good > 0)
            fail_msg("%zu of %zu bytes: %d samples", n, r.size, good);
    }
    lt_free(r.bytes);
    lt_dataset_free(&whole);
    free(spec);
    free(file);
    free(other);
    remove_folder(root);
    remove_folder(reference);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + COUNT_OF(sets)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[n++] = row_test(rows[i].name, check_image, &rows[i]);
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        tests[n++] = row_test(sets[i].name, check_set, &sets[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
