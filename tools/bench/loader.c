/* bench loader: rate at which samples become batches, by stage. */

#include "bench.h"

#include "lather/data.h"
#include "lather/ops/norm.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

typedef struct settings {
    bench_common common;
    const char *data;
    int decode;
    double compute_ms;
    bool normalize;
} settings;
static settings s;

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", TEXT("data", data), .value = "synthetic", .meta = "DIR", .help = "data set, as train_resnet50 --data"},
    {"Benchmark", PLUGIN},
    {"Benchmark", INT("size", common.model.size, 1, 4096), .value = "224", .help = "side of the input in pixels, cut at random and flipped as in training"},
    {"Benchmark", PICK("decode", decode, "exact|fast"), .help = "fast: train decodes large crops of JPEG at 1/2, 1/4 or 1/8 of their size"},
    {"Benchmark", FLAG("normalize", normalize), .help = "normalize each batch to f32 on the device, as training does"},
    {"Benchmark", INT("batch-size", common.model.batch, 1, 65536), .alias = 'b', .value = "32", .help = "samples of a batch"},
    {"Benchmark", INT("steps", common.steps, 0, 1e9), .value = "0", .help = "measured batches; 0: one epoch"},
    {"Benchmark", INT("warmup", common.warmup, 0, 1e6), .value = "0", .help = "batches before those"},
    {"Benchmark", REAL("compute-ms", compute_ms, 0, 1e6), .value = "0", .help = "milliseconds to wait after each batch, in place of training"},
};
/* clang-format on */

/* Reads a batch; starts the next epoch at the end of one. tape: NULL without --normalize. */
static lt_status next_batch(lt_loader *loader, lt_tape *tape)
{
    const lt_normalize_config imagenet = LT_NORMALIZE_IMAGENET;
    lt_batch batch;
    lt_status st = lt_loader_next(loader, &batch);
    if (st == LT_END)
        st = lt_loader_next(loader, &batch);
    if (st || !tape)
        return st;
    lt_tape_reset(tape, LT_PASS_EVAL);
    lt_normalize(tape, batch.inputs, &imagenet);
    return lt_tape_status(tape);
}

/* Measurements of one run. */
typedef struct measured {
    int64_t steps;
    double seconds, cpu_seconds; /* cpu_seconds: sum over all threads */
    lt_loader_stats stats;
} measured;

static void print_result(const lt_device *device, const measured *m)
{
    const lt_loader_stats *t = &m->stats;
    double ms = 1e3 / (double)t->samples;
    int threads = s.common.threads ? (int)s.common.threads : lt_cpu_threads();
    fprintf(stderr,
            "%" PRId64 " images in %.2f s: %.1f images/s on %d threads, %.3f ms of CPU an image\n"
            "a thread's time for an image: read %.3f ms, decode %.3f ms, resize %.3f ms, idle %.3f "
            "ms\n",
            t->samples, m->seconds, (double)t->samples / m->seconds, threads, m->cpu_seconds * ms,
            t->read_seconds * ms, t->decode_seconds * ms, t->resize_seconds * ms,
            t->idle_seconds * ms);
    fprintf(stderr,
            "%s: %.1f %% of the time waited for a batch, %" PRId64 " of %" PRId64
            " not ready; %.1f of %d ready in the mean\n%" PRId64 " broken images\n",
            lt_loader_bottleneck(t, m->seconds), 100 * t->wait_seconds / m->seconds, t->starved,
            t->batches, (double)t->ready / (double)t->batches, t->capacity, t->bad);
    bench_print_header("loader", lt_device_name(device), s.normalize ? "f32" : "u8",
                       s.common.model.batch, threads);
    bench_print_fields("images_per_second %g steps %" PRId64 " seconds %g cpu_milliseconds %g "
                       "read_milliseconds %g decode_milliseconds %g resize_milliseconds %g "
                       "wait_seconds %g idle_seconds %g starved_batches %" PRId64 " mean_queue %g "
                       "queue_room %d bound %s bad_images %" PRId64 " peak_memory_bytes %" PRId64,
                       (double)t->samples / m->seconds, m->steps, m->seconds, m->cpu_seconds * ms,
                       t->read_seconds * ms, t->decode_seconds * ms, t->resize_seconds * ms,
                       t->wait_seconds, t->idle_seconds, t->starved,
                       (double)t->ready / (double)t->batches, t->capacity,
                       lt_loader_bottleneck(t, m->seconds), t->bad, bench_process_bytes("VmHWM"));
}

static void rest(double ms)
{
    const struct timespec t = {.tv_sec = (time_t)(ms / 1e3),
                               .tv_nsec = (long)(fmod(ms, 1e3) * 1e6)};
    if (ms > 0)
        nanosleep(&t, NULL);
}

/* Without a warm-up the clock starts before any thread has prepared a sample. After a warm-up, samples
 * prepared in advance are not part of the measured time. */
static lt_status measure(lt_loader *loader, lt_tape *tape, const lt_device *device)
{
    measured m = {.steps = s.common.steps ? s.common.steps : lt_loader_batches(loader)};
    for (int64_t i = 0; i < s.common.warmup; i++)
        LT_TRY(next_batch(loader, tape));
    lt_loader_stats before = lt_loader_statistics(loader);
    double begin = bench_seconds(), cpu = bench_core_seconds();
    for (int64_t i = 0; i < m.steps; i++) {
        LT_TRY(next_batch(loader, tape));
        rest(s.compute_ms);
    }
    m.seconds = bench_seconds() - begin;
    m.cpu_seconds = bench_core_seconds() - cpu;
    lt_loader_stats now = lt_loader_statistics(loader);
    m.stats = lt_loader_stats_since(&now, &before);
    print_result(device, &m);
    return LT_OK;
}

static lt_status run_loader(lt_device *device, lt_comm *comm)
{
    const lt_loader_config config = {
        .transform = {.augment = LT_AUGMENT_IMAGENET,
                      .size = (int)s.common.model.size,
                      .fast = s.decode != 0,
                      .limits = {100000000, 10},
                      .flip = 0.5},
        .batch = (int)s.common.model.batch,
        .threads = (int)s.common.threads,
        .repeats = 1,
        .shuffle = true,
        .max_bad = -1,
    };
    lt_dataset *dataset = NULL;
    lt_loader *loader = NULL;
    lt_tape *tape = NULL;
    (void)comm;
    lt_status st = lt_dataset_open(&dataset, s.data, true);
    if (!st)
        st = lt_loader_new(&loader, dataset, device, &config);
    if (!st)
        st = lt_tape_new(&tape, device);
    if (!st)
        st = measure(loader, s.normalize ? tape : NULL, device);
    lt_tape_free(&tape);
    lt_loader_free(&loader);
    lt_dataset_free(&dataset);
    return st;
}

BENCH_COMMAND(loader, BENCH_DEVICE, table, "time reading, decoding and transforming images");
