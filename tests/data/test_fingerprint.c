/* Fingerprints of data sets: equal for copies of the same files, different for other files. */

#include "data/pack/pack.h"
#include "images.h"
#include "near.h"

#include "lather/data.h"
#include "lather/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t fingerprint(const char *root, const char *name, int64_t *bytes)
{
    char *path = below(root, name);
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, path, true));
    const uint64_t hash = lt_dataset_fingerprint(d);
    *bytes = lt_dataset_bytes(d);
    lt_dataset_free(&d);
    free(path);
    return hash;
}

typedef struct row {
    const char *name;
    const char *make; /* shell commands that make `name` from data/, repeated after the change */
    const char *change;
    bool is_same;
} row;

#define TAR  "rm -f x.tar* && tar --sort=name -cf x.tar -C data ."
#define MORE "cp data/class0/00.jpg data/class0/zz.jpg"

static row rows[] = {
    {"data", ":", "mv data other && cp -r other data", true},
    {"data", ":", MORE, false},
    {"data", ":", "mv data/class0/00.jpg data/class0/0a.jpg", false},
    {"data", ":", "mv data/class0 data/renamed", false},
    {"x.tar", TAR, "touch data/class0/00.jpg", true},
    {"x.tar", TAR, MORE, false},
    {"x.tar", TAR, "mv data/class0/00.jpg data/class0/0a.jpg", false},
    {"x.tar", TAR, "cp data/class0/01.jpg data/class0/00.jpg", false},
};

static void test_files(void **state)
{
    const row *r = *state;
    char *images = make_image_folder(), *root = make_folder(), *line = NULL;
    assert_true(asprintf(&line, "mv '%s' data && %s", images, r->make) > 0);
    run_in(root, line);
    int64_t bytes, bytes_before;
    const uint64_t before = fingerprint(root, r->name, &bytes_before);
    assert_int_not_equal(before, 0);
    run_in(root, r->change);
    run_in(root, r->make);
    const bool same_hash = fingerprint(root, r->name, &bytes) == before;
    assert_int_equal(same_hash && bytes == bytes_before, r->is_same);
    free(line);
    free(images);
    remove_folder(root);
}

static uint64_t pack_and_hash(const char *root, const char *name, int64_t *bytes)
{
    char *path = below(root, name), *data = below(root, "data");
    const lt_pack_config config = {
        .mode = LT_PACK_ORIGINAL, .quality = 90, .shard_samples = 7, .threads = 1};
    lt_pack_report report;
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, data, true));
    assert_ok(lt_pack_write(path, d, &config, NULL, NULL, &report));
    lt_dataset_free(&d);
    free(data);
    free(path);
    return fingerprint(root, name, bytes);
}

static void test_packs(void **state)
{
    (void)state;
    char *images = make_image_folder(), *root = make_folder(), *line = NULL;
    assert_true(asprintf(&line, "mv '%s' data && " TAR, images) > 0);
    run_in(root, line);
    int64_t unknown, of_tar, of_pack;
    const uint64_t before = fingerprint(root, "data", &unknown);
    assert_int_equal(fingerprint(root, "x.tar", &of_tar), before);
    assert_int_equal(pack_and_hash(root, "a", &of_pack), before);
    assert_int_equal(unknown, 0);
    assert_true(of_tar > 0);
    assert_int_equal(of_pack, of_tar);
    run_in(root, "cp data/class0/01.jpg data/class0/00.jpg"); /* same names and number */
    assert_int_equal(pack_and_hash(root, "b", &of_pack), before);
    assert_int_not_equal(of_pack, of_tar);
    run_in(root, "mv data/class0/01.jpg data/class0/0a.jpg"); /* same number */
    assert_int_not_equal(pack_and_hash(root, "c", &of_pack), before);
    free(line);
    free(images);
    remove_folder(root);
}

static void test_others(void **state)
{
    (void)state;
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        lt_dataset *d = NULL;
        char spec[] = "synthetic:30:8:3";
        spec[10] = (char)('3' + i / 2);
        assert_ok(lt_dataset_open(&d, spec, true));
        hash[i] = lt_dataset_fingerprint(d);
        lt_dataset_free(&d);
    }
    assert_int_equal(hash[0], hash[1]);
    assert_int_not_equal(hash[0], hash[2]);
}

static uint64_t text_fingerprint(const char *root, const char *name, const char *text)
{
    char *path = below(root, name), *line = NULL;
    const lt_tokens_config config = {.length = 64, .tokenizer = "byte"};
    lt_dataset *d = NULL;
    assert_true(asprintf(&line, "printf '%s' > %s", text, name) > 0);
    run_in(root, line);
    assert_ok(lt_dataset_tokens(&d, path, &config, true));
    assert_int_equal(lt_dataset_count(d), 1);
    const uint64_t hash = lt_dataset_fingerprint(d);
    lt_dataset_free(&d);
    free(line);
    free(path);
    return hash;
}

/* The number of windows is the same, the tokens differ. */
static void test_tokens(void **state)
{
    (void)state;
    char *root = make_folder();
    const uint64_t before = text_fingerprint(root, "x.txt", "abcdefghijklmnopqrs");
    assert_int_equal(text_fingerprint(root, "y.txt", "abcdefghijklmnopqrs"), before);
    assert_int_not_equal(text_fingerprint(root, "x.txt", "abcdefghijklmnopqrstuvwxyz"), before);
    assert_int_not_equal(text_fingerprint(root, "x.txt", "aBcdefghijklmnopqrs"), before);
    remove_folder(root);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 3] = {
        {"a folder, its tar file and its pack have the same", test_packs, NULL, NULL, NULL},
        {"a text's depends on its tokens, not its name", test_tokens, NULL, NULL, NULL},
        {"without names it depends on the count", test_others, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[3 + i] = row_test(rows[i].change, test_files, &rows[i]);
    return cmocka_run_group_tests_name("fingerprint", tests, NULL, NULL);
}
