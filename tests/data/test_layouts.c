/* One untidy tree read as an image folder, a tar file, a pack and a data service gives the same classes, images and
 * log line on skipped files. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "images.h"
#include "near.h"

#include "lather/data_service.h"
#include "lather/ext/dataset.h"
#include "lather/log.h"
#include "lather/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, TEXT = 1024 };

/* Images with their classes, then files to skip. */
static const struct {
    const char *path;
    int label; /* -1: skipped */
} tree[] = {
    {"cat/1.jpg", 0},
    {"cat/edited.v2.JPG", 0},
    {"cat/edited.v3.JPG", 0},
    {"cat/1.png", 0}, /* next to 1.jpg */
    {"cat/day1/2.PNG", 0},
    {"cat/day.2/track 2.0 (1).jpeg", 0},
    {"dog/a.b.c.jpg", 1},
    {"dog/a.b.d.jpg", 1},
    {"owl/night.2.0/deep/7.bmp", 2},
    {"cat/.hidden.jpg", -1},
    {"cat/._1.jpg", -1},
    {".git/1.jpg", -1},
    {"__MACOSX/cat/1.jpg", -1},
    {"cat/IMG.HEIC", -1},
    {"dog/notes.txt", -1},
    {"dog/day1/noext", -1},
    {"README.md", -1},
    {"logo.jpg", -1},
};
static const char left_out[] =
    "5 files left out: .HEIC 1, .md 1, .txt 1, images outside class folders 1, none 1";

static void write_jpeg(const char *root, const char *name, uint32_t *seed)
{
    char path[128];
    size_t size;
    uint8_t *jpeg = make_jpeg(
        &(jpeg_spec){.width = 8, .height = 8, .components = 3, .h = 1, .v = 1, .quality = 90}, seed,
        &size);
    snprintf(path, sizeof path, "train/%s", name);
    write_file(root, path, jpeg, size);
    free(jpeg);
}

static char *make_tree(void)
{
    char *root = make_folder();
    uint32_t seed = 7;
    for (size_t i = 0; i < COUNT_OF(tree); i++)
        write_jpeg(root, tree[i].path, &seed);
    return root;
}

static void save_line(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level, (void)area;
    snprintf(context, TEXT, "%s", text);
}

/* line: receives the last log line; may be NULL. */
static lt_dataset *open_data(const char *spec, char *line)
{
    lt_dataset *d = NULL;
    if (line)
        lt_log_set(save_line, line);
    lt_status st = lt_dataset_open(&d, spec, true);
    lt_log_set(NULL, NULL);
    assert_ok(st);
    return d;
}

typedef struct item {
    int32_t label;
    uint32_t crc; /* CRC-32C of the file */
} item;

static int compare_items(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->label != y->label ? x->label - y->label : (x->crc > y->crc) - (x->crc < y->crc);
}

/* Lists labels and contents of all samples, sorted; returns their number. */
static int list_items(const lt_dataset *d, item out[MOST])
{
    lt_record r = {0};
    assert_in_range(lt_dataset_count(d), 1, MOST);
    for (int i = 0; i < lt_dataset_count(d); i++) {
        assert_ok(d->ops->read(d, i, &r));
        out[i] = (item){r.label, lt_crc32c(0, r.bytes, r.size)};
    }
    lt_free(r.bytes);
    qsort(out, (size_t)lt_dataset_count(d), sizeof *out, compare_items);
    return (int)lt_dataset_count(d);
}

static void check_data(const lt_dataset *d, const item *want, int count)
{
    item got[MOST];
    assert_int_equal(lt_dataset_classes(d), 3);
    assert_string_equal(lt_dataset_class_name(d, 0), "cat");
    assert_string_equal(lt_dataset_class_name(d, 1), "dog");
    assert_string_equal(lt_dataset_class_name(d, 2), "owl");
    assert_int_equal(list_items(d, got), count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(got[i].label, want[i].label);
        assert_int_equal(got[i].crc, want[i].crc);
    }
}

static void check_service(const lt_dataset *source, const item *want, int count)
{
    lt_data_service *service = NULL;
    const lt_data_service_config c = {
        .address = "tcp://127.0.0.1:0", .threads = 1, .train = source};
    char spec[256];
    assert_ok(lt_data_service_open(&service, &c));
    snprintf(spec, sizeof spec, "service:%s", lt_data_service_address(service));
    lt_dataset *d = open_data(spec, NULL);
    check_data(d, want, count);
    assert_true(d->unsplit == source->unsplit);
    lt_dataset_free(&d);
    lt_data_service_close(&service);
}

static void check_pack(const lt_dataset *source, const char *folder, const item *want, int count)
{
    assert_ok(lt_pack_write(folder, source, &(lt_pack_config){.mode = LT_PACK_ORIGINAL}, NULL, NULL,
                            NULL));
    lt_dataset *d = open_data(folder, NULL);
    check_data(d, want, count);
    assert_true(d->unsplit);
    lt_dataset_free(&d);
}

static void check_same(void **state)
{
    (void)state;
    /* Tar files with and without the root folder's name; the second run reads the cached index. */
    static const char *const tars[] = {"tar -cf t.tar train", "true", "tar -C train -cf t.tar .",
                                       "cd train && tar -cf ../t.tar *"};
    char *root = make_tree(), *folder = below(root, "train"), *tar = below(root, "t.tar"),
         *pack = below(root, "pack"), line[TEXT] = "";
    item want[MOST];
    lt_dataset *d = open_data(folder, line);
    assert_non_null(strstr(line, left_out));
    assert_true(d->unsplit); /* the same samples for evaluation */
    int count = list_items(d, want), labels[3] = {0};
    for (int i = 0; i < count; i++)
        labels[want[i].label]++;
    assert_int_equal(labels[0], 6);
    assert_int_equal(labels[1], 2);
    assert_int_equal(labels[2], 1);
    check_data(d, want, count);
    check_service(d, want, count);
    check_pack(d, pack, want, count);
    lt_dataset_free(&d);
    for (size_t i = 0; i < COUNT_OF(tars); i++) {
        run_in(root, tars[i]);
        lt_dataset *other = open_data(folder, line); /* an equal line is not repeated */
        lt_dataset_free(&other);
        *line = 0;
        d = open_data(tar, line);
        check_data(d, want, count);
        assert_true(d->unsplit);
        assert_string_equal(strstr(line, "5 files"), left_out);
        lt_dataset_free(&d);
    }
    d = open_data(tar, NULL);
    check_service(d, want, count);
    run_in(root, "rm -r pack");
    check_pack(d, pack, want, count);
    lt_dataset_free(&d);
    free(pack);
    free(tar);
    free(folder);
    remove_folder(root);
}

/* Lists the samples of both parts in parts[train]; returns the number of those to evaluate. */
static int split_items(const char *spec, double fraction, uint64_t seed, item parts[2][MOST])
{
    int count[2], classes[3] = {0};
    for (int train = 0; train < 2; train++) {
        lt_dataset *d = open_data(spec, NULL);
        assert_ok(lt_dataset_split(&d, fraction, seed, train));
        assert_false(d->unsplit);
        assert_string_equal(lt_dataset_class_name(d, 2), "owl");
        count[train] = list_items(d, parts[train]);
        for (int i = 0; i < count[train]; i++) {
            int label;
            assert_ok(lt_dataset_label(d, i, &label));
            classes[label] += train ? 0 : 1;
        }
        lt_dataset_free(&d);
    }
    assert_int_equal(count[0] + count[1], 12);
    assert_int_equal(classes[0], 3); /* half of 6, 2 and 4 */
    assert_int_equal(classes[1], 1);
    assert_int_equal(classes[2], 2);
    return count[0];
}

static bool same_items(const item *a, const item *b, int count)
{
    return !memcmp(a, b, (size_t)count * sizeof *a);
}

static char *make_tree_to_split(void)
{
    static const char *const more[] = {"owl/day0/1.jpg", "owl/day1/1.jpg", "owl/day2/1.jpg"};
    char *root = make_tree();
    uint32_t seed = 8;
    for (size_t i = 0; i < COUNT_OF(more); i++)
        write_jpeg(root, more[i], &seed);
    return root;
}

/* The held-back samples do not depend on the layout, nor on the folder's name; another seed chooses others. */
static void check_split(void **state)
{
    (void)state;
    char *root = make_tree_to_split(), *folder = below(root, "train"),
         *moved = below(root, "m/train"), *tar = below(root, "t.tar"), *pack = below(root, "pack");
    item want[2][MOST], got[2][MOST];
    lt_dataset *d = open_data(folder, NULL);
    assert_ok(
        lt_pack_write(pack, d, &(lt_pack_config){.mode = LT_PACK_ORIGINAL}, NULL, NULL, NULL));
    lt_dataset_free(&d);
    run_in(root, "tar -C train -cf t.tar . && mkdir m && cp -r train m");
    const int held = split_items(folder, 0.5, 5, want);
    const char *const others[] = {moved, tar, pack};
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        assert_int_equal(split_items(others[i], 0.5, 5, got), held);
        assert_true(same_items(want[0], got[0], held) && same_items(want[1], got[1], 12 - held));
    }
    split_items(folder, 0.5, 6, got);
    assert_false(same_items(want[0], got[0], held)); /* the control */
    for (int i = 0; i < held; i++)
        for (int k = 0; k < 12 - held; k++)
            assert_int_not_equal(want[0][i].crc, want[1][k].crc);
    free(pack);
    free(tar);
    free(moved);
    free(folder);
    remove_folder(root);
}

static void check_split_errors(void **state)
{
    (void)state;
    static const struct {
        double fraction;
        const char *want;
    } rows[] = {
        {0, "got 0, want a fraction between 0 and 1"},
        {1, "got 1, want"},
        {0.2,
         "0.2 of class 'dog' with its 2 samples leaves 2 to train on and 0 to evaluate; a fraction from 0.25"},
        {0.8, "0.8 of class 'dog' with its 2 samples leaves 0 to train on and 2 to evaluate"},
    };
    char *root = make_tree_to_split(), *folder = below(root, "train");
    lt_dataset *d = open_data(folder, NULL), *same = d;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_fails(lt_dataset_split(&d, rows[i].fraction, 0, true), LT_E_ARG, rows[i].want);
        assert_ptr_equal(d, same);
    }
    assert_ok(lt_dataset_split(&d, 0.25, 0, true));
    lt_dataset_free(&d);
    run_in(root, "rm train/dog/a.b.c.jpg");
    d = open_data(folder, NULL);
    assert_fails(lt_dataset_split(&d, 0.5, 0, true), LT_E_ARG, "each class needs at least two");
    const char *what = "tokens";
    for (int i = 0; i < 2; i++, what = "a data set with other class numbers") {
        d->tokens = !i;
        d->label_map = i ? (int32_t[]){0, 1} : NULL;
        lt_status st = lt_dataset_split(&d, 0.5, 0, true);
        d->label_map = NULL;
        assert_failed(st, LT_E_UNSUPPORTED, what);
    }
    lt_dataset_free(&d);
    free(folder);
    remove_folder(root);
}

/* Samples without names are chosen by their indices, which the fingerprint tells apart. */
static void check_split_without_names(void **state)
{
    (void)state;
    static const char spec[] = "synthetic:40:4:4";
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        lt_dataset *d = open_data(spec, NULL);
        int count[4] = {0}, label;
        assert_ok(lt_dataset_split(&d, 0.3, i / 2, false));
        assert_int_equal(lt_dataset_count(d), 12);
        for (int k = 0; k < 12; k++) {
            assert_ok(lt_dataset_label(d, k, &label));
            count[label]++;
        }
        for (int k = 0; k < 4; k++)
            assert_int_equal(count[k], 3);
        hash[i] = lt_dataset_fingerprint(d);
        lt_dataset_free(&d);
    }
    assert_true(hash[0] == hash[1]);
    assert_true(hash[0] != hash[2]);
}

/* A class folder without files and one without images are left out, with a warning that names both. */
static void check_empty(void **state)
{
    (void)state;
    static const char *const words[] = {" file in 2 class folders: ", "emu", "fox",
                                        "; left out, 3 classes remain"};
    char *root = make_tree(), *folder = below(root, "train"), *tar = below(root, "t.tar"),
         line[TEXT];
    item want[MOST];
    lt_dataset *d = open_data(folder, NULL);
    const int count = list_items(d, want);
    lt_dataset_free(&d);
    run_in(
        root,
        "mkdir train/emu train/fox && rm train/cat/IMG.HEIC train/dog/notes.txt && "
        "rm train/dog/day1/noext train/README.md train/logo.jpg && tar -cf t.tar --sort=name train");
    const char *const specs[] = {folder, tar};
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        *line = 0;
        d = open_data(specs[i], line);
        check_data(d, want, count);
        for (size_t k = 0; k < COUNT_OF(words); k++)
            if (!strstr(line, words[k]))
                fail_msg("'%s' lacks '%s'", line, words[k]);
        lt_dataset_free(&d);
    }
    run_in(root, "rm -r train/cat/* train/dog/* train/owl/*");
    assert_fails(lt_dataset_open(&d, folder, true), LT_E_FORMAT, "in 5 class folders: ");
    free(tar);
    free(folder);
    remove_folder(root);
}

static void expect_part(const char *spec, bool train, bool unsplit, const char *sample)
{
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_open(&d, spec, train));
    assert_int_equal(lt_dataset_count(d), 1);
    const char *name = strstr(lt_dataset_sample_name(d, 0), sample);
    if (!name || d->unsplit != unsplit)
        fail_msg("%s, unsplit %d, want %s, %d", lt_dataset_sample_name(d, 0), d->unsplit, sample,
                 unsplit);
    lt_dataset_free(&d);
}

/* Folders and tar files next to train, by their usual names. */
static void check_parts(void **state)
{
    (void)state;
    static const struct {
        const char *make, *val; /* shell command, name of the sample to evaluate */
    } rows[] = {
        {"true", NULL},
        {"mkdir test && cp train/c/train.jpg test", NULL}, /* images without labels */
        {"mkdir -p test/c && cp train/c/train.jpg test/c/test.jpg", "c/test.jpg"},
        {"mkdir -p valid/c && cp train/c/train.jpg valid/c/valid.jpg", "c/valid.jpg"},
        {"mkdir -p val/c && cp train/c/train.jpg val/c/val.jpg", "c/val.jpg"},
        {"rm -r test valid val && tar -cf my-train.tar train && rm -r train", NULL},
        {"cp my-train.tar my-train-val.tar && rm my-train.tar", NULL}, /* not both parts */
        {"mkdir -p x/c && touch x/c/1.jpg && tar -cf my-test.tar x && rm -r x", "c/1.jpg"},
    };
    char *root = make_folder(), *data = below(root, "d");
    write_file(root, "d/train/c/train.jpg", "x", 1);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        run_in(data, rows[i].make);
        expect_part(data, true, !rows[i].val, "c/train.jpg");
        expect_part(data, false, !rows[i].val, rows[i].val ? rows[i].val : "c/train.jpg");
    }
    free(data);
    remove_folder(root);
}

/* Tar files of one data set have a common root; a class may be in one of them only. */
static void check_shards(void **state)
{
    (void)state;
    char *root = make_tree(), line[TEXT] = "";
    item want[MOST];
    run_in(root, "mkdir s && mv train tree && tar -cf s/train-0.tar tree/cat tree/logo.jpg && "
                 "tar -cf s/train-1.tar tree/dog tree/owl tree/README.md");
    char *folder = below(root, "tree"), *shards = below(root, "s");
    lt_dataset *d = open_data(folder, NULL);
    int count = list_items(d, want);
    lt_dataset_free(&d);
    d = open_data(shards, line);
    check_data(d, want, count);
    assert_true(d->unsplit); /* no tar file to evaluate */
    assert_non_null(strstr(line, "train-1.tar: 3 files left out: .md 1, .txt 1, none 1"));
    lt_dataset_free(&d);
    run_in(root, "mkdir a && cp -r tree a/train && cp -r tree a/val && tar -cf whole.tar a");
    char *whole = below(root, "whole.tar");
    assert_fails(lt_dataset_open(&d, whole, true), LT_E_FORMAT, "has folders train and val");
    free(whole);
    free(folder);
    free(shards);
    remove_folder(root);
}

/* WebDataset's layout: NAME.cls is the label of NAME.jpg also if NAME has dots; other images are skipped and counted. */
static void check_labels(void **state)
{
    (void)state;
    char *root = make_folder(), *tar = below(root, "x.tar"), line[TEXT] = "";
    lt_record r = {0};
    write_file(root, "c/track 2.0 (1).png", "one", 3);
    write_file(root, "c/track 2.0 (1).cls", "1", 1);
    write_file(root, "c/track 2.0 (2).png", "two", 3);
    write_file(root, "c/track 2.0 (2).cls", "0", 1);
    write_file(root, "c/3.png", "three", 5);
    write_file(root, "c/3.left.png", "left", 4);
    write_file(root, "c/3.cls", "2", 1);
    run_in(root, "tar -C c -cf x.tar --sort=name .");
    lt_dataset *d = open_data(tar, line);
    assert_non_null(strstr(line, ": 1 files left out: images without a .cls 1"));
    assert_int_equal(lt_dataset_count(d), 3);
    static const int labels[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        assert_ok(d->ops->read(d, i, &r));
        assert_int_equal(r.label, labels[i]);
    }
    lt_free(r.bytes);
    lt_dataset_free(&d);
    run_in(root, "rm c/track* c/3.png && tar -C c -cf x.tar .");
    assert_fails(lt_dataset_open(&d, tar, true), LT_E_FORMAT,
                 "none of 1 images has a .cls file: 3.left.png needs 3.left.cls");
    free(tar);
    remove_folder(root);
}

/* "valid" next to "train" is the validation data; among classes it is a class. */
static void check_valid(void **state)
{
    (void)state;
    char *root = make_folder(), *data = below(root, "d"), *classes = below(root, "d/train");
    for (int i = 0; i < 4; i++) {
        char name[TEXT];
        snprintf(name, sizeof name, "d/%s/%s/1.png", i / 2 ? "valid" : "train",
                 i % 2 ? "valid" : "invalid");
        write_file(root, name, "x", 1);
    }
    for (int train = 0; train < 2; train++) {
        lt_dataset *d = NULL;
        assert_ok(lt_dataset_open(&d, data, train));
        assert_false(d->unsplit);
        assert_int_equal(lt_dataset_classes(d), 2);
        lt_dataset_free(&d);
        assert_ok(lt_dataset_open(&d, classes, train));
        assert_true(d->unsplit);
        assert_string_equal(lt_dataset_class_name(d, 1), "valid");
        lt_dataset_free(&d);
    }
    free(classes);
    free(data);
    remove_folder(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"a class may be named valid", check_valid, 0, 0, 0},
        {"folder, tar, pack and service have the same classes and images", check_same, 0, 0, 0},
        {"a split is the same for folder, tar and pack", check_split, 0, 0, 0},
        {"a split that leaves a class without samples is named", check_split_errors, 0, 0, 0},
        {"samples without names are split by index", check_split_without_names, 0, 0, 0},
        {"empty class folders are named and left out", check_empty, 0, 0, 0},
        {"the validation part has one of the usual names, or is absent", check_parts, 0, 0, 0},
        {"tar files have a common root", check_shards, 0, 0, 0},
        {"labels of names with dots", check_labels, 0, 0, 0},
    };
    return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}
