/* bench overlap: how much of the gradients' way is hidden behind backward. Steps with overlap,
 * without it, and without any communication take turns, so that a busy machine slows down all three
 * alike; what is left of the first two beyond the third is exposed. With --gradient-noise, steps that
 * measure the norms of ranks' gradients too take their turn beside them. */

#include "ranks.h"
#include "resnet.h"

#include "lather/data_parallel.h"
#include "lather/ops.h"
#include "lather/optim_config.h"
#include "lather/topology.h"

#include <stdio.h>
#include <stdlib.h>

enum { WITH, WITHOUT, NORMS, NONE, MODES, EXCHANGES = NONE };

typedef struct settings {
    const char *arch, *device, *link, *allreduce, *compress;
    int amp, dtype; /* indices of choices */
    int64_t batch, size, threads, rounds, ranks, ranks_per_node;
    double bucket_mib;
    bool noise, json;
} settings;

#define AT(field)           .offset = offsetof(settings, field)
#define INT(n, field, a, b) .name = (n), .type = LT_OPTION_INT, AT(field), .min = (a), .max = (b)
#define TEXT(n, field)      .name = (n), .type = LT_OPTION_STRING, AT(field)
#define PICK(n, f, list)    .name = (n), .type = LT_OPTION_CHOICE, AT(f), .choices = (list)

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", TEXT("arch", arch), .value = "resnet50", .help = "network: resnet18, 34, 50, 101, 152"},
    {"Benchmark", INT("batch-size", batch, 1, 65536), .alias = 'b', .value = "16", .help = "images per rank and step"},
    {"Benchmark", INT("image-size", size, 1, 4096), .value = "224", .help = "side of the images in pixels"},
    {"Benchmark", PICK("amp", amp, "off|bf16"), .help = "dtype of activations; off is f32"},
    {"Benchmark", INT("steps", rounds, 1, 100000), .value = "5", .help = "measured steps of each kind"},
    {"Ranks", TEXT("allreduce", allreduce), .meta = "NAME", .value = "flat", .help = "flat, two-level, or auto"},
    {"Ranks", TEXT("compress", compress), .meta = "NAME", .value = "off", .help = "what --compress of a trainer takes"},
    BENCH_RANKS_OPTIONS(settings, 2),
    BENCH_NODES_OPTION(settings),
    {"Ranks", PICK("grad-comm-dtype", dtype, "f32|bf16|f16"), .help = "dtype of gradients on the way"},
    {"Ranks", .name = "bucket-mib", .type = LT_OPTION_DOUBLE, AT(bucket_mib), .min = 0.001, .max = 4096, .value = "25", .help = "size of a bucket of gradients"},
    {"Ranks", .name = "gradient-noise", .type = LT_OPTION_BOOL, AT(noise), .help = "time steps with the norms that --gradient-noise of a trainer measures too"},
    BENCH_MACHINE_OPTIONS(settings),
};
/* clang-format on */

static const lt_program program = {
    .name = "bench overlap",
    .summary = "time a training step of several ranks with and without overlap",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

/* A rank's own. Zeroed parts are not there yet. */
typedef struct player {
    const settings *s;
    lt_device *device;
    lt_comm *comm;
    lt_nodes nodes;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape[EXCHANGES]; /* each listens to its own backward */
    lt_data_parallel *dp[EXCHANGES];
    lt_tensor *images, *labels;
    int64_t attempt;
    double *seconds[MODES], *waited[EXCHANGES];
    uint64_t bytes; /* sent in a step */
} player;

static bool is_on(const player *p, int mode)
{
    return mode != NORMS || p->s->noise;
}

static lt_status open_modes(player *p)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    for (int mode = 0; mode < EXCHANGES; mode++) {
        lt_data_parallel_config c = {.bucket_bytes = (size_t)(p->s->bucket_mib * 0x1p20),
                                     .dtype = dtypes[p->s->dtype],
                                     .no_overlap = mode == WITHOUT,
                                     .norms = mode == NORMS,
                                     .allreduce = p->s->allreduce,
                                     .compress = p->s->compress,
                                     .nodes = &p->nodes};
        if (!is_on(p, mode))
            continue;
        LT_TRY(lt_tape_new(&p->tape[mode], p->device));
        LT_TRY(lt_data_parallel_new(&p->dp[mode], p->comm, &p->params, p->tape[mode], &c));
    }
    return LT_OK;
}

static lt_status open_player(player *p)
{
    enum { CLASSES = 1000 };
    const settings *s = p->s;
    lt_resnet_config model = {.arch = s->arch, .classes = CLASSES};
    LT_TRY(lt_comm_nodes(&p->nodes, p->comm, (int)s->ranks_per_node));
    LT_TRY(lt_resnet_new(&p->model, p->device, &model));
    LT_TRY(lt_module_params(p->model, &p->params));
    LT_TRY(lt_optim_open(&p->optim, "sgd", &p->params));
    LT_TRY(lt_tensor_new_as(&p->images, p->device, LT_U8, LT_SHAPE(s->batch, 3, s->size, s->size),
                            LT_FORMAT_CHANNELS_LAST));
    LT_TRY(lt_tensor_new(&p->labels, p->device, LT_I32, LT_SHAPE(s->batch)));
    LT_TRY(bench_fill_random(p->images, 256, 1 + (uint64_t)lt_comm_rank(p->comm)));
    LT_TRY(bench_fill_random(p->labels, CLASSES, 2));
    for (int mode = 0; mode < MODES; mode++)
        if (!(p->seconds[mode] = calloc((size_t)s->rounds, sizeof(double))))
            return LT_E_NOMEM;
    for (int mode = 0; mode < EXCHANGES; mode++)
        if (!(p->waited[mode] = calloc((size_t)s->rounds, sizeof(double))))
            return LT_E_NOMEM;
    return open_modes(p);
}

static void close_player(player *p)
{
    for (int i = 0; i < EXCHANGES; i++) {
        lt_data_parallel_free(&p->dp[i]);
        lt_tape_free(&p->tape[i]);
        free(p->waited[i]);
    }
    lt_optim_free(&p->optim);
    lt_params_clear(&p->params);
    lt_module_free(&p->model);
    lt_tensor_free(&p->images);
    lt_tensor_free(&p->labels);
    lt_nodes_clear(&p->nodes);
    for (int mode = 0; mode < MODES; mode++)
        free(p->seconds[mode]);
}

static lt_status step(player *p, int mode)
{
    const lt_normalize_config pixels = LT_NORMALIZE_IMAGENET;
    const int listens = mode == NONE ? WITH : mode;
    lt_tape *tape = p->tape[listens];
    lt_data_parallel *dp = p->dp[listens];
    lt_pass pass = LT_PASS_TRAIN;
    pass.dtype = p->s->amp ? LT_BF16 : LT_F32;
    pass.recompute = LT_RECOMPUTE_CHEAP;
    lt_tape_reset(tape, pass);
    lt_tensor *x = lt_normalize(tape, p->images, &pixels);
    lt_tensor *logits = lt_module_forward(p->model, tape, x);
    lt_tensor *loss = lt_softmax_xent(tape, logits, p->labels, 0.1);

    lt_params_zero_grad(&p->params);
    lt_data_parallel_begin(dp, mode != NONE);
    LT_TRY(lt_tape_backward(tape, loss, 1));
    if (mode != NONE) {
        LT_TRY(lt_data_parallel_finish(dp));
        LT_TRY(lt_data_parallel_commit(dp, true));
    }
    lt_step numbers = {.lr = 0.001, .attempt = ++p->attempt};
    LT_TRY(lt_optim_step(p->optim, &numbers));
    return lt_device_sync(p->device);
}

/* In comm, and in groups that reducers split from it. */
static uint64_t bytes_sent(const player *p)
{
    uint64_t bytes = lt_comm_bytes(p->comm);
    for (int mode = 0; mode < EXCHANGES; mode++)
        bytes += is_on(p, mode) ? lt_data_parallel_apart(p->dp[mode]) : 0;
    return bytes;
}

/* From when all ranks are there to when the last one is done. */
static lt_status timed_step(player *p, int mode, double *seconds)
{
    LT_TRY(lt_comm_barrier(p->comm));
    uint64_t before = bytes_sent(p);
    double begin = bench_seconds();
    LT_TRY(step(p, mode));
    uint64_t sent = bytes_sent(p) - before;
    LT_TRY(lt_comm_barrier(p->comm));
    *seconds = bench_seconds() - begin;
    p->bytes = sent ? sent : p->bytes;
    return LT_OK;
}

static lt_status measured_step(player *p, int mode, int64_t round)
{
    if (mode != NONE)
        (void)lt_data_parallel_exposed(p->dp[mode]);
    LT_TRY(timed_step(p, mode, &p->seconds[mode][round]));
    if (mode != NONE)
        p->waited[mode][round] = lt_data_parallel_exposed(p->dp[mode]);
    return LT_OK;
}

static lt_status measure(player *p)
{
    double ignored;
    LT_TRY(open_player(p));
    for (int round = 0; round < 2; round++) /* the first makes the buckets */
        for (int mode = 0; mode < MODES; mode++)
            if (is_on(p, mode))
                LT_TRY(timed_step(p, mode, &ignored));
    for (int64_t round = 0; round < p->s->rounds; round++)
        for (int mode = 0; mode < MODES; mode++)
            if (is_on(p, mode))
                LT_TRY(measured_step(p, mode, round));
    return LT_OK;
}

/* Each step beside the one of another kind in the same round, in milliseconds. */
static double beyond_other(const player *p, int mode, int other)
{
    int rounds = (int)p->s->rounds;
    double *beyond = malloc((size_t)rounds * sizeof *beyond);
    if (!beyond)
        return 0;
    for (int i = 0; i < rounds; i++)
        beyond[i] = 1e3 * (p->seconds[mode][i] - p->seconds[other][i]);
    double median = bench_median(beyond, rounds);
    free(beyond);
    return median;
}

static void report(const player *p)
{
    const settings *s = p->s;
    double median[MODES], waited[EXCHANGES];
    const double with = beyond_other(p, WITH, NONE), without = beyond_other(p, WITHOUT, NONE);
    const double norms = s->noise ? beyond_other(p, NORMS, WITH) : 0;
    for (int mode = 0; mode < MODES; mode++)
        median[mode] = bench_median(p->seconds[mode], (int)s->rounds);
    for (int mode = 0; mode < EXCHANGES; mode++)
        waited[mode] = 1e3 * bench_median(p->waited[mode], (int)s->rounds);
    const char *link = s->link ? s->link : "real";
    fprintf(stderr,
            "%s batch %d on %d ranks, link %s: %.1f ms with overlap, %.1f without, %.1f without "
            "communication; exposed %.1f of %.1f ms; waited %.1f of %.1f ms\n",
            s->arch, (int)s->batch, lt_comm_size(p->comm), link, 1e3 * median[WITH],
            1e3 * median[WITHOUT], 1e3 * median[NONE], with, without, waited[WITH],
            waited[WITHOUT]);
    if (s->noise)
        fprintf(stderr, "norms of gradients: %.2f ms, %.2f %% of a step with overlap\n", norms,
                norms / (10 * median[WITH]));
    if (!s->json)
        return;
    bench_header header = {"overlap", lt_device_name(p->device), s->amp ? "bf16" : "f32",
                           (int)s->batch, lt_device_threads(p->device)};
    bench_print_header(&header);
    if (s->noise)
        printf(", \"gradient_noise_milliseconds\": %.6g", norms);
    printf(
        ", \"arch\": \"%s\", \"ranks\": %d, \"link\": \"%s\", \"steps\": %d, "
        "\"milliseconds\": %.6g, \"milliseconds_without_overlap\": %.6g, "
        "\"milliseconds_without_communication\": %.6g, \"exposed_milliseconds\": %.6g, "
        "\"exposed_milliseconds_without_overlap\": %.6g, \"exposed_ratio\": %.6g, "
        "\"waited_milliseconds\": %.6g, \"waited_milliseconds_without_overlap\": %.6g, "
        "\"bytes_per_step\": %llu, \"allreduce\": \"%s\", \"compress\": \"%s\", \"peak_memory_bytes\": %lld}\n",
        s->arch, lt_comm_size(p->comm), link, (int)s->rounds, 1e3 * median[WITH],
        1e3 * median[WITHOUT], 1e3 * median[NONE], with, without, with / without, waited[WITH],
        waited[WITHOUT], (unsigned long long)p->bytes, s->allreduce, s->compress,
        (long long)bench_process_bytes("VmHWM"));
}

static lt_status play(lt_device *device, lt_comm *comm, const void *context)
{
    player p = {.s = context, .device = device, .comm = comm};
    lt_status st = measure(&p);
    if (!st && !lt_comm_rank(comm))
        report(&p);
    close_player(&p);
    return st;
}

lt_status bench_overlap(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    const bench_ranks ranks = {s.device, s.link, s.ranks, s.threads};
    return bench_play(&ranks, play, &s);
}
