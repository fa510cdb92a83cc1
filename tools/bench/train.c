/* bench train: the median time of a training step on synthetic data. */

#include "bench.h"
#include "models.h"

#include "lather/memory_use.h"
#include "lather/optim_config.h"
#include "lather/readback.h"
#include "lather/train_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *device;
    int amp, optim, recompute, fused; /* indices of choices */
    int64_t threads, steps, warmup, frequency, block;
    bench_model_config model;
    bool json, tf32, graph, deterministic, memory;
} settings;

enum { OFF, BF16, F16, TF32 };
static const char *const amps[] = {"f32", "bf16", "f16", "tf32"};

#define AT(field) offsetof(settings, field)

static const lt_option table[] = {
    BENCH_MODEL_OPTIONS(settings),
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
     .help = "cuda, cpu: batch norm's sums in the kernels of convolutions"},
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
    {.group = "Output",
     .name = "memory",
     .type = LT_OPTION_BOOL,
     .offset = AT(memory),
     .help = "print on stderr which operations held the memory of tensors at its peak"},
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
    const bench_model *kind;
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape;
    lt_train_step *step;
    lt_batch batch;             /* the same in each step */
    lt_train_result result[2];  /* of steps by turns: one may be in flight */
    int64_t first_roots;        /* the step with Shampoo's first ones, if it was asked for; or 0 */
    int64_t moved;              /* lt_memory_moved() in the measured steps */
    double loss, opened, first; /* seconds of opening, to the end of the first step */
} training;

static void close_training(training *t)
{
    lt_train_step_free(&t->step);
    lt_tape_free(&t->tape);
    lt_optim_free(&t->optim);
    lt_params_clear(&t->params);
    lt_module_free(&t->model);
    lt_tensor_free(&t->batch.inputs);
    lt_tensor_free(&t->batch.labels);
    lt_device_close(&t->device);
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

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const training *t = context;
    (void)counts;
    t->kind->loss(t->model, tape, batch, out);
    return LT_OK;
}

static const lt_task_ops task = {.name = "bench", .unit = "samples", .forward = forward};

static lt_status next_batch(void *context, lt_batch *batch)
{
    const training *t = context;
    *batch = t->batch;
    return LT_OK;
}

static lt_status open_step(training *t, const settings *s)
{
    lt_train_step_config c = {.device = t->device,
                              .tape = t->tape,
                              .params = &t->params,
                              .optim = t->optim,
                              .task = {&task, t},
                              .pass = LT_PASS_TRAIN,
                              .graph = s->graph,
                              .next = next_batch,
                              .next_context = t};
    c.pass.dtype = s->amp == BF16 ? LT_BF16 : s->amp == F16 ? LT_F16 : LT_F32;
    c.pass.recompute = s->recompute ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF;
    return lt_train_step_new(&t->step, &c);
}

static lt_status open_training(training *t, const settings *s)
{
    lt_device_config device = {.threads = (int)s->threads,
                               .tf32 = s->tf32 || s->amp == TF32,
                               .deterministic = s->deterministic,
                               .fused = (lt_fused)s->fused};
    LT_TRY(lt_device_open(&t->device, s->device, &device));
    LT_TRY(t->kind->make(&t->model, t->device, &s->model));
    LT_TRY(lt_module_params(t->model, &t->params));
    LT_TRY(make_optim(t, s));
    LT_TRY(lt_tape_new(&t->tape, t->device));
    LT_TRY(t->kind->batch(&t->batch, t->device, &s->model));
    return open_step(t, s);
}

static lt_status begin_step(training *t, int64_t attempt)
{
    const lt_step numbers = {.lr = 0.01, .attempt = attempt};
    return lt_train_step_begin(t->step, &numbers, &t->result[attempt % 2]);
}

static double mean_of(const double *seconds, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += seconds[i];
    return sum / (double)count;
}

/* Rows of what tensors held at the peak. */
static void print_memory(const lt_device *device)
{
    enum { MOST = 96 };
    lt_memory_use use[MOST];
    const int count = lt_device_memory_uses(device, use, MOST);
    fprintf(stderr, "%-20s %-10s %10s of tensors at the peak\n", "operation", "when", "MB");
    for (int i = 0; i < count && i < MOST; i++)
        fprintf(stderr, "%-20s %-10s %10.1f\n", use[i].name ? use[i].name : "parameters, state",
                use[i].name ? use[i].when : "", 1e-6 * (double)use[i].bytes);
    fprintf(stderr, "%-20s %-10s %10.1f\n", "all", "",
            1e-6 * (double)lt_device_memory(device).peak);
}

/* seconds: the median step, and the mean, which has the refreshes of Shampoo in it. */
static void report(const training *t, const settings *s, double seconds, double mean, int64_t peak)
{
    const bench_model_config *m = &s->model;
    double rate = (double)m->batch / seconds;
    lt_graph_stats graph = lt_train_step_graphs(t->step);
    fprintf(stderr,
            "%s %s batch %d, %d threads, %s: %.1f ms a step (mean %.1f), %.2f %s/s, "
            "peak %.0f MiB\n",
            m->arch, amps[s->amp], (int)m->batch, lt_device_threads(t->device),
            bench_optims[s->optim], 1e3 * seconds, 1e3 * mean, rate, t->kind->samples,
            (double)peak / 0x1p20);
    if (s->memory)
        print_memory(t->device);
    if (s->memory && t->moved)
        fprintf(stderr, "%.1f MB read and written for a sample\n",
                1e-6 * (double)t->moved / (double)(s->steps * m->batch));
    if (!s->json)
        return;
    bench_header header = {"train", lt_device_name(t->device), amps[s->amp], (int)m->batch,
                           lt_device_threads(t->device)};
    bench_print_header(&header);
    char sides[4096];
    if (!bench_factor_sides(t->optim, sides, sizeof sides))
        printf(", \"factor_sides\": \"%s\"", sides);
    printf(
        ", \"arch\": \"%s\", \"optim\": \"%s\", \"steps\": %d, \"%s_per_second\": %.6g, "
        "\"milliseconds\": %.6g, \"mean_milliseconds\": %.6g, \"peak_memory_bytes\": %lld, \"tensor_peak_bytes\": %zu, "
        "\"loss\": %.6g, \"replayed_steps\": %lld, \"cold_start_seconds\": %.6g, "
        "\"moved_bytes_per_sample\": %.6g}\n",
        m->arch, bench_optims[s->optim], (int)s->steps, t->kind->samples, rate, 1e3 * seconds,
        1e3 * mean, (long long)peak, lt_device_memory(t->device).peak, t->loss,
        (long long)graph.replays, t->first - t->opened,
        (double)t->moved / (double)(s->steps * m->batch));
}

/* Of the host beyond what it had before the first step; of a device with memory of its own, all that
 * the allocator took. */
static int64_t peak_bytes(const training *t, int64_t before)
{
    bool is_device = !strncmp(lt_device_name(t->device), "cuda", 4);
    return is_device ? (int64_t)lt_device_memory(t->device).reserved
                     : bench_process_bytes("VmHWM") - before;
}

/* When steps were done, in their order. */
typedef struct timing {
    int64_t done, warmup, steps;
    double last, *seconds; /* of the measured steps */
} timing;

/* Waits for all steps up to number, and for no later one. */
static lt_status finish_steps(training *t, timing *all, int64_t number)
{
    while (all->done < number) {
        lt_train_result *result = &t->result[++all->done % 2];
        const int64_t measured = all->done - all->warmup;
        LT_TRY(lt_train_step_finish(t->step, result));
        const double now = bench_seconds();
        if (all->done == 1)
            t->first = now;
        if (!measured)
            t->moved = -lt_memory_moved();
        if (measured == all->steps)
            t->moved += lt_memory_moved();
        if (measured >= 1 && measured <= all->steps) {
            all->seconds[measured - 1] = now - all->last;
            t->loss = result->sums.loss;
        }
        all->last = now;
    }
    return LT_OK;
}

/* As the training loop: on a device with a queue a step is waited for when the next one is queued, if the optimizer
 * allows that. Its time is that since the end of the one before, and has the queueing of one step in it. So one more
 * is queued behind those that count. */
static lt_status run_steps(training *t, const settings *s, double *seconds)
{
    const bool queues = lt_device_has_queue(t->device);
    const int64_t own = t->first_roots + 4;
    timing all = {.warmup = t->first_roots && own > s->warmup ? own : s->warmup,
                  .steps = s->steps,
                  .last = bench_seconds(),
                  .seconds = seconds};
    if (!all.warmup)
        t->moved = -lt_memory_moved();
    for (int64_t i = 1; i <= all.warmup + s->steps + queues; i++) {
        LT_TRY(begin_step(t, i));
        const bool ahead = queues && t->result[i % 2].may_run_ahead;
        LT_TRY(finish_steps(t, &all, i - ahead));
    }
    return queues ? lt_device_sync(t->device) : LT_OK;
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
    training t = {.opened = bench_seconds(), .kind = bench_model_of(s.model.arch)};
    s.model.classes = s.model.classes ? s.model.classes : t.kind->usual_classes;
    lt_status st = open_training(&t, &s);
    if (!st)
        st = measure(&t, &s);
    close_training(&t);
    return st;
}
