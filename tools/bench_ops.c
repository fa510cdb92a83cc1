/* bench ops: single operations of ResNet-50, forward and backward, repeated on warm memory. */

#include "bench.h"

#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *device;
    int amp;
    int64_t batch, threads, steps, warmup;
    bool json;
} settings;

#define AT(field) offsetof(settings, field)

static const lt_option table[] = {
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
     .name = "amp",
     .type = LT_OPTION_CHOICE,
     .offset = AT(amp),
     .choices = "off|bf16",
     .help = "dtype of activations; off is f32"},
    {.group = "Benchmark",
     .name = "steps",
     .type = LT_OPTION_INT,
     .offset = AT(steps),
     .value = "5",
     .min = 1,
     .max = 100000,
     .help = "measured repetitions"},
    {.group = "Benchmark",
     .name = "warmup",
     .type = LT_OPTION_INT,
     .offset = AT(warmup),
     .value = "1",
     .min = 0,
     .max = 1000,
     .help = "repetitions before those"},
    BENCH_MACHINE_OPTIONS(settings),
};

static const lt_program program = {
    .name = "bench ops",
    .summary = "time single operations",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

typedef enum kind { CONV, BATCHNORM, MAXPOOL } kind;

/* One operation; times: how often ResNet-50 has it. */
typedef struct row {
    const char *name;
    kind kind;
    int64_t in, size, out, taps, stride;
    int times;
} row;

static const row rows[] = {
    {"conv 3->64 7x7/2", CONV, 3, 224, 64, 7, 2, 1},
    {"conv 64->64 1x1 @56", CONV, 64, 56, 64, 1, 1, 1},
    {"conv 64->64 3x3 @56", CONV, 64, 56, 64, 3, 1, 3},
    {"conv 64->256 1x1 @56", CONV, 64, 56, 256, 1, 1, 4},
    {"conv 256->64 1x1 @56", CONV, 256, 56, 64, 1, 1, 2},
    {"conv 256->128 1x1 @56", CONV, 256, 56, 128, 1, 1, 1},
    {"conv 128->128 3x3/2 @56", CONV, 128, 56, 128, 3, 2, 1},
    {"conv 256->512 1x1/2 @56", CONV, 256, 56, 512, 1, 2, 1},
    {"conv 128->512 1x1 @28", CONV, 128, 28, 512, 1, 1, 4},
    {"conv 512->128 1x1 @28", CONV, 512, 28, 128, 1, 1, 3},
    {"conv 128->128 3x3 @28", CONV, 128, 28, 128, 3, 1, 3},
    {"conv 256->1024 1x1 @14", CONV, 256, 14, 1024, 1, 1, 6},
    {"conv 1024->256 1x1 @14", CONV, 1024, 14, 256, 1, 1, 5},
    {"conv 256->256 3x3 @14", CONV, 256, 14, 256, 3, 1, 5},
    {"conv 1024->2048 1x1/2 @14", CONV, 1024, 14, 2048, 1, 2, 1},
    {"conv 512->2048 1x1 @7", CONV, 512, 7, 2048, 1, 1, 3},
    {"conv 2048->512 1x1 @7", CONV, 2048, 7, 512, 1, 1, 2},
    {"conv 512->512 3x3 @7", CONV, 512, 7, 512, 3, 1, 2},
    {"batchnorm+relu 64 @112", BATCHNORM, 64, 112, 64, 1, 1, 1},
    {"batchnorm+relu 256 @56", BATCHNORM, 256, 56, 256, 1, 1, 4},
    {"batchnorm+relu 1024 @14", BATCHNORM, 1024, 14, 1024, 1, 1, 7},
    {"maxpool 3x3/2 64 @112", MAXPOOL, 64, 112, 64, 3, 2, 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

typedef struct result {
    double forward_ms, backward_ms, gflops; /* gflops: 2 * multiply-adds of one pass over weights */
} result;

/* What a row works on; parts that it does not need stay NULL. */
typedef struct workload {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *x;
    lt_param weight, gamma, beta, mean, var;
} workload;

static void close_workload(workload *w)
{
    lt_tape_free(&w->tape);
    lt_tensor_free(&w->x);
    lt_param *all[] = {&w->weight, &w->gamma, &w->beta, &w->mean, &w->var};
    for (size_t i = 0; i < sizeof all / sizeof(lt_param *); i++)
        lt_param_clear(all[i]);
}

static lt_status open_workload(workload *w, const row *r, const settings *s)
{
    lt_device *d = w->device;
    LT_TRY(lt_tape_new(&w->tape, d));
    lt_dtype dtype = s->amp ? LT_BF16 : LT_F32;
    lt_tensor *values = NULL;
    LT_TRY(lt_tensor_new_as(&values, d, LT_F32, LT_SHAPE(s->batch, r->in, r->size, r->size),
                            LT_FORMAT_CHANNELS_LAST));
    lt_status st = bench_fill_random(values, 1, 1);
    if (!st)
        st = lt_tensor_new_like(&w->x, values, dtype);
    if (!st)
        st = lt_tensor_copy(w->x, values);
    lt_tensor_free(&values);
    LT_TRY(st);
    LT_TRY(lt_param_init_filter(&w->weight, d, "", "weight",
                                LT_SHAPE(r->out, r->in, r->taps, r->taps)));
    LT_TRY(bench_fill_random(w->weight.value, 0.1, 2));
    LT_TRY(lt_param_init_role(&w->gamma, d, "", "gamma", LT_SHAPE(r->in), 1, LT_ROLE_NORM));
    LT_TRY(lt_param_init_role(&w->beta, d, "", "beta", LT_SHAPE(r->in), 0, LT_ROLE_NORM));
    LT_TRY(lt_param_init_role(&w->mean, d, "", "mean", LT_SHAPE(r->in), 0, LT_ROLE_STAT));
    return lt_param_init_role(&w->var, d, "", "var", LT_SHAPE(r->in), 1, LT_ROLE_STAT);
}

static lt_tensor *apply(workload *w, const row *r, lt_tensor *x)
{
    int stride = (int)r->stride, taps = (int)r->taps, pad = taps / 2;
    if (r->kind == MAXPOOL)
        return lt_maxpool2d(w->tape, x, (lt_pool2d_config){taps, taps, stride, stride, pad, pad});
    if (r->kind == CONV)
        return lt_conv2d(
            w->tape, x, lt_tape_param(w->tape, &w->weight), NULL,
            (lt_conv2d_config){.stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad});
    lt_batchnorm2d_args args = {.gamma = lt_tape_param(w->tape, &w->gamma),
                                .beta = lt_tape_param(w->tape, &w->beta),
                                .mean = w->mean.value,
                                .var = w->var.value};
    return lt_batchnorm2d(w->tape, x, args,
                          (lt_batchnorm2d_config){.eps = 1e-5, .momentum = 0.1, .relu = true});
}

/* The sum's own backward is part of the time: one pass that writes. */
static lt_status repeat(workload *w, const row *r, const settings *s, double *seconds[2])
{
    for (int64_t i = 0; i < s->warmup + s->steps; i++) {
        lt_pass pass = LT_PASS_TRAIN;
        pass.dtype = s->amp ? LT_BF16 : LT_F32;
        lt_tape_reset(w->tape, pass);
        lt_tensor *x = lt_tape_variable(w->tape, w->x);
        double begin = bench_seconds();
        lt_tensor *y = apply(w, r, x);
        LT_TRY(lt_device_sync(w->device));
        double middle = bench_seconds();
        lt_tensor *loss = lt_sum(w->tape, y, (lt_reduce_config){0});
        w->weight.has_grad = w->gamma.has_grad = w->beta.has_grad = false;
        double start = bench_seconds();
        LT_TRY(lt_tape_backward(w->tape, loss, 1));
        LT_TRY(lt_device_sync(w->device));
        if (i < s->warmup)
            continue;
        seconds[0][i - s->warmup] = middle - begin;
        seconds[1][i - s->warmup] = bench_seconds() - start;
    }
    return LT_OK;
}

static lt_status measure(lt_device *device, const row *r, const settings *s, result *out)
{
    workload w = {.device = device};
    double *seconds[2] = {malloc((size_t)s->steps * sizeof(double)),
                          malloc((size_t)s->steps * sizeof(double))};
    lt_status st = seconds[0] && seconds[1] ? open_workload(&w, r, s) : LT_E_NOMEM;
    if (!st)
        st = repeat(&w, r, s, seconds);
    if (!st) {
        int64_t side = (r->size + r->stride - 1) / r->stride;
        double flop = 2.0 * (double)(s->batch * side * side * r->in * r->out * r->taps * r->taps);
        out->forward_ms = 1e3 * bench_median(seconds[0], (int)s->steps);
        out->backward_ms = 1e3 * bench_median(seconds[1], (int)s->steps);
        out->gflops = r->kind == CONV ? flop / out->forward_ms * 1e-6 : 0;
        fprintf(stderr, "%-26s x%d %9.3f ms forward %9.3f ms backward %9.1f GFLOP/s forward\n",
                r->name, r->times, out->forward_ms, out->backward_ms, out->gflops);
    }
    close_workload(&w);
    free(seconds[0]);
    free(seconds[1]);
    return st;
}

static void print_json(const lt_device *device, const settings *s, const result *results)
{
    double total = 0;
    for (int i = 0; i < ROWS; i++)
        total += rows[i].times * (results[i].forward_ms + results[i].backward_ms);
    bench_header header = {"ops", lt_device_name(device), s->amp ? "bf16" : "f32", (int)s->batch,
                           lt_device_threads(device)};
    bench_print_header(&header);
    printf(", \"steps\": %d, \"milliseconds\": %.6g, \"peak_memory_bytes\": %zu, \"ops\": [",
           (int)s->steps, total, lt_device_memory(device).peak);
    for (int i = 0; i < ROWS; i++)
        printf("%s{\"name\": \"%s\", \"count\": %d, \"forward_milliseconds\": %.6g, "
               "\"backward_milliseconds\": %.6g}",
               i ? ", " : "", rows[i].name, rows[i].times, results[i].forward_ms,
               results[i].backward_ms);
    printf("]}\n");
}

lt_status bench_ops(int argc, char *const *argv)
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
        st = measure(device, &rows[i], &s, &results[i]);
    if (!st && s.json)
        print_json(device, &s, results);
    lt_device_close(&device);
    return st;
}
