/* A loader's resident memory does not grow between image FIRST and image LAST, with corrupt images, repeats and
 * growing inputs. ./check --full passes 10000 100000. */

#include "images.h"
#include "near.h"

#include "lather/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALLOWED = 1 << 20 }; /* bytes of growth, caused by the allocator */

static int64_t first = 500, last = 5000;

static int64_t resident_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %lld", &pages) != 1)
        abort();
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Returns the growth in bytes from the first to the last image. leak: bytes to leak per image. */
static int64_t growth(lt_device *device, lt_dataset *data, size_t leak)
{
    lt_loader_config c = {
        .transform = {.augment = LT_AUGMENT_IMAGENET, .flip = 0.5, .trivial_augment = true},
        .sizes = {2, {{0, 16}, {3, 32}}},
        .batch = 8,
        .threads = 2,
        .repeats = 2,
        .shuffle = true,
        .max_bad = -1,
    };
    lt_loader *l = NULL;
    lt_batch b;
    int64_t before = 0, made = 0;
    static char *lost; /* static to keep the compiler from removing it */
    assert_ok(lt_loader_new(&l, data, device, &c));
    while (made < last) {
        lt_status st = lt_loader_next(l, &b);
        if (st == LT_END)
            continue;
        assert_ok(st);
        made += b.count;
        if (leak) {
            lost = malloc(leak * (size_t)b.count);
            memset(lost, 1, leak * (size_t)b.count);
        }
        if (!before && made >= first)
            before = resident_bytes();
    }
    int64_t grown = resident_bytes() - before;
    print_message("%" PRId64 " to %" PRId64 " images: %" PRId64 " KiB more, of %" PRId64 " KiB\n",
                  first, last, grown / 1024, before / 1024);
    lt_loader_free(&l);
    return grown;
}

static void check_flat(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* sanitizers keep freed memory */
#endif
    char *root = make_image_folder();
    write_file(root, "class0/broken.jpg", "\xff\xd8\xff none", 8);
    lt_device *device = NULL;
    lt_dataset *d = NULL;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_dataset_open(&d, root, true));
    assert_true(growth(device, d, 0) <= ALLOWED);
    assert_true(growth(device, d, (size_t)(4 * ALLOWED / (last - first))) > ALLOWED); /* control */
    lt_dataset_free(&d);
    lt_device_close(&device);
    remove_folder(root);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        first = strtoll(argv[1], NULL, 10);
        last = strtoll(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        {"memory does not grow, and a leak is noticed", check_flat, 0, 0, 0},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
