/* Tar files as data sets: what the system's tar writes in each of its formats, WebDataset's
 * samples, the kept index, and files that are not right. */

#include "base/alloc.h"
#include "data/datasets/tar_index.h"
#include "data/files/files.h"
#include "images.h"
#include "near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* FOLDER/NAME.tar of FOLDER/content, written by the system's tar. */
static char *make_tar(const char *root, const char *name, const char *format)
{
    char *command = NULL, *path = below(root, name);
    if (asprintf(&command, "tar --format=%s --sort=name -C %s/content -cf %s .", format, root, path)
        < 0)
        abort();
    assert_int_equal(system(command), 0);
    free(command);
    return path;
}

static const char long_name[] =
    "content/a-class-with-a-rather-long-name-so-that-the-old-format-cannot-hold-it-in-one-field/"
    "another-folder-in-it-with-a-long-name-too-because-a-prefix-takes-at-most-155-bytes/"
    "and-a-file-the-name-of-which-is-longer-than-one-hundred-bytes-on-its-own-which-ustar-refuses-"
    "to-hold-at-all.jpg";

typedef struct format_case {
    const char *format;
    bool long_names; /* it can hold them */
} format_case;

static const format_case formats[] = {{"ustar", false}, {"gnu", true}, {"pax", true}};

static void check_formats(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        char *root = make_folder();
        write_file(root, "content/cat/1.jpg", "first", 5);
        write_file(root, "content/cat/2.png", "second image", 12);
        write_file(root, "content/dog/readme.txt", "none", 4);
        write_file(root, "content/dog/1.bmp", "third", 5);
        if (formats[i].long_names)
            write_file(root, long_name, "fourth", 6);
        char *path = make_tar(root, "x.tar", formats[i].format);
        lt_dataset *d = NULL;
        lt_record record = {0};
        assert_ok(lt_dataset_open(&d, path, true));
        int64_t last = formats[i].long_names ? 3 : 2;
        assert_int_equal(lt_dataset_count(d), last + 1);
        assert_int_equal(lt_dataset_classes(d), formats[i].long_names ? 3 : 2);
        assert_ok(d->ops->read(d, last, &record));
        assert_int_equal(record.size, 5);
        assert_memory_equal(record.bytes, "third", 5);
        assert_int_equal(record.label, lt_dataset_classes(d) - 1);
        assert_string_equal(lt_dataset_class_name(d, record.label), "dog");
        if (formats[i].long_names) {
            assert_ok(d->ops->read(d, 0, &record));
            assert_memory_equal(record.bytes, "fourth", 6);
            assert_string_equal(lt_dataset_sample_name(d, 0), long_name + strlen("content/"));
        }
        lt_free(record.bytes);
        lt_dataset_free(&d);
        free(path);
        remove_folder(root);
    }
}

/* The folders that all images lie in are no part of a class's name. */
static void check_class_names(void **state)
{
    (void)state;
    static const struct {
        const char *files[3], *names[2];
    } rows[] = {
        {{"content/train/cat/1.jpg", "content/train/dog/1.jpg", NULL}, {"cat", "dog"}},
        {{"content/a/b/cat/1.jpg", "content/a/b/cat/2.jpg", NULL}, {"cat", NULL}},
        {{"content/val/cat/1.jpg", "content/valid/cat/1.jpg", NULL}, {"val", "valid"}},
        {{"content/cat/1.jpg", "content/dog/puppy/1.jpg", NULL}, {"cat", "dog"}},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char *root = make_folder();
        for (size_t k = 0; rows[i].files[k]; k++)
            write_file(root, rows[i].files[k], "x", 1);
        char *path = make_tar(root, "x.tar", "ustar");
        lt_dataset *d = NULL;
        lt_record record = {0};
        assert_ok(lt_dataset_open(&d, path, true));
        assert_int_equal(lt_dataset_classes(d), rows[i].names[1] ? 2 : 1);
        assert_ok(d->ops->read(d, 1, &record));
        assert_int_equal(record.label, lt_dataset_classes(d) - 1);
        for (int k = 0; k < lt_dataset_classes(d); k++)
            assert_string_equal(lt_dataset_class_name(d, k), rows[i].names[k]);
        lt_free(record.bytes);
        lt_dataset_free(&d);
        free(path);
        remove_folder(root);
    }
}

static void write_sample(const char *root, int number, const char *label)
{
    char name[64], image[32];
    snprintf(image, sizeof image, "image %d", number);
    snprintf(name, sizeof name, "content/%06d.seg.jpg", number); /* the key ends at the first dot */
    if (number % 2)
        snprintf(name, sizeof name, "content/%06d.jpg", number);
    write_file(root, name, image, strlen(image));
    snprintf(name, sizeof name, "content/%06d.cls", number);
    write_file(root, name, label, strlen(label));
    snprintf(name, sizeof name, "content/%06d.json", number);
    write_file(root, name, "{}", 2);
}

static void check_webdataset(void **state)
{
    (void)state;
    char *root = make_folder();
    write_sample(root, 1, "7");
    write_sample(root, 3, "2\n");
    char *a = make_tar(root, "train-000.tar", "ustar");
    write_sample(root, 5, "0");
    char *b = make_tar(root, "train-001.tar", "ustar"), *c = make_tar(root, "val-000.tar", "gnu");
    lt_dataset *d = NULL;
    lt_record record = {0};
    assert_ok(lt_dataset_open(&d, root, true));
    static const int labels[] = {7, 2, 7, 2, 0};
    assert_int_equal(lt_dataset_count(d), COUNT_OF(labels));
    assert_int_equal(lt_dataset_classes(d), 8);
    assert_null(lt_dataset_class_name(d, 0));
    for (size_t i = 0; i < COUNT_OF(labels); i++) {
        assert_ok(d->ops->read(d, (int64_t)i, &record));
        assert_int_equal(record.label, labels[i]);
    }
    assert_memory_equal(record.bytes, "image 5", 7);
    lt_dataset_free(&d);
    assert_ok(lt_dataset_open(&d, root, false));
    assert_int_equal(lt_dataset_count(d), 3);
    lt_dataset_free(&d);
    lt_free(record.bytes);
    free(a);
    free(b);
    free(c);
    remove_folder(root);
}

static ino_t inode(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : info.st_ino;
}

/* The index is used while it fits, and made anew when the tar file has changed or it is damaged. */
static void check_kept_index(void **state)
{
    (void)state;
    char *root = make_folder();
    write_sample(root, 1, "1");
    char *path = make_tar(root, "x.tar", "ustar"), *index = below(root, "x.tar.index");
    lt_tar_index x = {0};
    assert_ok(lt_tar_index_open(&x, path));
    lt_tar_index_clear(&x);
    ino_t first = inode(index);
    assert_true(first != 0);
    assert_ok(lt_tar_index_open(&x, path));
    lt_tar_index_clear(&x);
    assert_true(inode(index) == first);

    write_sample(root, 3, "1");
    free(make_tar(root, "x.tar", "ustar"));
    assert_ok(lt_tar_index_open(&x, path));
    assert_int_equal(x.count, 2);
    lt_tar_index_clear(&x);

    struct stat info;
    assert_int_equal(stat(index, &info), 0);
    for (off_t at = 0; at < info.st_size; at += 7) { /* a flipped bit anywhere */
        FILE *file = fopen(index, "r+b");
        int byte;
        assert_non_null(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        byte = fgetc(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        fputc(byte ^ 16, file);
        fclose(file);
        ino_t damaged = inode(index);
        assert_ok(lt_tar_index_open(&x, path));
        assert_int_equal(x.count, 2);
        assert_true(inode(index) != damaged);
        lt_tar_index_clear(&x);
    }
    free(path);
    free(index);
    remove_folder(root);
}

/* Where the index cannot be written beside its tar file, it is kept in the user's cache. */
static void check_cached_index(void **state)
{
    (void)state;
    char *root = make_folder(), *cache = below(root, "cache");
    const char *before = getenv("XDG_CACHE_HOME");
    char *kept = before ? strdup(before) : NULL;
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    write_sample(root, 1, "1");
    char *path = make_tar(root, "x.tar", "ustar");
    lt_tar_index x = {0};
    run_in(root, "mkdir x.tar.index && touch x.tar.index/taken");
    assert_ok(lt_tar_index_open(&x, path));
    lt_tar_index_clear(&x);
    run_in(root, "test $(find cache -type f | wc -l) = 1");
    /* The same size and time, but nothing in it: only the index knows. */
    run_in(root, "cp -p x.tar y && truncate -s 0 x.tar && truncate -r y x.tar && touch -r y x.tar");
    assert_ok(lt_tar_index_open(&x, path));
    assert_int_equal(x.count, 1);
    lt_tar_index_clear(&x);
    run_in(root, "cp y x.tar && touch -d @7 x.tar"); /* another state of the file: made anew */
    assert_ok(lt_tar_index_open(&x, path));
    lt_tar_index_clear(&x);
    run_in(root, "test $(find cache -type f | wc -l) = 1");
    if (kept)
        setenv("XDG_CACHE_HOME", kept, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(kept);
    free(path);
    free(cache);
    remove_folder(root);
}

/* Every prefix is read as far as it goes, or refused with its path; nothing is read outside. */
static void check_truncation(void **state)
{
    (void)state;
    char *root = make_folder();
    write_sample(root, 1, "1");
    write_file(root, long_name, "fourth", 6);
    char *path = make_tar(root, "x.tar", "pax");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    int refused = 0;
    for (off_t size = info.st_size; size >= 0; size -= 128) {
        assert_int_equal(truncate(path, size), 0);
        lt_tar_index x = {0};
        lt_status st = lt_tar_index_open(&x, path);
        if (st) {
            refused++;
            assert_int_equal(st, LT_E_FORMAT);
            assert_non_null(strstr(lt_error_message(), path));
        }
        for (size_t i = 0; i < x.count; i++)
            assert_true(x.sample[i].offset + x.sample[i].size <= (uint64_t)size);
        lt_tar_index_clear(&x);
    }
    assert_true(refused > 10);
    free(path);
    remove_folder(root);
}

static void check_vanished(void **state)
{
    (void)state;
    char *root = make_folder();
    write_sample(root, 1, "1");
    write_sample(root, 3, "1");
    char *path = make_tar(root, "x.tar", "ustar");
    lt_dataset *d = NULL;
    lt_record record = {0};
    assert_ok(lt_dataset_open(&d, path, true));
    assert_int_equal(truncate(path, 1024), 0);
    assert_int_equal(d->ops->read(d, 1, &record), LT_E_FORMAT);
    assert_int_equal(unlink(path), 0);
    assert_fails(d->ops->read(d, 0, &record), LT_E_IO, path);
    lt_free(record.bytes);
    lt_dataset_free(&d);
    free(path);
    remove_folder(root);
}

static void check_bad_tars(void **state)
{
    (void)state;
    char *root = make_folder(), *none = below(root, "none.tar"), *text = below(root, "text.tar");
    lt_dataset *d = NULL;
    assert_fails(lt_dataset_open(&d, none, true), LT_E_IO, "none.tar");
    static const char words[] = "this is not a tar file";
    char block[1024] = {0};
    memcpy(block, words, sizeof words);
    write_file(root, "text.tar", block, sizeof block);
    assert_fails(lt_dataset_open(&d, text, true), LT_E_FORMAT, "no tar header at 0");
    memcpy(block, "\x1f\x8b\x08", 4);
    write_file(root, "text.tar", block, sizeof block);
    assert_fails(lt_dataset_open(&d, text, true), LT_E_FORMAT, "compressed by gzip;");
    write_file(root, "content/1.cls", "x1", 2);
    write_file(root, "content/1.jpg", "x", 1);
    char *path = make_tar(root, "x.tar", "ustar");
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT, "not a class number");
    write_file(root, "content/1.cls", "1", 1);
    write_file(root, "content/2.jpg", "x", 1);
    free(make_tar(root, "x.tar", "ustar"));
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT, "2.jpg has no .cls");
    write_file(root, "content/2.cls", "1", 1);
    write_file(root, "content/1.png", "x", 1);
    free(make_tar(root, "x.tar", "ustar"));
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT,
                 "two images have one .cls: 1.jpg and 1.png");
    assert_int_equal(unlink(path), 0);
    char *command = NULL;
    if (asprintf(&command,
                 "cd %s/content && rm 1.png && cp 1.cls 2.cls && tar -cf %s . && tar -rf %s .",
                 root, path, path)
        < 0)
        abort();
    assert_int_equal(system(command), 0);
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT, "two images are named 1.jpg");
    free(command);
    assert_null(d);
    free(none);
    free(text);
    free(path);
    remove_folder(root);
}

/* Members of a sample in any order, as tar finds them in a folder. */
static void check_apart(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int label;
    } want[] = {{"a/2.jpg", 0}, {"1.jpg", 2}, {"2.jpg", 1}, {"3.png", 3}};
    char *root = make_folder(), *path = below(root, "x.tar"), *other = below(root, "y.tar");
    char name[64];
    lt_dataset *d = NULL;
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        snprintf(name, sizeof name, "content/%s", want[i].name);
        write_file(root, name, want[i].name, strlen(want[i].name));
        char label = (char)('0' + want[i].label);
        memcpy(strrchr(name, '.'), ".cls", sizeof ".cls");
        write_file(root, name, &label, 1);
    }
    run_in(root, "cd content && tar -cf ../x.tar 2.cls a/2.jpg 1.jpg ./2.jpg 1.cls a/2.cls 3.png "
                 "3.cls && tar -cf ../y.tar 1.jpg 2.jpg 2.cls");
    for (int kept = 0; kept < 2; kept++) { /* the second time from the kept index */
        lt_record r = {0};
        assert_ok(lt_dataset_open(&d, path, true));
        assert_int_equal(lt_dataset_count(d), COUNT_OF(want));
        assert_int_equal(lt_dataset_classes(d), 4);
        for (size_t i = 0; i < COUNT_OF(want); i++) {
            assert_ok(d->ops->read(d, (int64_t)i, &r));
            assert_string_equal(lt_dataset_sample_name(d, (int64_t)i), want[i].name);
            assert_memory_equal(r.bytes, want[i].name, r.size);
            assert_int_equal(r.label, want[i].label);
        }
        lt_free(r.bytes);
        lt_dataset_free(&d);
    }
    assert_fails(lt_dataset_open(&d, other, true), LT_E_FORMAT, "1.jpg has no .cls");
    free(other);
    free(path);
    remove_folder(root);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } rows[] = {
        {"every format of the system's tar, long names included", check_formats},
        {"classes by folder: names without what they share", check_class_names},
        {"WebDataset's samples: shards, labels, parts", check_webdataset},
        {"the kept index: used, outdated, damaged", check_kept_index},
        {"an index in the user's cache", check_cached_index},
        {"a tar file cut off anywhere", check_truncation},
        {"a tar file that shrinks or goes away while it is read", check_vanished},
        {"files that are no tar files, samples that are not right", check_bad_tars},
        {"labels that do not lie beside their images", check_apart},
    };
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].name, .test_func = rows[i].run};
    return cmocka_run_group_tests_name("tar", tests, NULL, NULL);
}
