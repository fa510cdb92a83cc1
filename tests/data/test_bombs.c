/* Files that are small and claim to be large: each is refused, or read within memory and time in
 * proportion to what it honestly holds. Each runs in a process with a limit on its memory and five
 * seconds of a core. */

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

enum { SECONDS = 5, MIB = 1 << 20, SAID = 512 };

typedef struct bomb {
    const char *name;
    lt_status want;
    const char *says; /* part of the message */
    uint8_t *(*make)(size_t *size);
    lt_status (*read)(const char *path, const uint8_t *bytes, size_t size);
    int64_t memory; /* MiB that the process may take beyond what it has */
} bomb;

/* --- Makers --- */

static uint8_t *gif_above(size_t *size)
{
    return make_gif_bomb(11500, size);
}

static uint8_t *gif_below(size_t *size)
{
    return make_gif_bomb(9900, size);
}

static uint8_t *gif_codes(size_t *size)
{
    return make_gif_codes(2 * MIB, size);
}

static uint8_t *png_grey(size_t *size)
{
    const png_spec s = {4095, 8192, 8, 0, (size_t)32 * MIB};
    return make_png_bomb(&s, size);
}

static uint8_t *png_blocks(size_t *size)
{
    return make_png_blocks(8 * MIB, size);
}

static uint8_t *png_deep(size_t *size)
{
    const png_spec s = {9000, 9000, 16, 6, (size_t)650 * MIB};
    return make_png_bomb(&s, size);
}

static uint8_t *png_liar(size_t *size)
{
    const png_spec s = {1, 1, 8, 2, (size_t)2000 * MIB};
    return make_png_bomb(&s, size);
}

static uint8_t *png_empty(size_t *size)
{
    const png_spec s = {9900, 9900, 8, 0, 0};
    return make_png_bomb(&s, size);
}

static uint8_t *png_sides(size_t *size)
{
    const png_spec s = {100000, 100000, 8, 2, 0};
    return make_png_bomb(&s, size);
}

static uint8_t *jpeg_above(size_t *size)
{
    return make_jpeg_bomb(11500, 0, 0, size);
}

static uint8_t *jpeg_below(size_t *size)
{
    return make_jpeg_bomb(9900, 0, 0, size);
}

static uint8_t *jpeg_scans(size_t *size)
{
    return make_jpeg_bomb(8000, 400, 64 << 10, size);
}

static uint8_t *jpeg_small_scans(size_t *size)
{
    return make_jpeg_bomb(100, 600, 0, size);
}

static uint8_t *tiff_above(size_t *size)
{
    return make_tiff_bomb(60000, 0, 8, 0, size);
}

static uint8_t *tiff_empty(size_t *size)
{
    return make_tiff_bomb(9000, 0, 8, 0, size);
}

static uint8_t *tiff_deep(size_t *size)
{
    return make_tiff_bomb(4096, 0, 16, 33 * MIB, size);
}

static uint8_t *tiff_tiles(size_t *size)
{
    return make_tiff_bomb(16, 65520, 8, (size_t)2000 * MIB, size);
}

static uint8_t *tiff_strips(size_t *size)
{
    return make_tiff_strips(9900, size);
}

static uint8_t *webp_above(size_t *size)
{
    return make_webp_bomb(16384, size);
}

static uint8_t *webp_empty(size_t *size)
{
    return make_webp_bomb(9900, size);
}

/* 37 x 22 pixels, which libavif would scale. */
static uint8_t *avif_scaled(size_t *size)
{
    return make_avif_bomb("420.avif", 9000, size);
}

static uint8_t *avif_grid(size_t *size)
{
    return read_format("grid.avif", size);
}

/* 16 cells, each as large as the whole. */
static uint8_t *avif_cells(size_t *size)
{
    return make_avif_bomb("grid.avif", 2048, size);
}

static uint8_t *shape_bomb(size_t *size)
{
    return make_shape_bomb(10 * MIB, size);
}

static uint8_t *many_tensors(size_t *size)
{
    return make_many_tensors(200000, size);
}

static uint8_t *idx_full(size_t *size)
{
    return make_idx_bomb(3200, 3200, size);
}

static uint8_t *idx_liar(size_t *size)
{
    return make_idx_bomb(250, 20, size);
}

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

/* A tenth of what the fastest of these files took on a core of 2024, so that faster ones fail too. */
/* The quickest of its files takes 0.18 seconds of a fast core: a limit that each exceeds. */
static lt_status read_in_time(const char *path, const uint8_t *bytes, size_t size)
{
    const lt_image_limits limits = {.pixels = INT64_C(1) << 40, .seconds = 0.02};
    (void)path;
    return read_with(bytes, size, &limits);
}

/* What has failed for want of memory in a library says only that it failed: this looks at the memory it took. */
static lt_status read_and_look(const char *path, const uint8_t *bytes, size_t size)
{
    enum { KIB = 1024 };
    struct rusage before, after;
    (void)path;
    getrusage(RUSAGE_SELF, &before);
    const lt_status st = read_with(bytes, size, NULL);
    getrusage(RUSAGE_SELF, &after);
    const long mib = (after.ru_maxrss - before.ru_maxrss) / KIB;
    return mib > 32 ? lt_fail(LT_E_NOMEM, "it took %ld MiB", mib) : st;
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
    {"gif: 35 bytes of 11500 x 11500", LT_E_FORMAT, "more than the 100000000 allowed", gif_above, read_image, 64},
    {"gif: 35 bytes of 9900 x 9900", LT_E_FORMAT, "a file of 35 bytes cannot contain 9900 x 9900", gif_below, read_image, 64},
    {"gif: 3 MB of codes behind the last pixel", LT_E_FORMAT, "more than 0.02 seconds", gif_codes, read_in_time, 64},
    {"png: 4095 x 8192 of grey are read", LT_OK, "", png_grey, read_image, 512},
    {"png: a pixel behind 8 million blocks without data is read", LT_OK, "", png_blocks, read_image, 192},
    {"png: 9000 x 9000 of four times 16 bits", LT_E_FORMAT, "more memory", png_deep, read_image, 64},
    {"png: one pixel that inflates to 2 GB", LT_E_FORMAT, "more memory", png_liar, read_image, 192},
    {"png: 9900 x 9900 without data", LT_E_FORMAT, "cannot contain 9900 x 9900", png_empty, read_image, 64},
    {"png: 100000 x 100000", LT_E_FORMAT, "100000 x 100000 pixels are more", png_sides, read_image, 64},
    {"jpeg: progressive, 11500 x 11500 without data", LT_E_FORMAT, "more than the", jpeg_above, read_image, 64},
    {"jpeg: progressive, 9900 x 9900 without data", LT_E_FORMAT, "cannot contain 9900 x 9900", jpeg_below, read_image, 64},
    {"jpeg: 400 scans of 8000 x 8000", LT_E_FORMAT, "scans of 8000 x 8000 pixels", jpeg_scans, read_image, 768},
    {"jpeg: 600 scans of 100 x 100", LT_E_FORMAT, "501 scans", jpeg_small_scans, read_image, 64},
    {"jpeg: more seconds than allowed", LT_E_FORMAT, "more than 0.02 seconds", jpeg_scans, read_in_time, 768},
    {"tiff: 60000 x 60000", LT_E_FORMAT, "more than the", tiff_above, read_image, 64},
    {"tiff: 9000 x 9000 without data", LT_E_FORMAT, "cannot expand to a strip or tile of 81000000 bytes", tiff_empty, read_image, 64},
    {"tiff: a strip of 4096 x 4096 of 16 bits is read in 6 bytes a pixel", LT_OK, "", tiff_deep, read_image, 120},
    {"tiff: 16 x 16 in a tile of 65520 x 65520", LT_E_FORMAT, "tiff: ", tiff_tiles, read_image, 192},
    {"tiff: more seconds than allowed", LT_E_FORMAT, "more than 0.02 seconds", tiff_strips, read_in_time, 768},
    {"webp: 16384 x 16384", LT_E_FORMAT, "more than the", webp_above, read_image, 64},
    {"webp: 9900 x 9900 without data", LT_E_FORMAT, "webp: ", webp_empty, read_image, 768},
    {"avif: 37 x 22 pixels that claim to be 9000 x 9000", LT_E_FORMAT, "avif: ", avif_scaled, read_and_look, 768},
    {"avif: a grid of 16 cells of the whole's size", LT_E_FORMAT, "avif: ", avif_cells, read_and_look, 768},
    {"avif: a grid of 16 cells of 2048 x 2048 is read", LT_OK, "", avif_grid, read_image, 768},
    {"safetensors: a shape of 10 million extents", LT_E_FORMAT, "more values than", shape_bomb, read_tensors, 192},
    {"safetensors: 200,000 tensors are read", LT_OK, "", many_tensors, read_tensors, 192},
    {"idx: 3 MB of gzip that hold 3.2 GB", LT_E_FORMAT, "ends too early", idx_full, read_idx, 64},
    {"idx: a header that claims more than the file holds", LT_E_FORMAT, "ends too early", idx_liar, read_idx, 192},
    {"control: what is allowed to take more runs out of memory", LT_E_NOMEM, "", png_deep, read_any_size, 192},
};
/* clang-format on */

/* --- The process --- */

/* What the child tells. */
typedef struct answer {
    lt_status status;
    char said[SAID];
} answer;

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
    answer a = {0};
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
    if (b->want == LT_E_NOMEM) /* memory has no limit then */
        skip();
#endif
    char *folder = make_folder();
    char *path = below(folder, "bomb");
    size_t size = 0;
    uint8_t *bytes = b->make(&size);
    write_file(folder, "bomb", bytes, size);
    answer a = {0};
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        run_child(b, path, bytes, size, ends[1]);
    close(ends[1]);
    bool told = read(ends[0], &a, sizeof a) == sizeof a;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!told)
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

/* --- Among others --- */

/* One of each kind among good images is skipped and counted. */
static void check_skipped(void **state)
{
    (void)state;
    uint8_t *(*const makers[])(size_t *) = {gif_above, png_liar, jpeg_below};
    enum { BOMBS = sizeof makers / sizeof *makers };
    char *root = make_image_folder(), name[32];
    lt_device *device = NULL;
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_batch batch;
    for (int i = 0; i < BOMBS; i++) {
        size_t size = 0;
        uint8_t *bytes = makers[i](&size);
        snprintf(name, sizeof name, "class1/bomb%d.png", i);
        write_file(root, name, bytes, size);
        free(bytes);
    }
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
        tests[n++] = (struct CMUnitTest){rows[i].name, check_bomb, NULL, NULL, &rows[i]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(check_skipped);
    return _cmocka_run_group_tests("bombs", tests, n, NULL, NULL);
}
