/* Files that change or vanish while a run reads them, and folders that may not be read. */

#include "base/alloc.h"
#include "data/pack/pack.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"

#include "lather/data.h"
#include "lather/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL = 15, SIDE = 16 }; /* images of make_image_folder() */

typedef struct row {
    const char *name;
    const char *make;   /* shell commands in the folder that holds data/ */
    const char *spec;   /* what is opened then */
    const char *change; /* shell commands after it was opened */
    int bad;            /* images that are passed over; ALL: none is left, the epoch fails */
    const char *why;
} row;

#define TAR "tar --sort=name -cf x.tar -C data ."
static row rows[] = {
    {"a file that vanishes", "true", "data", "rm data/class1/01.jpg", 1,
     "class1/01.jpg: No such file"},
    {"a class folder that vanishes", "true", "data", "rm -r data/class1", 5,
     "class1/00.jpg: No such file"},
    {"a file that shrinks", "true", "data", "truncate -s 200 data/class2/01.jpg", 1,
     "class2/01.jpg: jpeg: the file is truncated"},
    {"a file that becomes empty", "true", "data", ": >data/class2/01.jpg", 1,
     "class2/01.jpg: the file is empty"},
    {"a file that becomes text", "true", "data", "echo text >data/class2/01.jpg", 1,
     "class2/01.jpg: image: neither JPEG"},
    {"a file that becomes a folder", "true", "data",
     "rm data/class2/01.jpg && mkdir data/class2/01.jpg", 1, "class2/01.jpg: not a regular file"},
    {"a file that becomes a link to nothing", "true", "data", "ln -sf none data/class0/00.jpg", 1,
     "class0/00.jpg: No such file"},
    {"a file that becomes a named pipe", "true", "data",
     "rm data/class0/00.jpg && mkfifo data/class0/00.jpg", 1, "class0/00.jpg: not a regular file"},
    {"a file that becomes another image", "true", "data",
     "cp data/class1/00.jpg data/class2/01.jpg", 0, NULL},
    {"all files vanish", "true", "data", "rm -r data", ALL, "broken images in a row"},
    {"a tar file that is cut off within its last image", TAR, "x.tar",
     "truncate -s $(($(tar -tRf x.tar | grep 05.jpg | tr -dc '0-9 ' | cut -d' ' -f2) * 512 + 900)) "
     "x.tar",
     1, "05.jpg: "},
    {"a tar file that vanishes", TAR, "x.tar", "rm x.tar", ALL, "broken images in a row"},
    {"a tar file in whose place another is put", TAR, "x.tar",
     "head -c $(stat -c %s x.tar) /dev/zero >y && mv y x.tar", ALL, "broken images in a row"},
    {"a shard of a pack that vanishes", "PACK", "pack", "rm pack/shard-00000.pack", ALL,
     "broken images in a row"},
    {"a shard of a pack that is cut off", "PACK", "pack", "truncate -s 400 pack/shard-00000.pack",
     ALL, "broken images in a row"},
    {"a shard of a pack whose bytes change", "PACK", "pack",
     "printf x | dd of=pack/shard-00000.pack bs=1 seek=500 conv=notrunc status=none", 1,
     "is damaged"},
};

/* A folder that holds the images as data/, and what the row makes of them. */
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
    for (int64_t i = 0; lt_loader_bad(l, i); i++)
        if (strstr(lt_loader_bad(l, i), why))
            return true;
    return false;
}

static void read_epochs(lt_loader *l, const row *r)
{
    lt_batch b;
    lt_status st = LT_OK;
    for (int epoch = 0; epoch < 2; epoch++) { /* what is broken in both is counted once */
        int count = 0;
        while (!(st = lt_loader_next(l, &b)))
            count += b.count;
        if (r->bad == ALL)
            break;
        assert_status(st, LT_END);
        assert_int_equal(count, ALL);
    }
    if (r->bad == ALL) {
        assert_status(st, LT_E_FORMAT);
        if (!strstr(lt_error_message(), r->why))
            fail_msg("the message is '%s', without '%s'", lt_error_message(), r->why);
        return;
    }
    assert_int_equal(lt_loader_statistics(l).bad, r->bad);
    if (r->why && !is_listed(l, r->why))
        fail_msg("'%s' is not among the broken ones: '%s'", r->why, lt_loader_bad(l, 0));
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
    lt_dataset_free(&d);
    remove_folder(root);
}

/* As another user, if root runs the tests: nothing is forbidden to root. */
static void check_unreadable(void **state)
{
    (void)state;
    enum { UNPRIVILEGED = 65534 };
    char *root = make_image_folder(), path[512];
    lt_dataset *d = NULL;
    snprintf(path, sizeof path, "%s/class1", root);
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(chmod(path, 0), 0);
    bool is_root = geteuid() == 0;
    if (is_root)
        assert_int_equal(seteuid(UNPRIVILEGED), 0);
    lt_status st = lt_dataset_open(&d, root, true);
    char *message = strdup(lt_error_message());
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_status(st, LT_E_IO);
    if (!strstr(message, "class1: Permission denied"))
        fail_msg("the message is '%s'", message);
    free(message);
    assert_ok(lt_dataset_open(&d, root, true)); /* and nothing else was wrong with it */
    lt_dataset_free(&d);
    remove_folder(root);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1] = {
        {"a folder that may not be read is named", check_unreadable, 0, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i + 1] = (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, &rows[i]};
    return cmocka_run_group_tests_name("changes", tests, open_device, close_device);
}
