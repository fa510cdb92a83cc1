/* Tables of labels: CSV and JSON lines, columns by name, images by path or by name, and their errors. */

#include "images.h"
#include "near.h"

#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 1024 };

/* The folder's images; those of each row are listed as "PATH=CLASS NUMBER" in the order of the data set. */
static const char *const files[] = {"a/x.jpg", "a/y.jpg", "b/x.png", "z.v2.jpg", "notes.txt"};

typedef struct table_row {
    const char *name, *table, *columns;
    const char *want; /* samples, or an error without '=' */
} table_row;

static const table_row rows[] = {
    /* CSV: columns in any place, other columns, blanks, CRLF, a byte order mark, no newline at the end */
    {"columns and a trailing newline", "image,label\na/x.jpg,cat\na/y.jpg,dog\n", NULL,
     "a/x.jpg=0 a/y.jpg=1"},
    {"byte order mark, CRLF, blanks, an empty line, no last newline",
     "\xEF\xBB\xBFsize,Label, filename\r\n1,dog,a/x.jpg\r\n\r\n2, cat ,./a/y.jpg", NULL,
     "a/y.jpg=0 a/x.jpg=1"},
    {"semicolons", "path;class\na/x.jpg;b,c\n", NULL, "a/x.jpg=0"},
    {"tabs", "path\tclass\nb/x.png\tb c\n", NULL, "b/x.png=0"},
    {"quoted fields with quotes and newlines",
     "image,label\n\"a/x.jpg\",\"say \"\"cat\"\", or\nnot\"\na/y.jpg,b\n", NULL,
     "a/y.jpg=0 a/x.jpg=1"},
    /* columns by name, usual names, the only two */
    {"columns by flag", "x,y,z\n1,a/x.jpg,k\n", "y,z", "a/x.jpg=0"},
    {"names without extension, as Kaggle's", "id,breed\ny,pug\nz.v2,pug\nb/x,akita\n", NULL,
     "b/x.png=0 a/y.jpg=1 z.v2.jpg=1"},
    {"two columns of other names", "who,what\ny.jpg,pug\n", NULL, "a/y.jpg=0"},
    {"two columns, the label first", "label,who\npug,y.jpg\n", NULL, "a/y.jpg=0"},
    /* the folder's own name before a path */
    {"the folder's own name in a path", "image,label\nd/a/x.jpg,1\n", NULL, "a/x.jpg=0"},
    /* numbers are ordered as numbers */
    {"numbers are ordered as numbers", "image,label\na/x.jpg,10\na/y.jpg,9\nb/x.png,10\n", NULL,
     "a/y.jpg=0 a/x.jpg=1 b/x.png=1"},
    {"mixed labels are ordered as text", "image,label\na/x.jpg,10\na/y.jpg,9\nb/x.png,n\n", NULL,
     "a/x.jpg=0 a/y.jpg=1 b/x.png=2"},
    /* JSON lines */
    {"JSON lines with numbers",
     "{\"file_name\": \"a/x.jpg\", \"label\": 7, \"x\": [1]}\n\n{\"label\": 3, \"file_name\": \"y\"}\n",
     NULL, "a/y.jpg=0 a/x.jpg=1"},
    {"JSON lines, columns by flag", "{\"f\": \"a/x.jpg\", \"g\": \"\\u00e9\"}\n", "f,g",
     "a/x.jpg=0"},

    {"labels for no image", "image,label\na/x.jpg,1\nn1.jpg,1\nn2.jpg,1\nn3.jpg,1\nn4.jpg,1\n",
     NULL, "4 of 5 labels are for images that ROOT/d does not have: n1.jpg, n2.jpg, n3.jpg, ..."},
    {"two labels for an image", "image,label\na/x.jpg,1\n\nx.jpg,2\n", NULL,
     "t:4: second label for a/x.jpg, whose first is in line 2"},
    {"a name of two images", "image,label\nx,1\n", NULL,
     "t:2: 'x' may be a/x.jpg or b/x.png; write the path below ROOT/d"},
    {"a path is not searched by name", "image,label\nc/x.jpg,1\n", NULL,
     "1 of 1 labels are for images that ROOT/d does not have: c/x.jpg"},
    {"a short line", "image,label\na/x.jpg\n", NULL, "t:2: 1 fields, but the header has 2"},
    {"a line without label", "image,label\na/x.jpg,\n", NULL, "t:2: no label in this line"},
    {"a line without image", "image,label\n,1\n", NULL, "t:2: no image in this line"},
    {"a quoted field without end", "image,label\n\"a/x.jpg,1\n", NULL,
     "t:2: a quoted field does not end"},
    {"text after a quoted field", "image,label\n\"a/x.jpg\"x,1\n", NULL,
     "t:2: text after a quoted field"},
    {"only a header", "image,label\n", NULL, "t: no label in this file"},
    {"no known column", "a/x.jpg,1,2\n", NULL,
     "t: no column of images (image, filename, id, ...); its columns are: a/x.jpg, 1, 2; --labels-columns"},
    {"no such label column", "image,label\na/x.jpg,1\n", "image,class",
     "t: no column class; its columns are: image, label;"},
    {"no such image column", "image,label\na/x.jpg,1\n", "img,label",
     "t: no column with the first of these names; its"},
    {"one column by flag", "image,label\na/x.jpg,1\n", "image",
     "--labels-columns 'image': want IMAGE,LABEL"},
    {"a JSON array", "[{\"image\": \"a/x.jpg\"}]\n", NULL,
     "t: begins with '['; want CSV with a header, or JSON lines"},
    {"a label that is no integer", "{\"image\": \"a/x.jpg\", \"label\": 1.5}\n", NULL,
     "t:1: 'label' is no string and no integer"},
    {"a missing member", "{\"image\": \"a/x.jpg\", \"label\": 1}\n{\"image\": \"y\"}\n", NULL,
     "t:2: 'a missing member' is no string"},
    {"a broken JSON line", "{\"image\": \"a/x.jpg\", \"label\": 1\n", NULL, "t:1: "},
    {"a JSON line that is no object", "{\"image\": \"a/x.jpg\", \"label\": 1}\n[1]\n", NULL,
     "t:2: not an object; want JSON lines, an object per line"},
    {"no header", "a/x.jpg,cat\na/y.jpg,dog\n", NULL,
     "t: its first line has the image a/x.jpg; want a header"},
};

static char *make_data(void)
{
    char *root = make_folder(), name[64];
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(name, sizeof name, "d/%s", files[i]);
        write_file(root, name, "x", 1);
    }
    return root;
}

static void list_samples(const lt_dataset *d, const char *folder, char text[TEXT])
{
    *text = 0;
    for (int64_t i = 0; i < lt_dataset_count(d); i++) {
        int label = -1;
        assert_ok(lt_dataset_label(d, i, &label));
        snprintf(text + strlen(text), TEXT - strlen(text), "%s%s=%d", i ? " " : "",
                 lt_dataset_sample_name(d, i) + strlen(folder) + 1, label);
    }
}

/* Compares with the row's text, in which ROOT is the folder. */
static void check_text(const char *got, const char *want, const char *root)
{
    char text[TEXT];
    const char *at = strstr(want, "ROOT");
    if (at)
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - want), want, root, at + 4);
    else
        snprintf(text, sizeof text, "%s", want);
    if (!strstr(got, text))
        fail_msg("'%s' lacks '%s'", got, text);
}

static void check_row(void **state)
{
    const table_row *row = *state;
    const char *want = row->want;
    char *root = make_data(), *folder = below(root, "d"), *table = below(root, "t"), text[TEXT];
    write_file(root, "t", row->table, strlen(row->table));
    lt_dataset *d = NULL;
    lt_status st = lt_dataset_table(&d, folder, table, row->columns, NULL, 0);
    if (strchr(want, '=')) {
        assert_ok(st);
        list_samples(d, folder, text);
        assert_string_equal(text, want);
    } else {
        assert_true(st == LT_E_FORMAT || st == LT_E_ARG);
        check_text(lt_error_message(), want, root);
        assert_null(d);
    }
    lt_dataset_free(&d);
    free(table);
    free(folder);
    remove_folder(root);
}

static void save_line(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level, (void)area;
    snprintf(context, TEXT, "%s", text);
}

/* Images without a label are counted and the first three named; classes may be given. */
static void check_others(void **state)
{
    (void)state;
    static const char *const names[] = {"dog", "cat"}, *const other[] = {"cat", "owl"};
    char *root = make_data(), *folder = below(root, "d"), *table = below(root, "t"),
         line[TEXT] = "";
    write_file(root, "t", "image,label\nz.v2,dog\n", 21);
    lt_dataset *d = NULL;
    lt_log_set(save_line, line);
    lt_status st = lt_dataset_table(&d, folder, table, NULL, names, 2);
    lt_log_set(NULL, NULL);
    assert_ok(st);
    check_text(line,
               "no label for 3 of the 4 images of ROOT/d, left out: a/x.jpg, a/y.jpg, b/x.png",
               root);
    assert_int_equal(lt_dataset_count(d), 1);
    assert_int_equal(lt_dataset_classes(d), 2);
    assert_string_equal(lt_dataset_class_name(d, 1), "cat");
    lt_dataset_free(&d);
    assert_fails(lt_dataset_table(&d, folder, table, NULL, other, 2), LT_E_FORMAT,
                 "t:2: 'dog' is not one of the 2 classes");
    assert_fails(lt_dataset_table(&d, folder, folder, NULL, NULL, 0), LT_E_IO, "/d");
    assert_fails(lt_dataset_table(&d, "/no/such", table, NULL, NULL, 0), LT_E_IO,
                 "/no/such: no such folder");
    write_file(root, "t", "image,label\nz.v2,d\0g\n", 21);
    assert_fails(lt_dataset_table(&d, folder, table, NULL, NULL, 0), LT_E_FORMAT,
                 "t: not a text file: it has a zero byte");
    free(table);
    free(folder);
    remove_folder(root);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1] = {
        {"images without labels, given classes, missing files", check_others, NULL, NULL, NULL}};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[1 + i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
