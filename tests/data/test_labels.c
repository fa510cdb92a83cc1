/* Flat folders with a file of labels, and class sets that must agree. */

#include "base/alloc.h"
#include "images.h"
#include "near.h"

#include "lather/ext/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Images a.jpg, b.jpg, c.png, "d e.jpg" have one-character names; ant, bee, cat are the classes. */
static const char *const classes[] = {"ant", "bee", "cat"};

typedef struct row {
    const char *name, *labels, *map;
    bool named;          /* the classes have names */
    const char *order;   /* first characters of the samples, in their order; NULL: refused */
    const char *numbers; /* their labels */
    const char *message;
} row;

static row rows[] = {
    {"a file and a class name", "a.jpg cat\nb.jpg ant\nc.png bee\nd e.jpg ant\n", NULL, true,
     "bdca", "0012", NULL},
    {"a file and a number from 0 on, in any order, with folders, commas, returns, blank lines",
     "\r\n./val/d e.jpg,1\r\nb.jpg\t1\r\n\r\na.jpg , 0 \r\nc.png 2", NULL, true, "abdc", "0112",
     NULL},
    {"class names in the order of files", "bee\ncat\nant\nbee", NULL, true, "cadb", "0112", NULL},
    {"numbers from 0 on in the order of files", "2\n0\n0\n1\n", NULL, true, "bcda", "0012", NULL},
    {"numbers of classes without names", "a.jpg 4\nb.jpg 0\nc.png 0\nd e.jpg 2\n", NULL, false,
     "bcda", "0024", NULL},
    {"the devkit's numbers, whose order is another", "3\n1\n1\n2\n",
     "cat 1 felis\nant 2 formica\nbee 3 apis\n", true, "dabc", "0122", NULL},
    {"the devkit's numbers without their names", "3\n1\n1\n2\n", NULL, true, NULL, NULL,
     "copy the devkit's map_clsloc.txt"},
    {"the devkit's numbers with a number that is not there", "3\n1\n1\n4\n",
     "cat 1 felis\nant 2 formica\nbee 3 apis\n", true, NULL, NULL,
     "labels:4: '4' is not one of the"},
    {"a map that is none", "3\n1\n1\n2\n", "cat\n", true, NULL, NULL,
     "map_clsloc.txt:1: want NAME"},
    {"an empty map", "3\n1\n1\n2\n", "\n", true, NULL, NULL, "no class in this file"},
    {"a class name that is none", "a.jpg cat\nb.jpg dog\nc.png bee\nd e.jpg ant\n", NULL, true,
     NULL, NULL, "labels:2: 'dog' is not one of the 3 classes"},
    {"a number beyond the classes", "2\n0\n0\n3\n", NULL, true, NULL, NULL, "labels:4: '3'"},
    {"a class name where there are no names", "cat\n0\n0\n1\n", NULL, false, NULL, NULL,
     "the classes have no names"},
    {"too few labels", "2\n0\n0\n", NULL, true, NULL, NULL, "3 labels, "},
    {"an image without a label", "a.jpg cat\nb.jpg ant\nc.png bee\n", NULL, true, NULL, NULL,
     "no label for "},
    {"a label without an image", "a.jpg 0\nx.jpg 0\nc.png 0\nd e.jpg 1\n", NULL, true, NULL, NULL,
     "labels:2: "},
    {"an image twice", "a.jpg 0\nval/a.jpg 0\nc.png 0\nd e.jpg 1\n", NULL, true, NULL, NULL,
     "labels:2: second label for 'a.jpg'"},
    {"one word here and two there", "a.jpg 0\n1\n", NULL, true, NULL, NULL,
     "labels:2: some lines have FILE LABEL"},
    {"an empty file", "\n\n", NULL, true, NULL, NULL, "no label in this file"},
};

static char *make_flat(const row *r)
{
    char *root = make_folder();
    write_file(root, "val/a.jpg", "a", 1);
    write_file(root, "val/b.jpg", "b", 1);
    write_file(root, "val/c.png", "c", 1);
    write_file(root, "val/d e.jpg", "d", 1);
    write_file(root, "val/.hidden.jpg", "x", 1);
    write_file(root, "val/readme.txt", "x", 1);
    write_file(root, "labels", r->labels, strlen(r->labels));
    if (r->map)
        write_file(root, "map_clsloc.txt", r->map, strlen(r->map));
    return root;
}

static lt_status open_flat(const char *root, const row *r, lt_dataset **out)
{
    char folder[512], labels[512];
    snprintf(folder, sizeof folder, "%s/val", root);
    snprintf(labels, sizeof labels, "%s/labels", root);
    return lt_dataset_labelled(out, folder, labels, r->named ? classes : NULL,
                               r->named ? (int)COUNT_OF(classes) : 0);
}

static void check_row(void **state)
{
    const row *r = *state;
    char *root = make_flat(r);
    lt_dataset *d = NULL;
    lt_status st = open_flat(root, r, &d);
    if (r->order) {
        assert_ok(st);
        lt_record record = {0};
        assert_int_equal(lt_dataset_count(d), 4);
        for (int64_t i = 0; i < 4; i++) {
            assert_ok(d->ops->read(d, i, &record));
            assert_int_equal(record.bytes[0], r->order[i]);
            assert_int_equal(record.label, r->numbers[i] - '0');
            const char *name = strrchr(lt_dataset_sample_name(d, i), '/');
            assert_int_equal(name[1], r->order[i]);
        }
        assert_int_equal(lt_dataset_classes(d), r->named ? 3 : r->numbers[3] - '0' + 1);
        assert_true(!lt_dataset_class_name(d, 2) == !r->named);
        lt_free(record.bytes);
        lt_dataset_free(&d);
    } else {
        assert_status(st, LT_E_FORMAT);
        if (!strstr(lt_error_message(), r->message))
            fail_msg("the message is '%s', without '%s'", lt_error_message(), r->message);
        assert_null(d);
    }
    remove_folder(root);
}

static void check_missing(void **state)
{
    (void)state;
    char *root = make_flat(&rows[0]), path[512];
    lt_dataset *d = NULL;
    assert_status(lt_dataset_labelled(&d, "/no/such", "/no/labels", NULL, 0), LT_E_IO);
    snprintf(path, sizeof path, "%s/val", root);
    assert_status(lt_dataset_labelled(&d, path, "/no/labels", NULL, 0), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "/no/labels"));
    assert_status(lt_dataset_labelled(&d, root, path, NULL, 0), LT_E_FORMAT); /* no image there */
    assert_status(lt_dataset_labelled(&d, path, path, NULL, -1), LT_E_ARG);
    assert_status(lt_dataset_open(&d, path, false), LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(), "its images need a label file"));
    assert_null(d);
    remove_folder(root);
}

/* The n-th allocation fails, for every n until none does. */
static void check_memory(void **state)
{
    (void)state;
    char *root = make_flat(&rows[5]);
    int64_t n = 1;
    for (; n < 1000; n++) {
        lt_dataset *d = NULL;
        lt_alloc_fail_at(n);
        lt_status st = open_flat(root, &rows[5], &d);
        lt_alloc_fail_at(0);
        if (!st) {
            lt_dataset_free(&d);
            break;
        }
        assert_int_equal(st, LT_E_NOMEM);
        assert_null(d);
    }
    assert_in_range(n, 15, 999);
    remove_folder(root);
}

/* --- Classes of two data sets --- */

typedef struct set {
    lt_dataset base;
    const char *const *name;
} set;

static lt_status no_read(const lt_dataset *self, int64_t index, lt_record *record)
{
    (void)self;
    (void)index;
    (void)record;
    return LT_END;
}

static const char *name_of(const lt_dataset *self, int label)
{
    const set *s = (const set *)self;
    return s->name ? s->name[label] : NULL;
}

static lt_status compare(const char *const *a, int a_count, const char *const *b, int b_count)
{
    static const lt_dataset_ops ops = {
        .name = "set", .bytes = sizeof(set), .read = no_read, .class_name = name_of};
    const set train = {.base = {.ops = &ops, .classes = a_count}, .name = a};
    const set val = {.base = {.ops = &ops, .classes = b_count}, .name = b};
    return lt_dataset_same_classes(&train.base, &val.base);
}

static void check_classes(void **state)
{
    (void)state;
    static const char *const many[] = {"a", "ant", "b", "bee", "c", "cat", "d", "e", "f", "g"};
    static const char *const turned[] = {"bee", "ant", "cat"}, *const hole[] = {"ant", NULL, "cat"};
    assert_ok(compare(classes, 3, classes, 3));
    assert_ok(compare(NULL, 3, classes, 3));
    assert_ok(compare(hole, 3, hole, 3));
    assert_ok(compare(NULL, 3, NULL, 2)); /* numbers alone: val lacks the last class */
    static const struct {
        const char *const *train;
        int train_count;
        const char *const *val;
        int val_count;
        const char *message;
    } wrong[] = {
        {classes, 3, classes, 2, "classes only in the training data: cat"},
        {classes, 2, classes, 3, "classes only in the validation data: cat"},
        {many, 10, classes, 3, "classes only in the training data: a, b, c, d, e and 2 more"},
        {classes, 3, many, 4, "training data: cat; only in the validation data: a, b"},
        {classes, 3, turned, 3, "order their classes differently"},
        {classes, 3, hole, 3, "training data: bee; only in the validation data: (no name)"},
        {NULL, 3, classes, 2, "training data has 3 classes, validation data has 2"},
        {NULL, 2, NULL, 3, "training data has 2 classes, validation data has 3"},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_status(
            compare(wrong[i].train, wrong[i].train_count, wrong[i].val, wrong[i].val_count),
            LT_E_FORMAT);
        assert_string_not_equal(lt_error_message(), "");
        if (!strstr(lt_error_message(), wrong[i].message))
            fail_msg("the message is '%s', without '%s'", lt_error_message(), wrong[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"what is missing is named", check_missing, 0, 0, 0},
        {"every failed allocation is reported, and nothing is left", check_memory, 0, 0, 0},
        {"class sets that differ are named", check_classes, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(more) + COUNT_OF(rows)];
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[COUNT_OF(more) + i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, &rows[i]};
    return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}
