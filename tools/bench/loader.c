/* bench loader: how fast samples become batches, by stage, and the first of them in a file. */

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
    const char *data, *device, *dump, *size_schedule;
    int transform, interpolation, decode;
    double crop_pct, compute_ms, max_image_seconds;
    int64_t max_image_pixels, repeats, size, batch_size, steps, warmup, count, threads, seed;
    bool json;
} settings;

#define AT(field) offsetof(settings, field)

/* clang-format off */
static const lt_option table[] = {
    {.group = "Benchmark", .name = "data", .type = LT_OPTION_STRING, .offset = AT(data),
     .value = "synthetic", .meta = "DIR",
     .help = "what train_resnet50 --data takes"},
    {.group = "Benchmark", .name = "transform", .type = LT_OPTION_CHOICE, .offset = AT(transform),
     .choices = "train|eval",
     .help = "random-resized-crop and flip in random order, or resize and centre crop in order"},
    {.group = "Benchmark", .name = "size", .type = LT_OPTION_INT, .offset = AT(size),
     .value = "224", .min = 1, .max = 4096, .help = "side of the input in pixels"},
    {.group = "Benchmark", .name = "image-size-schedule", .type = LT_OPTION_STRING,
     .offset = AT(size_schedule), .meta = "EPOCH:SIZE,...",
     .help = "sides of the input from these epochs on, instead of --size"},
    {.group = "Benchmark", .name = "repeated-aug", .type = LT_OPTION_INT, .offset = AT(repeats),
     .value = "1", .min = 1, .max = 1000, .help = "train: times that an epoch visits an image"},
    {.group = "Benchmark", .name = "interpolation", .type = LT_OPTION_CHOICE,
     .offset = AT(interpolation), .choices = "bilinear|bicubic",
     .help = "filter of resizing, antialiased"},
    {.group = "Benchmark", .name = "crop-pct", .type = LT_OPTION_DOUBLE, .offset = AT(crop_pct),
     .value = "0", .min = 0, .max = 1,
     .help = "eval: share of the short side that the crop keeps; 0: 224 of 256"},
    {.group = "Benchmark", .name = "decode", .type = LT_OPTION_CHOICE, .offset = AT(decode),
     .choices = "exact|fast",
     .help = "fast: train decodes large crops of JPEG at 1/2, 1/4 or 1/8 of their size"},
    {.group = "Benchmark", .name = "max-image-pixels", .type = LT_OPTION_INT,
     .offset = AT(max_image_pixels), .value = "100000000", .min = 1, .max = 1e15,
     .help = "width times height of an image to decode; larger ones are broken"},
    {.group = "Benchmark", .name = "max-image-seconds", .type = LT_OPTION_DOUBLE,
     .offset = AT(max_image_seconds), .value = "10", .min = 0.001, .max = 1e15,
     .help = "of one core to decode an image, but for WebP and AVIF; one that takes longer is broken"},
    {.group = "Benchmark", .name = "batch-size", .alias = 'b', .type = LT_OPTION_INT,
     .offset = AT(batch_size), .value = "32", .min = 1, .max = 65536, .help = "samples of a batch"},
    {.group = "Benchmark", .name = "steps", .type = LT_OPTION_INT, .offset = AT(steps),
     .value = "0", .min = 0, .max = 1e9, .help = "measured batches; 0: one epoch"},
    {.group = "Benchmark", .name = "warmup", .type = LT_OPTION_INT, .offset = AT(warmup),
     .value = "0", .min = 0, .max = 1e6, .help = "batches before those"},
    {.group = "Benchmark", .name = "compute-ms", .type = LT_OPTION_DOUBLE,
     .offset = AT(compute_ms), .value = "0", .min = 0, .max = 1e6,
     .help = "rest so long after each batch, as if it were trained on"},
    {.group = "Benchmark", .name = "seed", .type = LT_OPTION_INT, .offset = AT(seed),
     .value = "0", .min = 0, .max = 1e15, .help = "of order and crops"},
    {.group = "Machine", .name = "device", .type = LT_OPTION_STRING, .offset = AT(device),
     .value = "cpu", .help = "ref, cpu, cuda"},
    {.group = "Machine", .name = "threads", .alias = 't', .type = LT_OPTION_INT,
     .offset = AT(threads), .value = "0", .min = 0, .max = 1024,
     .help = "decoding threads; 0: as many as allowed"},
    {.group = "Output", .name = "json", .type = LT_OPTION_BOOL, .offset = AT(json),
     .help = "print one JSON object on stdout"},
    {.group = "Output", .name = "dump", .type = LT_OPTION_STRING, .offset = AT(dump),
     .meta = "FILE", .help = "write the first inputs: images [M,C,S,S] and labels [M]"},
    {.group = "Output", .name = "count", .type = LT_OPTION_INT, .offset = AT(count),
     .value = "32", .min = 1, .max = 1e6, .meta = "M", .help = "how many of them"},
};
/* clang-format on */

static const lt_program program = {
    .name = "bench loader",
    .summary = "time the data pipeline",
    .usage = "--data DIR [OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

/* Starts the next epoch where one ends. */
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
    size_t sample = (size_t)(s->size * s->size) * (size_t)channels;
    uint8_t *images = malloc((size_t)count * sample);
    int32_t *labels = malloc((size_t)count * sizeof *labels);
    lt_safetensors_writer *writer = NULL;
    lt_status st = images && labels ? collect(loader, images, labels, count, sample)
                                    : lt_fail(LT_E_NOMEM, "bench: no memory for the samples");
    if (!st)
        st = lt_safetensors_create(&writer, s->dump);
    if (!st)
        st = lt_safetensors_add_host(writer, "images", LT_U8,
                                     LT_SHAPE(count, channels, s->size, s->size), images);
    if (!st)
        st = lt_safetensors_add_host(writer, "labels", LT_I32, LT_SHAPE(count), labels);
    if (!st)
        st = lt_safetensors_finish(&writer);
    lt_safetensors_discard(&writer);
    free(images);
    free(labels);
    return st;
}

/* What was measured. */
typedef struct measured {
    int64_t steps;
    double seconds, cpu_seconds; /* of all threads */
    lt_loader_stats stats;
} measured;

static void print_json(const settings *s, const lt_device *device, int threads, const measured *m)
{
    const lt_loader_stats *t = &m->stats;
    double ms = 1e3 / (double)t->samples, batches = (double)t->batches;
    bench_header header = {"loader", lt_device_name(device), "u8", (int)s->batch_size, threads};
    bench_print_header(&header);
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
    int threads = s->threads ? (int)s->threads : lt_cpu_threads();
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
    if (s->json)
        print_json(s, device, threads, m);
}

static void rest(double ms)
{
    const struct timespec t = {.tv_sec = (time_t)(ms / 1e3),
                               .tv_nsec = (long)(fmod(ms, 1e3) * 1e6)};
    if (ms > 0)
        nanosleep(&t, NULL);
}

/* The clock starts with the first sample, before any thread has worked, unless there is a warm-up:
 * then what was made ahead would count for nothing. */
static lt_status measure(lt_loader *loader, const lt_device *device, const settings *s)
{
    lt_batch b;
    measured m = {.steps = s->steps ? s->steps : lt_loader_batches(loader)};
    for (int64_t i = 0; i < s->warmup; i++)
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

lt_status bench_loader(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    bool train = s.transform == TRAIN;
    lt_loader_config config = {
        .transform = {.augment = train ? LT_AUGMENT_IMAGENET : LT_AUGMENT_NONE,
                      .size = (int)s.size,
                      .crop_ratio = s.crop_pct,
                      .filter = (lt_filter)s.interpolation,
                      .fast = s.decode != 0,
                      .limits = {s.max_image_pixels, s.max_image_seconds},
                      .flip = 0.5},
        .batch = (int)s.batch_size,
        .threads = (int)s.threads,
        .seed = (uint64_t)s.seed,
        .repeats = train ? (int)s.repeats : 1,
        .shuffle = train,
        .drop_last = false,
        .max_bad = -1,
    };
    if (s.size_schedule) {
        LT_TRY(lt_size_schedule_parse(&config.sizes, s.size_schedule));
        s.size = config.sizes.step[0].size; /* of what is dumped */
    }
    lt_device *device = NULL;
    lt_dataset *dataset = NULL;
    lt_loader *loader = NULL;
    lt_status st = lt_device_open(&device, s.device, NULL);
    if (!st)
        st = lt_dataset_open(&dataset, s.data, train);
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
    lt_device_close(&device);
    return st;
}
