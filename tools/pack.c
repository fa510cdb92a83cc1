/* The pack program: converts any data set of train_resnet50 --data to record shards, which are read faster. */

#include "lather/pack.h"

#include "lather/ext/dataset.h"
#include "lather/options.h"
#include "lather/plugin.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct arguments {
    int mode;
    int64_t max_side, quality, shard_samples, threads, max_image_pixels;
    double max_image_seconds;
    bool verify, only_verify, quiet;
    lt_option_list plugin;
} arguments;

static const lt_option table[] = {
    {"Pack", "mode", 'm', LT_OPTION_CHOICE, offsetof(arguments, mode), .value = "lossless",
     .choices = "original|lossless|resized|raw",
     .help = "unchanged files; lossless JPEG transcoding; smaller JPEG; pixels"},
    {"Pack", "max-side", 0, LT_OPTION_INT, offsetof(arguments, max_side), .value = "500", .min = 1,
     .max = 16384, .help = "longest side in pixels for resized and raw"},
    {"Pack", "quality", 'q', LT_OPTION_INT, offsetof(arguments, quality), .value = "90", .min = 1,
     .max = 100, .help = "JPEG quality for resized"},
    {"Pack", "shard-samples", 0, LT_OPTION_INT, offsetof(arguments, shard_samples), .value = "0",
     .min = 0, .max = 1e9, .help = "images per shard; 0: 1/64 of all, 64 to 8192"},
    {"Pack", "threads", 'j', LT_OPTION_INT, offsetof(arguments, threads), .value = "0", .min = 0,
     .max = 256, .help = "worker threads; 0: one per core"},
    {"Pack", "max-image-pixels", 0, LT_OPTION_INT, offsetof(arguments, max_image_pixels),
     .value = "100000000", .min = 1, .max = 1e15,
     .help = "limit for width times height; larger images count as corrupt"},
    {"Pack", "max-image-seconds", 0, LT_OPTION_DOUBLE, offsetof(arguments, max_image_seconds),
     .value = "10", .min = 0.001, .max = 1e15,
     .help = "CPU time limit for decoding an image, except WebP and AVIF; slower ones are corrupt"},
    {"Pack", "verify", 0, LT_OPTION_BOOL, offsetof(arguments, verify),
     .help = "read and decode all records after writing"},
    {"Pack", "only-verify", 0, LT_OPTION_BOOL, offsetof(arguments, only_verify),
     .help = "verify PACK, write nothing"},
    {"Pack", "plugin", 0, LT_OPTION_LIST, offsetof(arguments, plugin), .meta = "FILE.so",
     .help = "load a shared object that adds data sets"},
    {"Pack", "quiet", 0, LT_OPTION_BOOL, offsetof(arguments, quiet), .help = "print no progress"},
};

static const lt_program program = {
    .name = "pack",
    .summary = "convert a data set to shards for faster reading",
    .usage = "[OPTION]... DATA PACK | --only-verify PACK",
    .description =
        "DATA is a data set as in train_resnet50 --data; if it has train and val, both are "
        "packed. Repeat an interrupted command to resume it. Corrupt images are skipped and "
        "listed in bad_images.txt.",
    .option = table,
    .count = sizeof table / sizeof *table,
    .rest = true,
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static bool show(void *context, const lt_pack_report *r)
{
    const arguments *a = context;
    if (!a->quiet)
        fprintf(stderr, "%s%" PRId64 " of %" PRId64 " images, %.1f MB%s", isatty(2) ? "\r" : "",
                r->samples, r->total, (double)r->bytes_out * 1e-6, isatty(2) ? "" : "\n");
    return !stop;
}

static void summarise(const char *folder, const lt_pack_report *r)
{
    printf("%s: %" PRId64 " images, %.1f MB", folder, r->samples - r->bad,
           (double)r->bytes_out * 1e-6);
    if (r->bytes_in)
        printf(", %.1f %% of the %.1f MB read", 100.0 * (double)r->bytes_out / (double)r->bytes_in,
               (double)r->bytes_in * 1e-6);
    if (r->found)
        printf("; %" PRId64 " already present and verified", r->found);
    printf("; %" PRId64 " unchanged, %" PRId64 " corrupt\n", r->kept, r->bad);
}

static lt_image_limits image_limits(const arguments *a)
{
    return (lt_image_limits){.pixels = a->max_image_pixels, .seconds = a->max_image_seconds};
}

static lt_status verify(const arguments *a, const char *folder)
{
    int64_t samples = 0;
    lt_image_limits limits = image_limits(a);
    lt_status st = lt_pack_verify(folder, &limits, &samples);
    if (!st)
        printf("%s: %" PRId64 " images verified\n", folder, samples);
    return st;
}

static lt_status pack_part(arguments *a, const char *data, bool train, const char *folder)
{
    lt_pack_config c = {.mode = (lt_pack_mode)a->mode,
                        .quality = (int)a->quality,
                        .shard_samples = a->shard_samples,
                        .threads = (int)a->threads,
                        .limits = image_limits(a)};
    if (c.mode == LT_PACK_RESIZED || c.mode == LT_PACK_RAW)
        c.max_side = (int)a->max_side;
    lt_dataset *d = NULL;
    lt_pack_report report;
    lt_status st = lt_dataset_open(&d, data, train);
    if (st)
        return st;
    if (!train && d->unsplit) { /* no part to evaluate */
        lt_dataset_free(&d);
        return LT_OK;
    }
    st = lt_pack_write(folder, d, &c, show, a, &report);
    lt_dataset_free(&d);
    if (!a->quiet && isatty(2))
        fputc('\n', stderr);
    if (!st)
        summarise(folder, &report);
    if (!st && a->verify)
        st = verify(a, folder);
    return st;
}

/* Returns true if DATA has the part train or val: a folder or tar files. */
static bool has_part(const char *data, const char *name)
{
    bool found = false;
    DIR *dir = opendir(data);
    for (const struct dirent *d; dir && !found && (d = readdir(dir));) {
        size_t bytes = strlen(d->d_name);
        bool tar = bytes > 4 && !strcmp(d->d_name + bytes - 4, ".tar");
        found =
            *d->d_name != '.' && (tar ? strstr(d->d_name, name) != NULL : !strcmp(d->d_name, name));
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Returns true if DATA has separate files for evaluation, as MNIST's and CIFAR's. */
static bool has_test_part(const char *data)
{
    lt_dataset *d = NULL;
    if (!strncmp(data, "synthetic", strlen("synthetic")) || lt_dataset_open(&d, data, false))
        return false;
    const bool found = !d->unsplit;
    lt_dataset_free(&d);
    return found;
}

static lt_status pack_all(arguments *a, const char *data, const char *out)
{
    static const char *const parts[] = {"val", "train"};
    const bool has_val = has_part(data, "val"), has_train = has_part(data, "train");
    char folder[4096];
    if (!has_val && !has_train && !has_test_part(data))
        return pack_part(a, data, true, out);
    for (int train = 0; train < 1 + (has_train || !has_val); train++) {
        snprintf(folder, sizeof folder, "%s/%s", out, parts[train]);
        lt_status st = pack_part(a, data, train, folder);
        if (st)
            return st;
    }
    return LT_OK;
}

static lt_status run(const lt_options *options, arguments *a)
{
    const char *first = lt_options_positional(options, 0);
    return a->only_verify ? verify(a, first)
                          : pack_all(a, first, lt_options_positional(options, 1));
}

/* Prints an error and returns the exit status. */
static int report(lt_status st)
{
    if (st == LT_END)
        fprintf(stderr, "pack: interrupted; repeat the command to resume\n");
    else if (st)
        fprintf(stderr, "pack: %s\n", lt_error_message());
    return st ? 1 : 0;
}

int main(int argc, char **argv)
{
    arguments a = {0};
    lt_options *options = NULL;
    int status = 2;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGXFSZ, SIG_IGN); /* EFBIG */
    if (lt_plugin_load_arguments(argc, argv, "pack") || lt_options_new(&options, &program, &a)
        || lt_options_parse(options, argc, argv))
        fprintf(stderr, "pack: %s\n", lt_error_message());
    else if (lt_options_requested(options) != LT_OPTIONS_RUN)
        status = report(lt_options_print_request(options, stdout));
    else if (lt_options_positional_count(options) != (a.only_verify ? 1U : 2U))
        fprintf(stderr, "pack: %s\n",
                a.only_verify ? "--only-verify needs one argument, PACK"
                              : "the arguments DATA and PACK are required");
    else
        status = report(run(options, &a));
    lt_options_free(&options);
    return status;
}
