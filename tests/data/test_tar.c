/* Tar files as data sets: the formats of the system's tar, WebDataset's samples, the cached index, and invalid files. */

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

/* Writes FOLDER/NAME of FOLDER/content with the system's tar; free() the path. */
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
    bool long_names; /* supports them */
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

/* The common folder of all images is not part of class names. */
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

/* The index is used until the tar file changes; a corrupt index is rebuilt. */
static void check_index_file(void **state)
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
    for (off_t at = 0; at < info.st_size; at += 7) {
        flip_bits(index, at, 16);
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

/* If the index cannot be written next to the tar file, it is written to the user's cache folder. */
static void check_cached_index(void **state)
{
    (void)state;
    char *root = make_folder(), *cache = below(root, "cache");
    const char *before = getenv("XDG_CACHE_HOME");
    char *saved = before ? strdup(before) : NULL;
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    write_sample(root, 1, "1");
    char *path = make_tar(root, "x.tar", "ustar");
    lt_tar_index x = {0};
    run_in(root, "mkdir x.tar.index && touch x.tar.index/taken");
    assert_ok(lt_tar_index_open(&x, path));
    lt_tar_index_clear(&x);
    run_in(root, "test $(find cache -type f | wc -l) = 1");
    /* A tar file of zeros with the same size and time: its samples are read from the index. */
    run_in(root, "cp -p x.tar y && truncate -s 0 x.tar && truncate -r y x.tar && touch -r y x.tar");
    assert_ok(lt_tar_index_open(&x, path));
    assert_int_equal(x.count, 1);
    lt_tar_index_clear(&x);
    run_in(root, "cp y x.tar && touch -d @7 x.tar"); /* another time: rebuilt */
    assert_ok(lt_tar_index_open(&x, path));
    lt_tar_index_clear(&x);
    run_in(root, "test $(find cache -type f | wc -l) = 1");
    if (saved)
        setenv("XDG_CACHE_HOME", saved, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(saved);
    free(path);
    free(cache);
    remove_folder(root);
}

static void check_invalid(void **state)
{
    (void)state;
    char *root = make_folder(), *none = below(root, "none.tar"), *text = below(root, "text.tar");
    lt_dataset *d = NULL;
    assert_fails(lt_dataset_open(&d, none, true), LT_E_IO, "none.tar");
    static const char words[] = "this is not a tar file";
    char block[1024] = {0};
    memcpy(block, words, sizeof words);
    write_file(root, "text.tar", block, sizeof block);
    assert_fails(lt_dataset_open(&d, text, true), LT_E_FORMAT, "no valid tar header at 0");
    memcpy(block, "\x1f\x8b\x08", 4);
    write_file(root, "text.tar", block, sizeof block);
    assert_fails(lt_dataset_open(&d, text, true), LT_E_FORMAT, "compressed by gzip,");
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
                 "two images share a .cls file: 1.jpg and 1.png");
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

static void check_classes(void **state)
{
    (void)state;
    char *root = make_folder(), *path = below(root, "x.tar");
    lt_dataset *d = NULL;
    lt_record record = {0};
    write_file(root, "content/1.jpg", "x", 1);
    run_in(root, "cd content && tar -cf ../x.tar 1.jpg");
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT,
                 "x.tar: no class for 1.jpg: it has no .cls file and is not in a folder");
    write_file(root, "content/1.cls", "12345678901234567", 17);
    run_in(root, "cd content && tar -cf ../x.tar 1.jpg 1.cls");
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT,
                 "1.cls has 17 bytes, more than a class number");
    write_sample(root, 1, "7");
    write_sample(root, 3, "2");
    run_in(root, "cd content && tar -cf ../train-0.tar 000001.jpg 000001.cls && "
                 "tar -cf ../train-1.tar 000003.jpg && rm ../x.tar");
    assert_fails(lt_dataset_open(&d, root, true), LT_E_FORMAT,
                 "train-1.tar: 000003.jpg has no .cls file, other images have one");
    run_in(root, "cd content && tar -cf ../train-0.tar 000001.jpg && "
                 "tar -cf ../train-1.tar 000003.jpg 000003.cls");
    assert_fails(lt_dataset_open(&d, root, true), LT_E_FORMAT,
                 "train-1.tar: 000003.jpg has a .cls file, other images have none");
    write_file(root, "content/cat/empty.jpg", "", 0);
    run_in(root, "cd content && tar -cf ../x.tar cat/empty.jpg");
    assert_ok(lt_dataset_open(&d, path, true));
    assert_fails(d->ops->read(d, 0, &record), LT_E_FORMAT, "image of 0 bytes at 512; want 1 to ");
    lt_free(record.bytes);
    lt_dataset_free(&d);
    free(path);
    remove_folder(root);
}

/* Writes a tar file that consists of an extended header with this text. size: its length according to the header. */
static void write_extended(const char *root, const char *text, unsigned size)
{
    char block[1024] = "name";
    unsigned sum = 0;
    snprintf(block + 124, 12, "%011o", size);
    memset(block + 148, ' ', 8); /* the checksum, when it is computed */
    block[156] = 'x';
    snprintf(block + 257, 6, "ustar");
    block[263] = block[264] = '0'; /* the version */
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    snprintf(block + 512, 512, "%s", text);
    write_file(root, "x.tar", block, sizeof block);
}

static void check_extended_headers(void **state)
{
    static const char *const wrong[] = {"7 x=1\n", "99 x=1\n", "6 x=1 ", "x=1\n", "2 \n"};
    (void)state;
    char *root = make_folder(), *path = below(root, "x.tar");
    lt_dataset *d = NULL;
    write_extended(root, "6 x=1\n", 6); /* the control */
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT, "file in this tar file");
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        write_extended(root, wrong[i], (unsigned)strlen(wrong[i]));
        assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT,
                     "x.tar: invalid extended header at 0");
    }
    write_extended(root, "6 x=1\n", (1 << 20) + 1);
    run_in(root, "truncate -s 2M x.tar");
    assert_fails(lt_dataset_open(&d, path, true), LT_E_FORMAT,
                 "extended header of 1048577 bytes at 0, want at most 1048576");
    free(path);
    remove_folder(root);
}

/* Members of a sample need not be adjacent. */
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
    for (int cached = 0; cached < 2; cached++) { /* the second time from the cached index */
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
    const struct CMUnitTest tests[] = {
        row_test("all formats of the system's tar, with long names", check_formats, NULL),
        row_test("class folders: names without the common folder", check_class_names, NULL),
        row_test("WebDataset's samples: shards, labels, fields", check_webdataset, NULL),
        row_test("the cached index: used, outdated, corrupt", check_index_file, NULL),
        row_test("an index in the user's cache folder", check_cached_index, NULL),
        row_test("invalid tar files and samples", check_invalid, NULL),
        row_test("images without a class, without bytes, or in part with one", check_classes, NULL),
        row_test("invalid extended headers", check_extended_headers, NULL),
        row_test("labels that are not adjacent to their images", check_apart, NULL),
    };
    return cmocka_run_group_tests_name("tar", tests, NULL, NULL);
}
