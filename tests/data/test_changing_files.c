/* Files that change or are deleted while a loader reads them. */

#include "data/pack/pack.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"

#include "lather/data.h"
#include "lather/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALL = 15, SIDE = 16 }; /* images of make_image_folder() */

typedef struct row {
    const char *name;
    const char *make;   /* shell commands in the folder that contains data/ */
    const char *spec;   /* data set to open */
    const char *change; /* shell commands after it is opened */
    int corrupt;        /* images that are replaced; ALL: the epoch fails */
    const char *why;
} row;

#define TAR "tar --sort=name -cf x.tar -C data ."
static const row rows[] = {
    {"a deleted file", "true", "data", "rm data/class1/01.jpg", 1, "class1/01.jpg: No such file"},
    {"a deleted class folder", "true", "data", "rm -r data/class1", 5,
     "class1/00.jpg: No such file"},
    {"a truncated file", "true", "data", "truncate -s 200 data/class2/01.jpg", 1,
     "class2/01.jpg: jpeg: the file is truncated"},
    {"a file that becomes empty", "true", "data", ": >data/class2/01.jpg", 1,
     "class2/01.jpg: the file is empty"},
    {"a file that becomes text", "true", "data", "echo text >data/class2/01.jpg", 1,
     "class2/01.jpg: image: neither JPEG"},
    {"a file that becomes a folder", "true", "data",
     "rm data/class2/01.jpg && mkdir data/class2/01.jpg", 1, "class2/01.jpg: is a folder"},
    {"a file that becomes a link to nothing", "true", "data", "ln -sf none data/class0/00.jpg", 1,
     "class0/00.jpg: No such file"},
    {"a file that becomes a named pipe", "true", "data",
     "rm data/class0/00.jpg && mkfifo data/class0/00.jpg", 1, "class0/00.jpg: not a regular file"},
    {"a file that becomes another image", "true", "data",
     "cp data/class1/00.jpg data/class2/01.jpg", 0, NULL},
    {"all files deleted", "true", "data", "rm -r data", ALL, "consecutive images are corrupt"},
    {"a tar file truncated within its last image", TAR, "x.tar",
     "truncate -s $(($(tar -tRf x.tar | grep 05.jpg | tr -dc '0-9 ' | cut -d' ' -f2) * 512 + 900)) "
     "x.tar",
     1, "05.jpg: "},
    {"a deleted tar file", TAR, "x.tar", "rm x.tar", ALL, "consecutive images are corrupt"},
    {"a replaced tar file", TAR, "x.tar", "head -c $(stat -c %s x.tar) /dev/zero >y && mv y x.tar",
     ALL, "consecutive images are corrupt"},
    {"a deleted shard of a pack", "PACK", "pack", "rm pack/shard-00000.pack", ALL,
     "consecutive images are corrupt"},
    {"a truncated shard of a pack", "PACK", "pack", "truncate -s 400 pack/shard-00000.pack", ALL,
     "consecutive images are corrupt"},
    {"a shard of a pack whose bytes change", "PACK", "pack",
     "printf x | dd of=pack/shard-00000.pack bs=1 seek=500 conv=notrunc status=none", 1,
     "is corrupt (wrong hash)"},
};

/* Makes a folder with the images in data/, and the files of the row. */
static char *make(const row *r)
{
    char *images = make_image_folder(), *root = make_folder(), from[512], to[512];
    snprintf(from, sizeof from, "mv '%s' data", images);
    run_in(root, from);
    free(images);
    if (strcmp(r->make, "PACK") != 0) {
        run_in(root, r->make);
        return root;
    }
    lt_dataset *d = NULL;
    const lt_pack_config config = {.mode = LT_PACK_ORIGINAL};
    snprintf(from, sizeof from, "%s/data", root);
    snprintf(to, sizeof to, "%s/pack", root);
    assert_ok(lt_dataset_open(&d, from, true));
    assert_ok(lt_pack_write(to, d, &config, NULL, NULL, NULL));
    lt_dataset_free(&d);
    return root;
}

static bool is_listed(const lt_loader *l, const char *why)
{
    for (int64_t i = 0; lt_loader_corrupt(l, i); i++)
        if (strstr(lt_loader_corrupt(l, i), why))
            return true;
    return false;
}

static void read_epochs(lt_loader *l, const row *r)
{
    lt_batch b;
    lt_status st = LT_OK;
    for (int epoch = 0; epoch < 2; epoch++) { /* a corrupt image is counted once */
        int count = 0;
        while (!(st = lt_loader_next(l, &b)))
            count += b.count;
        if (r->corrupt == ALL)
            break;
        assert_status(st, LT_END);
        assert_int_equal(count, ALL);
    }
    if (r->corrupt == ALL) {
        assert_failed(st, LT_E_FORMAT, r->why);
        return;
    }
    assert_int_equal(lt_loader_statistics(l).bad, r->corrupt);
    if (r->why && !is_listed(l, r->why))
        fail_msg("'%s' is not in the list, which begins with '%s'", r->why,
                 lt_loader_corrupt(l, 0));
}

static void check_row(void **state)
{
    const row *r = *state;
    char *root = make(r), spec[512];
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    const lt_loader_config c = {.transform = {.augment = LT_AUGMENT_IMAGENET, .size = SIDE},
                                .batch = 4,
                                .threads = 3,
                                .shuffle = true,
                                .max_bad = -1};
    snprintf(spec, sizeof spec, "%s/%s", root, r->spec);
    assert_ok(lt_dataset_open(&d, spec, true));
    assert_int_equal(lt_dataset_count(d), ALL);
    assert_ok(lt_loader_new(&l, d, device, &c));
    run_in(root, r->change);
    read_epochs(l, r);
    lt_loader_free(&l);
    close_images(&d, root);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = row_test(rows[i].name, check_row, &rows[i]);
    return cmocka_run_group_tests_name("changes", tests, open_device, close_device);
}
