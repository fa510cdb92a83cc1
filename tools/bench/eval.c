/* bench eval: the median time of a forward pass that evaluates, on synthetic data. */

#include "bench.h"
#include "models.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *device;
    int amp, fused; /* indices of choices */
    int64_t threads, steps, warmup;
    bench_model_config model;
    bool json;
} settings;

static const char *const amps[] = {"f32", "bf16", "f16"};
static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};

#define AT(field) offsetof(settings, field)

static const lt_option table[] = {
    BENCH_MODEL_OPTIONS(settings),
    {.group = "Benchmark",
     .name = "amp",
     .type = LT_OPTION_CHOICE,
     .offset = AT(amp),
     .choices = "off|bf16|f16",
     .help = "dtype of activations; off is f32"},
    {.group = "Benchmark",
     .name = "fused",
     .type = LT_OPTION_CHOICE,
     .offset = AT(fused),
     .choices = "auto|on|off",
     .help = "cpu: batch norms in the convolutions before them"},
    {.group = "Benchmark",
     .name = "steps",
     .type = LT_OPTION_INT,
     .offset = AT(steps),
     .value = "10",
     .min = 1,
     .max = 100000,
     .help = "measured passes"},
    {.group = "Benchmark",
     .name = "warmup",
     .type = LT_OPTION_INT,
     .offset = AT(warmup),
     .value = "3",
     .min = 0,
     .max = 1000,
     .help = "passes before those"},
    BENCH_MACHINE_OPTIONS(settings),
};

static const lt_program program = {
    .name = "bench eval",
    .summary = "time a forward pass that evaluates, on synthetic data",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

/* Zeroed parts are not there yet. */
typedef struct evaluation {
    const bench_model *kind;
    lt_device *device;
    lt_module *model;
    lt_tape *tape;
    lt_batch batch;
    double loss;
} evaluation;

static void close_evaluation(evaluation *e)
{
    lt_tape_free(&e->tape);
    lt_module_free(&e->model);
    lt_tensor_free(&e->batch.inputs);
    lt_tensor_free(&e->batch.labels);
    lt_device_close(&e->device);
}

static lt_status open_evaluation(evaluation *e, const settings *s)
{
    const lt_device_config device = {.threads = (int)s->threads, .fused = (lt_fused)s->fused};
    LT_TRY(lt_device_open(&e->device, s->device, &device));
    LT_TRY(e->kind->make(&e->model, e->device, &s->model));
    LT_TRY(lt_tape_new(&e->tape, e->device));
    return e->kind->batch(&e->batch, e->device, &s->model);
}

static lt_status run_pass(evaluation *e, const settings *s)
{
    lt_pass pass = LT_PASS_EVAL;
    lt_task_output out = {0};
    pass.dtype = dtypes[s->amp];
    lt_tape_reset(e->tape, pass);
    e->kind->loss(e->model, e->tape, &e->batch, &out);
    LT_TRY(lt_tape_status(e->tape));
    return lt_tensor_item(out.loss, &e->loss); /* waits for a device with a queue */
}

static void report(const evaluation *e, const settings *s, double seconds, int64_t peak)
{
    const bench_model_config *m = &s->model;
    const double rate = (double)m->batch / seconds;
    fprintf(stderr, "%s %s batch %d, %d threads: %.1f ms a pass, %.2f %s/s, peak %.0f MiB\n",
            m->arch, amps[s->amp], (int)m->batch, lt_device_threads(e->device), 1e3 * seconds, rate,
            e->kind->samples, (double)peak / 0x1p20);
    if (!s->json)
        return;
    bench_header header = {"eval", lt_device_name(e->device), amps[s->amp], (int)m->batch,
                           lt_device_threads(e->device)};
    bench_print_header(&header);
    printf(", \"arch\": \"%s\", \"steps\": %d, \"%s_per_second\": %.6g, \"milliseconds\": %.6g, "
           "\"peak_memory_bytes\": %lld, \"tensor_peak_bytes\": %zu, \"loss\": %.6g}\n",
           m->arch, (int)s->steps, e->kind->samples, rate, 1e3 * seconds, (long long)peak,
           lt_device_memory(e->device).peak, e->loss);
}

static lt_status run_passes(evaluation *e, const settings *s, double *seconds)
{
    for (int64_t i = 0; i < s->warmup + s->steps; i++) {
        const double begin = bench_seconds();
        LT_TRY(run_pass(e, s));
        if (i >= s->warmup)
            seconds[i - s->warmup] = bench_seconds() - begin;
    }
    return LT_OK;
}

static lt_status measure(evaluation *e, const settings *s)
{
    double *seconds = calloc((size_t)s->steps, sizeof *seconds);
    if (!seconds)
        return LT_E_NOMEM;
    const int64_t before = bench_process_bytes("VmRSS");
    lt_status st = run_passes(e, s, seconds);
    if (!st)
        report(e, s, bench_median(seconds, (int)s->steps), bench_process_bytes("VmHWM") - before);
    free(seconds);
    return st;
}

lt_status bench_eval(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    evaluation e = {.kind = bench_model_of(s.model.arch)};
    s.model.classes = s.model.classes ? s.model.classes : e.kind->usual_classes;
    lt_status st = open_evaluation(&e, &s);
    if (!st)
        st = measure(&e, &s);
    close_evaluation(&e);
    return st;
}
