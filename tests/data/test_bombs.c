/* Small files that claim to be large are rejected, or read within memory and time in proportion to their real content.
 * Each runs in a process with a memory limit and five seconds of CPU time. */

#include "bombs.h"
#include "data/formats/image.h"
#include "images.h"
#include "near.h"

#include "lather/data.h"
#include "lather/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 5, SAID = 512 };
#define MIB ((size_t)1 << 20)

typedef struct bomb {
    const char *name;
    lt_status want;
    const char *says; /* part of the message */
    make_bomb *make;
    lt_status (*read)(const char *path, const uint8_t *bytes, size_t size);
    int64_t memory; /* MiB that the process may allocate */
    bomb_spec spec;
} bomb;

/* --- Readers --- */

static lt_status read_with(const uint8_t *bytes, size_t size, const lt_image_limits *limits)
{
    lt_window w = {0};
    lt_image image = {0};
    lt_status st = lt_image_size(bytes, size, limits, &w.width, &w.height);
    if (!st)
        st = lt_image_decode(bytes, size, limits, 3, w, &image);
    lt_image_clear(&image);
    return st;
}

static lt_status read_image(const char *path, const uint8_t *bytes, size_t size)
{
    (void)path;
    return read_with(bytes, size, NULL);
}

static lt_status read_any_size(const char *path, const uint8_t *bytes, size_t size)
{
    const lt_image_limits limits = {.pixels = INT64_C(1) << 40};
    (void)path;
    return read_with(bytes, size, &limits);
}

/* The limit is a ninth of what the fastest of its files takes on a fast core, 0.18 seconds. */
static lt_status read_in_time(const char *path, const uint8_t *bytes, size_t size)
{
    const lt_image_limits limits = {.pixels = INT64_C(1) << 40, .seconds = 0.02};
    (void)path;
    return read_with(bytes, size, &limits);
}

/* Measures memory, because a library that lacks memory reports only that it failed. */
static lt_status read_measured(const char *path, const uint8_t *bytes, size_t size)
{
    enum { KIB = 1024 };
    struct rusage before, after;
    (void)path;
    getrusage(RUSAGE_SELF, &before);
    const lt_status st = read_with(bytes, size, NULL);
    getrusage(RUSAGE_SELF, &after);
    const long mib = (after.ru_maxrss - before.ru_maxrss) / KIB;
    return mib > 32 ? lt_fail(LT_E_NOMEM, "it used %ld MiB", mib) : st;
}

static lt_status read_tensors(const char *path, const uint8_t *bytes, size_t size)
{
    lt_safetensors *file = NULL;
    (void)bytes, (void)size;
    lt_status st = lt_safetensors_open(&file, path);
    lt_safetensors_close(&file);
    return st;
}

static lt_status read_idx(const char *path, const uint8_t *bytes, size_t size)
{
    lt_dataset *d = NULL;
    (void)bytes, (void)size;
    lt_status st = lt_dataset_idx(&d, path, path, 0);
    lt_dataset_free(&d);
    return st;
}

/* clang-format off */
static bomb rows[] = {
    {"gif: 35 bytes of 11500 x 11500", LT_E_FORMAT, "more than the 100000000 allowed", make_gif_bomb, read_image, 64, {.width = 11500}},
    {"gif: 35 bytes of 9900 x 9900", LT_E_FORMAT, "a file of 35 bytes cannot contain 9900 x 9900", make_gif_bomb, read_image, 64, {.width = 9900}},
    {"gif: 3 MB of codes after the last pixel", LT_E_FORMAT, "more than 0.02 seconds", make_gif_codes, read_in_time, 64, {.count = 2 * MIB}},
    {"png: 4095 x 8192 of grey are read", LT_OK, "", make_png_bomb, read_image, 512, {.width = 4095, .height = 8192, .bits = 8, .inflated = 32 * MIB}},
    {"png: a pixel after 8 million empty blocks is read", LT_OK, "", make_png_blocks, read_image, 192, {.count = 8 * MIB}},
    {"png: 9000 x 9000 of four times 16 bits", LT_E_FORMAT, "more memory", make_png_bomb, read_image, 64, {.width = 9000, .height = 9000, .bits = 16, .colour = 6, .inflated = 650 * MIB}},
    {"png: one pixel that inflates to 2 GB", LT_E_FORMAT, "more memory", make_png_bomb, read_image, 192, {.width = 1, .height = 1, .bits = 8, .colour = 2, .inflated = 2000 * MIB}},
    {"png: 9900 x 9900 without data", LT_E_FORMAT, "cannot contain 9900 x 9900", make_png_bomb, read_image, 64, {.width = 9900, .height = 9900, .bits = 8}},
    {"png: 100000 x 100000", LT_E_FORMAT, "100000 x 100000 pixels are more", make_png_bomb, read_image, 64, {.width = 100000, .height = 100000, .bits = 8, .colour = 2}},
    {"jpeg: progressive, 11500 x 11500 without data", LT_E_FORMAT, "more than the", make_jpeg_bomb, read_image, 64, {.width = 11500}},
    {"jpeg: progressive, 9900 x 9900 without data", LT_E_FORMAT, "cannot contain 9900 x 9900", make_jpeg_bomb, read_image, 64, {.width = 9900}},
    {"jpeg: 400 scans of 8000 x 8000", LT_E_FORMAT, "scans of 8000 x 8000 pixels", make_jpeg_bomb, read_image, 768, {.width = 8000, .count = 400, .padded = 64 << 10}},
    {"jpeg: 600 scans of 100 x 100", LT_E_FORMAT, "501 scans", make_jpeg_bomb, read_image, 64, {.width = 100, .count = 600}},
    {"jpeg: more seconds than allowed", LT_E_FORMAT, "more than 0.02 seconds", make_jpeg_bomb, read_in_time, 768, {.width = 8000, .count = 400, .padded = 64 << 10}},
    {"tiff: 60000 x 60000", LT_E_FORMAT, "more than the", make_tiff_bomb, read_image, 64, {.width = 60000, .bits = 8}},
    {"tiff: 9000 x 9000 without data", LT_E_FORMAT, "cannot expand to a strip or tile of 81000000 bytes", make_tiff_bomb, read_image, 64, {.width = 9000, .bits = 8}},
    {"tiff: a strip of 4096 x 4096 of 16 bits is read in 6 bytes per pixel", LT_OK, "", make_tiff_bomb, read_image, 120, {.width = 4096, .bits = 16, .inflated = 33 * MIB}},
    {"tiff: 16 x 16 in a tile of 65520 x 65520", LT_E_FORMAT, "tiff: ", make_tiff_bomb, read_image, 192, {.width = 16, .tile = 65520, .bits = 8, .inflated = 2000 * MIB}},
    {"tiff: more seconds than allowed", LT_E_FORMAT, "more than 0.02 seconds", make_tiff_strips, read_in_time, 768, {.width = 9900}},
    {"webp: 16384 x 16384", LT_E_FORMAT, "more than the", make_webp_bomb, read_image, 64, {.width = 16384}},
    {"webp: 9900 x 9900 without data", LT_E_FORMAT, "webp: ", make_webp_bomb, read_image, 768, {.width = 9900}},
    {"avif: 37 x 22 pixels that claim to be 9000 x 9000", LT_E_FORMAT, "avif: ", make_avif_bomb, read_measured, 768, {.width = 9000, .name = "420.avif"}},
    {"avif: a grid of 16 cells of the whole's size", LT_E_FORMAT, "avif: ", make_avif_bomb, read_measured, 768, {.width = 2048, .name = "grid.avif"}},
    {"avif: a grid of 16 cells of 2048 x 2048 is read", LT_OK, "", make_avif_bomb, read_image, 768, {.name = "grid.avif"}},
    {"safetensors: a shape of 10 million extents", LT_E_FORMAT, "too many values", make_shape_bomb, read_tensors, 192, {.count = 10 * MIB}},
    {"safetensors: 200,000 tensors are read", LT_OK, "", make_many_tensors, read_tensors, 192, {.count = 200000}},
    {"idx: 3 MB of gzip with 3.2 GB", LT_E_FORMAT, "ends too early", make_idx_bomb, read_idx, 64, {.count = 3200, .inflated = UINT64_C(3200) * 1000 * 1000}},
    {"idx: a header that claims more images than the file has", LT_E_FORMAT, "ends too early", make_idx_bomb, read_idx, 192, {.count = 250, .inflated = 20 * 1000 * 1000}},
    {"control: without the pixel limit memory runs out", LT_E_NOMEM, "", make_png_bomb, read_any_size, 192, {.width = 9000, .height = 9000, .bits = 16, .colour = 6, .inflated = 650 * MIB}},
};
/* clang-format on */

/* --- The process --- */

/* The child's result. */
typedef struct result {
    lt_status status;
    char said[SAID];
} result;

static rlim_t memory_now(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void limit(int64_t memory)
{
    const struct rlimit cpu = {SECONDS, SECONDS};
    setrlimit(RLIMIT_CPU, &cpu);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they map terabytes */
    rlim_t most = memory_now() + (rlim_t)memory * MIB;
    const struct rlimit as = {most, most};
    setrlimit(RLIMIT_AS, &as);
#else
    (void)memory_now, (void)memory;
#endif
}

static void run_child(const bomb *b, const char *path, const uint8_t *bytes, size_t size, int out)
{
    result a = {0};
    limit(b->memory);
    a.status = b->read(path, bytes, size);
    if (a.status)
        snprintf(a.said, sizeof a.said, "%s", lt_error_message());
    _exit(write(out, &a, sizeof a) == sizeof a ? 0 : 1);
}

static void check_bomb(void **state)
{
    const bomb *b = *state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (b->want == LT_E_NOMEM) /* memory has no limit there */
        skip();
#endif
    char *folder = make_folder();
    char *path = below(folder, "bomb");
    size_t size = 0;
    uint8_t *bytes = b->make(&b->spec, &size);
    write_file(folder, "bomb", bytes, size);
    result a = {0};
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        run_child(b, path, bytes, size, ends[1]);
    close(ends[1]);
    bool received = read(ends[0], &a, sizeof a) == sizeof a;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!received)
        fail_msg("it ended by signal %d, status %d", WTERMSIG(status), WEXITSTATUS(status));
    if (a.status != LT_E_UNSUPPORTED && (a.status != b->want || !strstr(a.said, b->says)))
        fail_msg("status %d, want %d; it says '%s', want '%s'", (int)a.status, (int)b->want, a.said,
                 b->says);
    free(bytes);
    free(path);
    remove_folder(folder);
    if (a.status == LT_E_UNSUPPORTED) /* a build without that library */
        skip();
}

static void check_skipped(void **state)
{
    (void)state;
    static const char *const names[] = {"gif: 35 bytes of 11500 x 11500",
                                        "png: one pixel that inflates to 2 GB",
                                        "jpeg: progressive, 9900 x 9900 without data"};
    enum { BOMBS = COUNT_OF(names) };
    char *root = make_image_folder(), name[32];
    lt_device *device = NULL;
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_batch batch;
    int count = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bool wanted = false;
        for (int k = 0; k < BOMBS; k++)
            wanted = wanted || !strcmp(rows[i].name, names[k]);
        if (!wanted)
            continue;
        size_t size = 0;
        uint8_t *bytes = rows[i].make(&rows[i].spec, &size);
        snprintf(name, sizeof name, "class1/bomb%d.png", count++);
        write_file(root, name, bytes, size);
        free(bytes);
    }
    assert_int_equal(count, BOMBS);
    const lt_loader_config c = {
        .transform = {.size = 8}, .batch = 4, .threads = 2, .max_bad = BOMBS};
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_dataset_open(&d, root, true));
    assert_ok(lt_loader_new(&l, d, device, &c));
    lt_status st;
    while (!(st = lt_loader_next(l, &batch)))
        continue;
    assert_int_equal(st, LT_END);
    assert_int_equal(lt_loader_statistics(l).bad, BOMBS);
    lt_loader_free(&l);
    lt_dataset_free(&d);
    lt_device_close(&device);
    remove_folder(root);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[n++] = row_test(rows[i].name, check_bomb, &rows[i]);
    tests[n++] = (struct CMUnitTest){"the loader skips and counts them", check_skipped, 0, 0, 0};
    return _cmocka_run_group_tests("bombs", tests, n, NULL, NULL);
}
