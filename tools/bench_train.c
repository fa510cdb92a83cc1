/* bench train: the median time of a training step of a residual network on synthetic data. */

#include "bench.h"
#include "resnet.h"

#include "lather/graph.h"
#include "lather/ops.h"
#include "lather/optim_config.h"
#include "lather/readback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *arch, *device;
    int amp, optim, recompute, fused; /* indices of choices */
    int64_t batch, size, threads, steps, warmup, classes, frequency, block;
    bool json, tf32, graph, deterministic;
} settings;

enum { OFF, BF16, F16, TF32 };
static const char *const amps[] = {"f32", "bf16", "f16", "tf32"};

#define AT(field) offsetof(settings, field)

static const lt_option table[] = {
    {.group = "Benchmark",
     .name = "arch",
     .type = LT_OPTION_STRING,
     .offset = AT(arch),
     .value = "resnet50",
     .help = "network: resnet18, 34, 50, 101, 152"},
    {.group = "Benchmark",
     .name = "batch-size",
     .alias = 'b',
     .type = LT_OPTION_INT,
     .offset = AT(batch),
     .value = "32",
     .min = 1,
     .max = 65536,
     .help = "images per step"},
    {.group = "Benchmark",
     .name = "image-size",
     .type = LT_OPTION_INT,
     .offset = AT(size),
     .value = "224",
     .min = 1,
     .max = 4096,
     .help = "side of the images in pixels"},
    {.group = "Benchmark",
     .name = "amp",
     .type = LT_OPTION_CHOICE,
     .offset = AT(amp),
     .choices = "off|bf16|f16|tf32",
     .help = "dtype of activations; off is f32, tf32 is off with --tf32"},
    {.group = "Benchmark",
     .name = "tf32",
     .type = LT_OPTION_BOOL,
     .offset = AT(tf32),
     .help = "cuda: products of f32 numbers in that precision, Shampoo's too"},
    {.group = "Benchmark",
     .name = "optim",
     .type = LT_OPTION_CHOICE,
     .offset = AT(optim),
     .choices = BENCH_OPTIM_CHOICES,
     .help = "optimizer"},
    {.group = "Benchmark",
     .name = "recompute",
     .type = LT_OPTION_CHOICE,
     .offset = AT(recompute),
     .choices = "off|cheap",
     .value = "cheap",
     .help = "outputs that backward makes again instead of keeping"},
    {.group = "Benchmark",
     .name = "fused",
     .type = LT_OPTION_CHOICE,
     .offset = AT(fused),
     .choices = "auto|on|off",
     .help = "cuda: batch norm's sums in the kernels of 16-bit convolutions"},
    {.group = "Benchmark",
     .name = "steps",
     .type = LT_OPTION_INT,
     .offset = AT(steps),
     .value = "5",
     .min = 1,
     .max = 100000,
     .help = "measured steps"},
    {.group = "Benchmark",
     .name = "warmup",
     .type = LT_OPTION_INT,
     .offset = AT(warmup),
     .value = "2",
     .min = 0,
     .max = 1000,
     .help = "steps before those"},
    {.group = "Benchmark",
     .name = "num-classes",
     .type = LT_OPTION_INT,
     .offset = AT(classes),
     .value = "1000",
     .min = 1,
     .max = 1000000,
     .help = "classes"},
    {.group = "Benchmark",
     .name = "precondition-frequency",
     .type = LT_OPTION_INT,
     .offset = AT(frequency),
     .value = "0",
     .min = 0,
     .max = 1e9,
     .help = "Shampoo: steps between new roots; 0: the preset's"},
    {.group = "Benchmark",
     .name = "max-preconditioner-dim",
     .type = LT_OPTION_INT,
     .offset = AT(block),
     .value = "0",
     .min = 0,
     .max = 1e9,
     .help = "Shampoo: largest side of a block; 0: the preset's"},
    {.group = "Benchmark",
     .name = "graph",
     .type = LT_OPTION_BOOL,
     .offset = AT(graph),
     .value = "true",
     .help = "cuda: record the work of a step once and replay it"},
    {.group = "Benchmark",
     .name = "deterministic",
     .type = LT_OPTION_BOOL,
     .offset = AT(deterministic),
     .help = "the same bits in each run"},
    BENCH_MACHINE_OPTIONS(settings),
};

static const lt_program program = {
    .name = "bench train",
    .summary = "time a training step on synthetic data",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

/* All that a step touches. Zeroed parts are not there yet. */
typedef struct training {
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape;
    lt_graph *graph;
    lt_tensor *images, *labels, *kept_loss;
    lt_pass pass;
    lt_readback *numbers[2];    /* of steps by turns: kept_loss on its way */
    int64_t first_roots;        /* the step with Shampoo's first ones, if it was asked for; or 0 */
    double loss, opened, first; /* seconds of opening, to the end of the first step */
} training;

static void close_training(training *t)
{
    lt_graph_free(&t->graph);
    lt_tape_free(&t->tape);
    lt_tensor_free(&t->kept_loss);
    lt_optim_free(&t->optim);
    lt_params_clear(&t->params);
    lt_module_free(&t->model);
    for (int i = 0; i < 2; i++)
        lt_readback_free(&t->numbers[i]);
    lt_tensor_free(&t->images);
    lt_tensor_free(&t->labels);
    lt_device_close(&t->device);
}

static lt_status make_data(training *t, const settings *s)
{
    LT_TRY(lt_tensor_new(&t->images, t->device, LT_U8, LT_SHAPE(s->batch, 3, s->size, s->size)));
    LT_TRY(lt_tensor_new(&t->labels, t->device, LT_I32, LT_SHAPE(s->batch)));
    LT_TRY(lt_tensor_new(&t->kept_loss, t->device, LT_F32, LT_SCALAR));
    for (int i = 0; i < 2; i++)
        LT_TRY(lt_readback_new(&t->numbers[i], t->device, lt_tensor_bytes(t->kept_loss)));
    LT_TRY(bench_fill_random(t->images, 256, 1));
    return bench_fill_random(t->labels, (double)s->classes, 2);
}

static lt_status make_optim(training *t, const settings *s)
{
    lt_shampoo_config c;
    if (bench_shampoo_config(&c, bench_optims[s->optim])) {
        c.precondition_frequency = s->frequency ? s->frequency : c.precondition_frequency;
        c.max_preconditioner_dim = s->block ? s->block : c.max_preconditioner_dim;
        if (s->frequency) /* no earlier start is allowed; all measured steps come behind it */
            t->first_roots = c.start_preconditioning_step = s->frequency;
        LT_TRY(lt_optim_shampoo(&t->optim, &t->params, &c));
    } else {
        LT_TRY(lt_optim_open(&t->optim, bench_optims[s->optim], &t->params));
    }
    return s->amp == F16 ? lt_optim_scale_loss(t->optim, NULL) : LT_OK;
}

static lt_status open_training(training *t, const settings *s)
{
    lt_device_config device = {.threads = (int)s->threads,
                               .tf32 = s->tf32 || s->amp == TF32,
                               .deterministic = s->deterministic,
                               .fused = (lt_fused)s->fused};
    lt_resnet_config model = {.arch = s->arch, .classes = (int)s->classes};
    LT_TRY(lt_device_open(&t->device, s->device, &device));
    LT_TRY(lt_resnet_new(&t->model, t->device, &model));
    LT_TRY(lt_module_params(t->model, &t->params));
    LT_TRY(make_optim(t, s));
    LT_TRY(lt_tape_new(&t->tape, t->device));
    LT_TRY(make_data(t, s));
    t->pass = LT_PASS_TRAIN;
    t->pass.dtype = s->amp == BF16 ? LT_BF16 : s->amp == F16 ? LT_F16 : LT_F32;
    t->pass.recompute = s->recompute ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF;
    return LT_OK;
}

static lt_status forward_backward(void *arg)
{
    const lt_normalize_config pixels = LT_NORMALIZE_IMAGENET;
    training *t = arg;
    lt_tape_reset(t->tape, t->pass);
    lt_tensor *x = lt_normalize(t->tape, t->images, &pixels);
    lt_tensor *logits = lt_module_forward(t->model, t->tape, x);
    lt_tensor *loss = lt_softmax_xent(t->tape, logits, t->labels, 0.1);

    lt_params_zero_grad(&t->params);
    LT_TRY(lt_tape_backward_by(t->tape, loss, 1, lt_optim_loss_scale(t->optim)));
    return lt_tensor_copy(t->kept_loss, loss);
}

static lt_status whole_step(void *arg)
{
    training *t = arg;
    LT_TRY(forward_backward(t));
    return lt_optim_update(t->optim);
}

static lt_status first_part(void *arg)
{
    training *t = arg;
    LT_TRY(forward_backward(t));
    return lt_optim_update_first(t->optim);
}

static lt_status second_part(void *arg)
{
    training *t = arg;
    return lt_optim_update_second(t->optim);
}

enum { PASS_KEY, WHOLE_KEY, FIRST_KEY, SECOND_KEY };

static lt_status run_graph(training *t, int kind, lt_step_fn *step)
{
    return lt_graph_run(t->device, &t->graph, (lt_graph_key){.kind = kind}, step, t);
}

/* As the trainer does it. */
static lt_status queue_work(training *t, bool graph)
{
    if (!graph)
        return whole_step(t);
    if (lt_optim_is_steady(t->optim))
        return run_graph(t, WHOLE_KEY, whole_step);
    if (!lt_optim_is_split(t->optim)) {
        LT_TRY(run_graph(t, PASS_KEY, forward_backward));
        return lt_optim_update(t->optim);
    }
    LT_TRY(run_graph(t, FIRST_KEY, first_part));
    LT_TRY(lt_optim_update_host(t->optim));
    return run_graph(t, SECOND_KEY, second_part);
}

/* Puts a step on its way. */
static lt_status begin_step(training *t, int64_t attempt, bool graph)
{
    const lt_step numbers = {.lr = 0.01, .attempt = attempt};
    lt_readback *loss = t->numbers[attempt % 2];
    LT_TRY(lt_optim_prepare(t->optim, &numbers));
    LT_TRY(queue_work(t, graph));
    lt_optim_advance(t->optim);
    lt_readback_begin(loss);
    LT_TRY(lt_readback_add(loss, t->kept_loss));
    return lt_readback_send(loss);
}

/* Waits for the step, and no later one. */
static lt_status finish_step(training *t, int64_t attempt)
{
    const void *data;
    float loss;
    LT_TRY(lt_readback_wait(t->numbers[attempt % 2], &data));
    memcpy(&loss, data, sizeof loss);
    t->loss = (double)loss;
    return LT_OK;
}

static double mean_of(const double *seconds, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += seconds[i];
    return sum / (double)count;
}

/* seconds: the median step, and the mean, which has the refreshes of Shampoo in it. */
static void report(const training *t, const settings *s, double seconds, double mean, int64_t peak)
{
    double rate = (double)s->batch / seconds;
    lt_graph_stats graph = lt_graph_statistics(t->graph);
    fprintf(stderr,
            "%s %s batch %d, %d threads, %s: %.1f ms a step (mean %.1f), %.2f images/s, "
            "peak %.0f MiB\n",
            s->arch, amps[s->amp], (int)s->batch, lt_device_threads(t->device),
            bench_optims[s->optim], 1e3 * seconds, 1e3 * mean, rate, (double)peak / 0x1p20);
    if (!s->json)
        return;
    bench_header header = {"train", lt_device_name(t->device), amps[s->amp], (int)s->batch,
                           lt_device_threads(t->device)};
    bench_print_header(&header);
    char sides[4096];
    if (!bench_factor_sides(t->optim, sides, sizeof sides))
        printf(", \"factor_sides\": \"%s\"", sides);
    printf(
        ", \"arch\": \"%s\", \"optim\": \"%s\", \"steps\": %d, \"images_per_second\": %.6g, "
        "\"milliseconds\": %.6g, \"mean_milliseconds\": %.6g, \"peak_memory_bytes\": %lld, \"tensor_peak_bytes\": %zu, "
        "\"loss\": %.6g, \"replayed_steps\": %lld, \"cold_start_seconds\": %.6g}\n",
        s->arch, bench_optims[s->optim], (int)s->steps, rate, 1e3 * seconds, 1e3 * mean,
        (long long)peak, lt_device_memory(t->device).peak, t->loss, (long long)graph.replays,
        t->first - t->opened);
}

/* Of the host beyond what it had before the first step; of a device with memory of its own, all that
 * the allocator took. */
static int64_t peak_bytes(const training *t, int64_t before)
{
    bool is_device = !strncmp(lt_device_name(t->device), "cuda", 4);
    return is_device ? (int64_t)lt_device_memory(t->device).reserved
                     : bench_process_bytes("VmHWM") - before;
}

/* On a device with a queue a step is waited for when the next one is on its way: its time is that
 * since the end of the one before, and has the queueing of one step in it. So one more is queued
 * behind those that count. */
static lt_status run_steps(training *t, const settings *s, double *seconds)
{
    const int64_t late = lt_device_has_queue(t->device), own = t->first_roots + 4;
    const int64_t warmup = t->first_roots && own > s->warmup ? own : s->warmup;
    double last = bench_seconds();
    for (int64_t i = 1; i <= warmup + s->steps + late; i++) {
        LT_TRY(begin_step(t, i, s->graph));
        if (i <= late)
            continue;
        LT_TRY(finish_step(t, i - late));
        const double now = bench_seconds();
        if (i - late == 1)
            t->first = now;
        if (i - late > warmup)
            seconds[i - late - warmup - 1] = now - last;
        last = now;
    }
    return late ? lt_device_sync(t->device) : LT_OK;
}

static lt_status measure(training *t, const settings *s)
{
    double *seconds = calloc((size_t)s->steps, sizeof *seconds);
    if (!seconds)
        return LT_E_NOMEM;
    int64_t before = bench_process_bytes("VmRSS");
    lt_status st = run_steps(t, s, seconds);
    if (!st) {
        const double mean = mean_of(seconds, s->steps);
        report(t, s, bench_median(seconds, (int)s->steps), mean, peak_bytes(t, before));
    }
    free(seconds);
    return st;
}

lt_status bench_train(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    training t = {.opened = bench_seconds()};
    lt_status st = open_training(&t, &s);
    if (!st)
        st = measure(&t, &s);
    close_training(&t);
    return st;
}
