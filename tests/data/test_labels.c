/* Flat folders with a file of labels, and comparison of class sets. */

#include "base/alloc.h"
#include "images.h"
#include "near.h"

#include "lather/ext/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The images a.jpg, b.jpg, c.png and "d e.jpg" contain the initials of their names. */
static const char *const classes[] = {"ant", "bee", "cat"};

typedef struct row {
    const char *name, *labels, *map;
    bool named;          /* the classes have names */
    const char *order;   /* contents of the samples, in order; NULL: an error */
    const char *numbers; /* labels of the samples */
    const char *message; /* part of the error */
} row;

static row rows[] = {
    {"a file and a class name", "a.jpg cat\nb.jpg ant\nc.png bee\nd e.jpg ant\n", NULL, true,
     "bdca", "0012", NULL},
    {"a file and a number from 0, in any order, with folders, commas, returns, blank lines",
     "\r\n./val/d e.jpg,1\r\nb.jpg\t1\r\n\r\na.jpg , 0 \r\nc.png 2", NULL, true, "abdc", "0112",
     NULL},
    {"class names in the order of files", "bee\ncat\nant\nbee", NULL, true, "cadb", "0112", NULL},
    {"numbers from 0 in the order of files", "2\n0\n0\n1\n", NULL, true, "bcda", "0012", NULL},
    {"numbers of classes without names", "a.jpg 4\nb.jpg 0\nc.png 0\nd e.jpg 2\n", NULL, false,
     "bcda", "0024", NULL},
    {"the devkit's numbers in their own order", "3\n1\n1\n2\n",
     "cat 1 felis\nant 2 formica\nbee 3 apis\n", true, "dabc", "0122", NULL},
    {"the devkit's numbers without their names", "3\n1\n1\n2\n", NULL, true, NULL, NULL,
     "copy the devkit's map_clsloc.txt"},
    {"the devkit's numbers with an unknown number", "3\n1\n1\n4\n",
     "cat 1 felis\nant 2 formica\nbee 3 apis\n", true, NULL, NULL,
     "labels:4: '4' is not one of the"},
    {"an invalid map", "3\n1\n1\n2\n", "cat\n", true, NULL, NULL, "map_clsloc.txt:1: want NAME"},
    {"an empty map", "3\n1\n1\n2\n", "\n", true, NULL, NULL, "no class in this file"},
    {"an unknown class name", "a.jpg cat\nb.jpg dog\nc.png bee\nd e.jpg ant\n", NULL, true, NULL,
     NULL, "labels:2: 'dog' is not one of the 3 classes"},
    {"a number beyond the classes", "2\n0\n0\n3\n", NULL, true, NULL, NULL, "labels:4: '3'"},
    {"a class name for classes without names", "cat\n0\n0\n1\n", NULL, false, NULL, NULL,
     "the classes have no names"},
    {"too few labels", "2\n0\n0\n", NULL, true, NULL, NULL, "3 labels, "},
    {"an image without a label", "a.jpg cat\nb.jpg ant\nc.png bee\n", NULL, true, NULL, NULL,
     "no label for "},
    {"a label without an image", "a.jpg 0\nx.jpg 0\nc.png 0\nd e.jpg 1\n", NULL, true, NULL, NULL,
     "labels:2: "},
    {"an image twice", "a.jpg 0\nval/a.jpg 0\nc.png 0\nd e.jpg 1\n", NULL, true, NULL, NULL,
     "labels:2: second label for 'a.jpg'"},
    {"one word and two words", "a.jpg 0\n1\n", NULL, true, NULL, NULL,
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
    if (r->order) {
        assert_ok(open_flat(root, r, &d));
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
        assert_fails(open_flat(root, r, &d), LT_E_FORMAT, r->message);
        assert_null(d);
    }
    remove_folder(root);
}

/* As ImageNet's "crane", a bird and a machine. */
static void check_name_of_two_classes(void **state)
{
    static const char *const names[] = {"cat", "bee", "ant", "cat"};
    row r = {.labels = "a.jpg ant\nb.jpg bee\nc.png 3\nd e.jpg 0\n"};
    (void)state;
    for (int attempt = 0; attempt < 2; attempt++, r.labels = "a.jpg ant\nb.jpg cat\n") {
        char *root = make_flat(&r), *folder = below(root, "val"), *labels = below(root, "labels");
        lt_dataset *d = NULL;
        const lt_status st = lt_dataset_labelled(&d, folder, labels, names, (int)COUNT_OF(names));
        if (attempt)
            assert_failed(st, LT_E_FORMAT, "labels:2: 'cat' is the name of classes 0 and 3");
        else
            assert_ok(st);
        lt_dataset_free(&d);
        free(labels);
        free(folder);
        remove_folder(root);
    }
}

static void check_missing(void **state)
{
    (void)state;
    char *root = make_flat(&rows[0]), path[512];
    lt_dataset *d = NULL;
    assert_status(lt_dataset_labelled(&d, "/no/such", "/no/labels", NULL, 0), LT_E_IO);
    snprintf(path, sizeof path, "%s/val", root);
    assert_fails(lt_dataset_labelled(&d, path, "/no/labels", NULL, 0), LT_E_IO, "/no/labels");
    assert_status(lt_dataset_labelled(&d, root, path, NULL, 0), LT_E_FORMAT); /* no images */
    char *labels = below(root, "labels");
    write_file(root, "labels", "a.jpg 0\nb\0", 10);
    assert_fails(lt_dataset_labelled(&d, path, labels, NULL, 0), LT_E_FORMAT,
                 "labels: not a text file: it has a zero byte");
    free(labels);
    assert_status(lt_dataset_labelled(&d, path, path, NULL, -1), LT_E_ARG);
    assert_fails(lt_dataset_open(&d, path, false), LT_E_FORMAT, "its images need a label file");
    assert_null(d);
    remove_folder(root);
}

static lt_status open_and_free(void *root)
{
    lt_dataset *d = NULL;
    lt_status st = open_flat(root, &rows[5], &d);
    assert_true(st ? !d : d != NULL);
    lt_dataset_free(&d);
    return st;
}

static void check_memory(void **state)
{
    (void)state;
    char *root = make_flat(&rows[5]);
    assert_in_range(fail_each_allocation(open_and_free, root), 15, 999);
    remove_folder(root);
}

/* --- Classes of two data sets --- */

typedef struct set {
    lt_dataset base;
    const char *const *name;
} set;

static const char *class_name(const lt_dataset *self, int label)
{
    const set *s = (const set *)self;
    return s->name ? s->name[label] : NULL;
}

static lt_status compare(const char *const *a, int a_count, const char *const *b, int b_count)
{
    static const lt_dataset_ops ops = {
        .name = "set", .bytes = sizeof(set), .class_name = class_name};
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
    assert_ok(compare(NULL, 3, NULL, 2)); /* no names: val may lack the last class */
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
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_fails(
            compare(wrong[i].train, wrong[i].train_count, wrong[i].val, wrong[i].val_count),
            LT_E_FORMAT, wrong[i].message);
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"a name of two classes is an error", check_name_of_two_classes, 0, 0, 0},
        {"missing files are named", check_missing, 0, 0, 0},
        {"a failed allocation is an error", check_memory, 0, 0, 0},
        {"different class sets are named", check_classes, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(more) + COUNT_OF(rows)];
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[COUNT_OF(more) + i] = row_test(rows[i].name, check_row, &rows[i]);
    return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}
