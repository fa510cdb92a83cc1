/* bench loader: rate at which samples become batches, by stage; can write the first samples to a file. */

#include "bench.h"

#include "lather/data.h"
#include "lather/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TRAIN, EVAL };

typedef struct settings {
    bench_common common;
    const char *data, *dump, *size_schedule;
    int transform, interpolation, decode;
    double crop_pct, compute_ms, max_image_seconds;
    int64_t max_image_pixels, repeats, count, seed;
} settings;

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", TEXT("data", data), .value = "synthetic", .meta = "DIR", .help = "data set, as train_resnet50 --data"},
    {"Benchmark", PICK("transform", transform, "train|eval"), .help = "random-resized-crop and flip in random order, or resize and centre crop in order"},
    {"Benchmark", INT("size", common.model.size, 1, 4096), .value = "224", .help = "side of the input in pixels"},
    {"Benchmark", TEXT("image-size-schedule", size_schedule), .meta = "EPOCH:SIZE,...", .help = "sides of the input from these epochs on, instead of --size"},
    {"Benchmark", INT("repeated-aug", repeats, 1, 1000), .value = "1", .help = "train: times that an epoch visits an image"},
    {"Benchmark", PICK("interpolation", interpolation, "bilinear|bicubic"), .help = "filter of resizing, antialiased"},
    {"Benchmark", REAL("crop-pct", crop_pct, 0, 1), .value = "0", .help = "eval: share of the short side that the crop keeps; 0: 224 of 256"},
    {"Benchmark", PICK("decode", decode, "exact|fast"), .help = "fast: train decodes large crops of JPEG at 1/2, 1/4 or 1/8 of their size"},
    {"Benchmark", INT("max-image-pixels", max_image_pixels, 1, 1e15), .value = "100000000", .help = "width times height of an image to decode; larger ones count as corrupt"},
    {"Benchmark", REAL("max-image-seconds", max_image_seconds, 0.001, 1e15), .value = "10", .help = "core seconds to decode an image, except WebP and AVIF; slower ones count as corrupt"},
    {"Benchmark", INT("batch-size", common.model.batch, 1, 65536), .alias = 'b', .value = "32", .help = "samples of a batch"},
    {"Benchmark", INT("steps", common.steps, 0, 1e9), .value = "0", .help = "measured batches; 0: one epoch"},
    {"Benchmark", INT("warmup", common.warmup, 0, 1e6), .value = "0", .help = "batches before those"},
    {"Benchmark", REAL("compute-ms", compute_ms, 0, 1e6), .value = "0", .help = "milliseconds to wait after each batch, in place of training"},
    {"Benchmark", INT("seed", seed, 0, 1e15), .value = "0", .help = "random seed of order and crops"},
    {"Output", TEXT("dump", dump), .meta = "FILE", .help = "write the first inputs: images [M,C,S,S] and labels [M]"},
    {"Output", INT("count", count, 1, 1e6), .value = "32", .meta = "M", .help = "number of samples in --dump"},
};
/* clang-format on */

/* Reads a batch; starts the next epoch at the end of one. */
static lt_status next_batch(lt_loader *loader, lt_batch *batch)
{
    lt_status st = lt_loader_next(loader, batch);
    return st == LT_END ? lt_loader_next(loader, batch) : st;
}

/* Collects the first count samples of epoch 0. */
static lt_status collect(lt_loader *loader, uint8_t *images, int32_t *labels, int64_t count,
                         size_t sample)
{
    for (int64_t done = 0; done < count;) {
        lt_batch b;
        LT_TRY(next_batch(loader, &b));
        int64_t take = b.count < count - done ? b.count : count - done;
        size_t bytes = lt_tensor_bytes(b.inputs);
        uint8_t *all = malloc(bytes);
        int32_t *given = malloc(lt_tensor_bytes(b.labels));
        lt_status st = all && given ? lt_tensor_read(b.inputs, all, bytes) : LT_E_NOMEM;
        if (!st)
            st = lt_tensor_read(b.labels, given, lt_tensor_bytes(b.labels));
        for (size_t i = 0; !st && i < (size_t)take * sample; i++)
            images[(size_t)done * sample + i] = all[i];
        for (int64_t i = 0; !st && i < take; i++)
            labels[done + i] = given[i];
        free(all);
        free(given);
        LT_TRY(st);
        done += take;
    }
    return LT_OK;
}

static lt_status dump(lt_loader *loader, const lt_dataset *dataset, const settings *s)
{
    int channels = lt_dataset_channels(dataset);
    int64_t available = lt_dataset_count(dataset);
    int64_t count = s->count < available ? s->count : available;
    size_t sample = (size_t)(s->common.model.size * s->common.model.size) * (size_t)channels;
    uint8_t *images = malloc((size_t)count * sample);
    int32_t *labels = malloc((size_t)count * sizeof *labels);
    lt_safetensors_writer *writer = NULL;
    lt_status st = images && labels ? collect(loader, images, labels, count, sample)
                                    : lt_fail(LT_E_NOMEM, "bench: no memory for the samples");
    if (!st)
        st = lt_safetensors_create(&writer, s->dump);
    if (!st)
        st = lt_safetensors_add_host(
            writer, "images", LT_U8,
            LT_SHAPE(count, channels, s->common.model.size, s->common.model.size), images);
    if (!st)
        st = lt_safetensors_add_host(writer, "labels", LT_I32, LT_SHAPE(count), labels);
    if (!st)
        st = lt_safetensors_finish(&writer);
    lt_safetensors_discard(&writer);
    free(images);
    free(labels);
    return st;
}

/* Measurements of one run. */
typedef struct measured {
    int64_t steps;
    double seconds, cpu_seconds; /* cpu_seconds: sum over all threads */
    lt_loader_stats stats;
} measured;

static void print_json(const settings *s, const lt_device *device, int threads, const measured *m)
{
    const lt_loader_stats *t = &m->stats;
    double ms = 1e3 / (double)t->samples, batches = (double)t->batches;
    bench_print_header("loader", lt_device_name(device), "u8", s->common.model.batch, threads);
    printf(", \"images_per_second\": %.6g, \"steps\": %" PRId64 ", \"seconds\": %.6g, "
           "\"cpu_milliseconds\": %.6g, \"read_milliseconds\": %.6g, "
           "\"decode_milliseconds\": %.6g, \"resize_milliseconds\": %.6g, ",
           (double)t->samples / m->seconds, m->steps, m->seconds, m->cpu_seconds * ms,
           t->read_seconds * ms, t->decode_seconds * ms, t->resize_seconds * ms);
    printf("\"wait_seconds\": %.6g, \"idle_seconds\": %.6g, \"starved_batches\": %" PRId64 ", "
           "\"mean_queue\": %.6g, \"queue_room\": %d, \"bound\": \"%s\", \"bad_images\": %" PRId64
           ", "
           "\"peak_memory_bytes\": %" PRId64 "}\n",
           t->wait_seconds, t->idle_seconds, t->starved, (double)t->ready / batches, t->capacity,
           lt_loader_bound(t, m->seconds), t->bad, bench_process_bytes("VmHWM"));
}

static void print_result(const settings *s, const lt_device *device, const measured *m)
{
    const lt_loader_stats *t = &m->stats;
    double ms = 1e3 / (double)t->samples;
    int threads = s->common.threads ? (int)s->common.threads : lt_cpu_threads();
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
            lt_loader_bound(t, m->seconds), 100 * t->wait_seconds / m->seconds, t->starved,
            t->batches, (double)t->ready / (double)t->batches, t->capacity, t->bad);
    if (s->common.json)
        print_json(s, device, threads, m);
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
static lt_status measure(lt_loader *loader, const lt_device *device, const settings *s)
{
    lt_batch b;
    measured m = {.steps = s->common.steps ? s->common.steps : lt_loader_batches(loader)};
    for (int64_t i = 0; i < s->common.warmup; i++)
        LT_TRY(next_batch(loader, &b));
    lt_loader_stats before = lt_loader_statistics(loader);
    double begin = bench_seconds(), cpu = bench_core_seconds();
    for (int64_t i = 0; i < m.steps; i++) {
        LT_TRY(next_batch(loader, &b));
        rest(s->compute_ms);
    }
    m.seconds = bench_seconds() - begin;
    m.cpu_seconds = bench_core_seconds() - cpu;
    lt_loader_stats now = lt_loader_statistics(loader);
    m.stats = lt_loader_stats_since(&now, &before);
    print_result(s, device, &m);
    return LT_OK;
}

static lt_status run_loader(lt_device *device, lt_comm *comm, const void *values)
{
    settings s = *(const settings *)values;
    const bool train = s.transform == TRAIN;
    lt_loader_config config = {
        .transform = {.augment = train ? LT_AUGMENT_IMAGENET : LT_AUGMENT_NONE,
                      .size = (int)s.common.model.size,
                      .crop_ratio = s.crop_pct,
                      .filter = (lt_filter)s.interpolation,
                      .fast = s.decode != 0,
                      .limits = {s.max_image_pixels, s.max_image_seconds},
                      .flip = 0.5},
        .batch = (int)s.common.model.batch,
        .threads = (int)s.common.threads,
        .seed = (uint64_t)s.seed,
        .repeats = train ? (int)s.repeats : 1,
        .shuffle = train,
        .drop_last = false,
        .max_bad = -1,
    };
    lt_dataset *dataset = NULL;
    lt_loader *loader = NULL;
    (void)comm;
    if (s.size_schedule) {
        LT_TRY(lt_size_schedule_parse(&config.sizes, s.size_schedule));
        s.common.model.size = config.sizes.step[0].size; /* size of dumped images */
    }
    lt_status st = lt_dataset_open(&dataset, s.data, train);
    if (!st)
        st = lt_loader_new(&loader, dataset, device, &config);
    if (!st)
        st = measure(loader, device, &s);
    if (!st && s.dump)
        st = lt_loader_seek(loader, 0, 0);
    if (!st && s.dump)
        st = dump(loader, dataset, &s);
    lt_loader_free(&loader);
    lt_dataset_free(&dataset);
    return st;
}

BENCH_COMMAND(loader, BENCH_DEVICE, table, "time reading, decoding and transforming images");
