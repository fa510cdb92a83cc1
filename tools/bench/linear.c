/* bench linear: the products in which transformers spend their time, by lt_linear() with a bias: forward,
 * and with the gradients of x, w and b. Weights are f32, as in training. */

#include "bench.h"

#include "lather/ext/view.h"
#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *device, *filter;
    int amp;
    int64_t threads, steps, warmup;
    bool json;
} settings;

#define AT(field) offsetof(settings, field)

/* clang-format off */
static const lt_option table[] = {
    {.group = "Benchmark", .name = "filter", .type = LT_OPTION_STRING, .offset = AT(filter), .value = "",
     .help = "rows whose name contains it"},
    {.group = "Benchmark", .name = "amp", .type = LT_OPTION_CHOICE, .offset = AT(amp),
     .choices = "off|bf16", .help = "dtype of activations; off is f32"},
    {.group = "Benchmark", .name = "steps", .type = LT_OPTION_INT, .offset = AT(steps), .value = "5",
     .min = 1, .max = 100000, .help = "measured repetitions"},
    {.group = "Benchmark", .name = "warmup", .type = LT_OPTION_INT, .offset = AT(warmup), .value = "1",
     .min = 0, .max = 1000, .help = "repetitions before those"},
    BENCH_MACHINE_OPTIONS(settings),
};
/* clang-format on */

static const lt_program program = {
    .name = "bench linear",
    .summary = "time matrix products of transformers",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

typedef struct row {
    const char *name;
    int64_t rows, in, out;
    int times; /* in a pass of the model */
} row;

static const row rows[] = {
    {"ViT-S/16 qkv", 6304, 384, 1152, 12},   {"ViT-S/16 out", 6304, 384, 384, 12},
    {"ViT-S/16 mlp.0", 6304, 384, 1536, 12}, {"ViT-S/16 mlp.3", 6304, 1536, 384, 12},
    {"GPT-2 qkv", 1024, 768, 2304, 12},      {"GPT-2 out", 1024, 768, 768, 12},
    {"GPT-2 fc", 1024, 768, 3072, 12},       {"GPT-2 proj", 1024, 3072, 768, 12},
    {"GPT-2 head", 1024, 768, 50257, 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

typedef struct result {
    double forward_ms, step_ms;
} result;

typedef struct workload {
    lt_tape *tape;
    lt_tensor *x;
    lt_param weight, bias;
} workload;

static void close_workload(workload *w)
{
    lt_tape_free(&w->tape);
    lt_tensor_free(&w->x);
    lt_param_clear(&w->weight);
    lt_param_clear(&w->bias);
}

static lt_status open_workload(workload *w, lt_device *device, const row *r, const settings *s)
{
    LT_TRY(lt_tape_new(&w->tape, device));
    lt_tensor *values = NULL;
    LT_TRY(lt_tensor_new(&values, device, LT_F32, LT_SHAPE(r->rows, r->in)));
    lt_status st = bench_fill_random(values, 1, 1);
    if (!st)
        st = lt_tensor_new(&w->x, device, s->amp ? LT_BF16 : LT_F32, LT_SHAPE(r->rows, r->in));
    if (!st)
        st = lt_tensor_copy(w->x, values);
    lt_tensor_free(&values);
    LT_TRY(st);
    LT_TRY(lt_param_init(&w->weight, device, "", "weight", LT_SHAPE(r->out, r->in), 0));
    LT_TRY(bench_fill_random(w->weight.value, 0.1, 2));
    return lt_param_init_role(&w->bias, device, "", "bias", LT_SHAPE(r->out), 0, LT_ROLE_BIAS);
}

/* The gradient of the output is that of a sum, whose writing is part of the time; the sum is not. */
static lt_status run_once(workload *w, const settings *s, double *forward, double *step)
{
    lt_device *device = lt_tape_device(w->tape);
    lt_pass pass = LT_PASS_TRAIN;
    pass.dtype = s->amp ? LT_BF16 : LT_F32;
    lt_tape_reset(w->tape, pass);
    lt_tensor *x = lt_tape_variable(w->tape, w->x);
    w->weight.has_grad = w->bias.has_grad = false;
    const double begin = bench_seconds();
    lt_tensor *y =
        lt_linear(w->tape, x, lt_tape_param(w->tape, &w->weight), lt_tape_param(w->tape, &w->bias));
    LT_TRY(lt_device_sync(device));
    *forward = bench_seconds() - begin;
    lt_tensor *loss = lt_sum(w->tape, y, (lt_reduce_config){0});
    LT_TRY(lt_device_sync(device));
    const double start = bench_seconds();
    LT_TRY(lt_tape_backward(w->tape, loss, 1));
    LT_TRY(lt_device_sync(device));
    *step = *forward + bench_seconds() - start;
    return LT_OK;
}

/* Medians. A value may be updated between repetitions, as in training: each is another version. */
static lt_status measure(lt_device *device, const row *r, const settings *s, result *out)
{
    workload w = {.tape = NULL};
    double *seconds = malloc(2 * (size_t)s->steps * sizeof *seconds), ignored[2];
    lt_status st = seconds ? open_workload(&w, device, r, s) : LT_E_NOMEM;
    for (int64_t i = 0; i < s->warmup + s->steps && !st; i++) {
        const int64_t at = i - s->warmup;
        lt_tensor_touch(w.weight.value);
        st = at < 0 ? run_once(&w, s, &ignored[0], &ignored[1])
                    : run_once(&w, s, &seconds[at], &seconds[s->steps + at]);
    }
    if (!st) {
        out->forward_ms = 1e3 * bench_median(seconds, (int)s->steps);
        out->step_ms = 1e3 * bench_median(seconds + s->steps, (int)s->steps);
        const double gflop = 2e-9 * (double)(r->rows * r->in * r->out);
        fprintf(stderr,
                "%-15s %lldx%lldx%lld x%d %9.3f ms forward %9.3f ms with backward %7.1f GFLOP/s\n",
                r->name, (long long)r->rows, (long long)r->in, (long long)r->out, r->times,
                out->forward_ms, out->step_ms, 3e3 * gflop / out->step_ms);
    }
    close_workload(&w);
    free(seconds);
    return st;
}

static void print_json(const lt_device *device, const settings *s, const result *results)
{
    const bench_header header = {"linear", lt_device_name(device), s->amp ? "bf16" : "f32", 0,
                                 lt_device_threads(device)};
    double total = 0;
    for (int i = 0; i < ROWS; i++)
        total += rows[i].times * results[i].step_ms;
    bench_print_header(&header);
    printf(", \"steps\": %d, \"milliseconds\": %.6g, \"ops\": [", (int)s->steps, total);
    for (int i = 0; i < ROWS; i++)
        printf("%s{\"name\": \"%s\", \"shape\": [%lld, %lld, %lld], \"count\": %d, "
               "\"forward_milliseconds\": %.6g, \"step_milliseconds\": %.6g}",
               i ? ", " : "", rows[i].name, (long long)rows[i].rows, (long long)rows[i].in,
               (long long)rows[i].out, rows[i].times, results[i].forward_ms, results[i].step_ms);
    printf("]}\n");
}

lt_status bench_linear(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    lt_device *device = NULL;
    lt_device_config config = {.threads = (int)s.threads};
    result results[ROWS] = {{0}};
    LT_TRY(lt_device_open(&device, s.device, &config));
    lt_status st = LT_OK;
    for (int i = 0; i < ROWS && !st; i++)
        if (strstr(rows[i].name, s.filter))
            st = measure(device, &rows[i], &s, &results[i]);
    if (!st && s.json)
        print_json(device, &s, results);
    lt_device_close(&device);
    return st;
}
