/* bench ops: single operations of ResNet-50 and of ResNet-18 on small images, each direction by itself, repeated on warm
 * memory; by other kernels too, by turns. */

#include "lather/ops.h"

#include "bench.h"

#include "lather/ext/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *device, *filter;
    int amp, beside;
    int64_t batch, threads, steps, warmup;
    bool json;
} settings;

#define AT(field) offsetof(settings, field)

/* clang-format off */
static const lt_option table[] = {
    {.group = "Benchmark", .name = "filter", .type = LT_OPTION_STRING, .offset = AT(filter), .value = "",
     .help = "rows whose name contains it"},
    {.group = "Benchmark", .name = "batch-size", .alias = 'b', .type = LT_OPTION_INT, .offset = AT(batch),
     .value = "32", .min = 1, .max = 65536, .help = "images per step"},
    {.group = "Benchmark", .name = "amp", .type = LT_OPTION_CHOICE, .offset = AT(amp),
     .choices = "off|bf16", .help = "dtype of activations; off is f32"},
    {.group = "Benchmark", .name = "beside", .type = LT_OPTION_CHOICE, .offset = AT(beside),
     .choices = "none|auto|own|onednn", .help = "also with LATHER_CPU_KERNELS of this name, by turns"},
    {.group = "Benchmark", .name = "steps", .type = LT_OPTION_INT, .offset = AT(steps), .value = "5",
     .min = 1, .max = 100000, .help = "measured repetitions, of which the median counts"},
    {.group = "Benchmark", .name = "warmup", .type = LT_OPTION_INT, .offset = AT(warmup), .value = "1",
     .min = 0, .max = 1000, .help = "repetitions before those"},
    BENCH_MACHINE_OPTIONS(settings),
};
/* clang-format on */

static const char *const beside_names[] = {"none", "auto", "own", "onednn"};

static const lt_program program = {
    .name = "bench ops",
    .summary = "time single operations",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

typedef enum kind { CONV, BATCHNORM, MAXPOOL } kind;

/* One operation; times: how often ResNet-50 has it, or in rows @32 and below ResNet-18 with the small stem. */
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
    {"conv 512->256 1x1 @28", CONV, 512, 28, 256, 1, 1, 1},
    {"conv 256->256 3x3/2 @28", CONV, 256, 28, 256, 3, 2, 1},
    {"conv 512->1024 1x1/2 @28", CONV, 512, 28, 1024, 1, 2, 1},
    {"conv 256->1024 1x1 @14", CONV, 256, 14, 1024, 1, 1, 6},
    {"conv 1024->256 1x1 @14", CONV, 1024, 14, 256, 1, 1, 5},
    {"conv 256->256 3x3 @14", CONV, 256, 14, 256, 3, 1, 5},
    {"conv 1024->512 1x1 @14", CONV, 1024, 14, 512, 1, 1, 1},
    {"conv 512->512 3x3/2 @14", CONV, 512, 14, 512, 3, 2, 1},
    {"conv 1024->2048 1x1/2 @14", CONV, 1024, 14, 2048, 1, 2, 1},
    {"conv 512->2048 1x1 @7", CONV, 512, 7, 2048, 1, 1, 3},
    {"conv 2048->512 1x1 @7", CONV, 2048, 7, 512, 1, 1, 2},
    {"conv 512->512 3x3 @7", CONV, 512, 7, 512, 3, 1, 2},
    {"batchnorm+relu 64 @112", BATCHNORM, 64, 112, 64, 1, 1, 1},
    {"batchnorm+relu 256 @56", BATCHNORM, 256, 56, 256, 1, 1, 4},
    {"batchnorm+relu 1024 @14", BATCHNORM, 1024, 14, 1024, 1, 1, 7},
    {"maxpool 3x3/2 64 @112", MAXPOOL, 64, 112, 64, 3, 2, 1},
    {"small: conv 64->64 3x3 @32", CONV, 64, 32, 64, 3, 1, 4},
    {"small: conv 64->128 3x3/2 @32", CONV, 64, 32, 128, 3, 2, 1},
    {"small: conv 128->128 3x3 @16", CONV, 128, 16, 128, 3, 1, 3},
    {"small: conv 128->256 3x3/2 @16", CONV, 128, 16, 256, 3, 2, 1},
    {"small: conv 256->256 3x3 @8", CONV, 256, 8, 256, 3, 1, 3},
    {"small: conv 256->512 3x3/2 @8", CONV, 256, 8, 512, 3, 2, 1},
    {"small: conv 512->512 3x3 @4", CONV, 512, 4, 512, 3, 1, 3},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* WRITE: the gradient of the sum behind the operation alone. */
typedef enum direction { FORWARD, GRAD_X, GRAD_W, WRITE, DIRECTIONS } direction;

/* Milliseconds, without those of WRITE. gflop: 2 * multiply-adds of one direction of a convolution. */
typedef struct result {
    double ms[DIRECTIONS], gflop;
} result;

/* By the device's own choice of kernels, and by those beside it. */
typedef struct pair {
    result own, other;
} pair;

/* What a row works on; parts that it does not need stay NULL. */
typedef struct workload {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *x, *y;
    lt_param weight, gamma, beta, mean, var;
    double *seconds[DIRECTIONS];
} workload;

static void close_workload(workload *w)
{
    lt_tape_free(&w->tape);
    lt_tensor_free(&w->x);
    lt_tensor_free(&w->y);
    lt_param *all[] = {&w->weight, &w->gamma, &w->beta, &w->mean, &w->var};
    for (size_t i = 0; i < sizeof all / sizeof(lt_param *); i++)
        lt_param_clear(all[i]);
    for (int i = 0; i < DIRECTIONS; i++)
        free(w->seconds[i]);
}

static lt_status make_images(lt_tensor **out, lt_device *d, const settings *s, lt_shape shape)
{
    lt_tensor *values = NULL;
    LT_TRY(lt_tensor_new_as(&values, d, LT_F32, shape, LT_FORMAT_CHANNELS_LAST));
    lt_status st = bench_fill_random(values, 1, 1);
    if (!st)
        st = lt_tensor_new_like(out, values, s->amp ? LT_BF16 : LT_F32);
    if (!st)
        st = lt_tensor_copy(*out, values);
    lt_tensor_free(&values);
    return st;
}

static int64_t size_behind(const row *r)
{
    return (r->size + r->stride - 1) / r->stride;
}

static lt_status open_workload(workload *w, lt_device *d, const row *r, const settings *s)
{
    const int64_t size = size_behind(r);
    w->device = d;
    for (int i = 0; i < DIRECTIONS; i++)
        if (!(w->seconds[i] = malloc((size_t)s->steps * sizeof(double))))
            return LT_E_NOMEM;
    LT_TRY(lt_tape_new(&w->tape, d));
    LT_TRY(make_images(&w->x, d, s, LT_SHAPE(s->batch, r->in, r->size, r->size)));
    LT_TRY(make_images(&w->y, d, s, LT_SHAPE(s->batch, r->out, size, size)));
    LT_TRY(lt_param_init_filter(&w->weight, d, "", "weight",
                                LT_SHAPE(r->out, r->in, r->taps, r->taps)));
    LT_TRY(bench_fill_random(w->weight.value, 0.1, 2));
    LT_TRY(lt_param_init_role(&w->gamma, d, "", "gamma", LT_SHAPE(r->in), 1, LT_ROLE_NORM));
    LT_TRY(lt_param_init_role(&w->beta, d, "", "beta", LT_SHAPE(r->in), 0, LT_ROLE_NORM));
    LT_TRY(lt_param_init_role(&w->mean, d, "", "mean", LT_SHAPE(r->in), 0, LT_ROLE_STAT));
    return lt_param_init_role(&w->var, d, "", "var", LT_SHAPE(r->in), 1, LT_ROLE_STAT);
}

/* With the gradients that this direction wants. */
static lt_tensor *apply(workload *w, const row *r, direction which)
{
    const int stride = (int)r->stride, taps = (int)r->taps, pad = taps / 2;
    if (which == WRITE)
        return lt_tape_variable(w->tape, w->y);
    lt_tensor *x = which == GRAD_W ? w->x : lt_tape_variable(w->tape, w->x);
    if (r->kind == MAXPOOL)
        return lt_maxpool2d(w->tape, x, (lt_pool2d_config){taps, taps, stride, stride, pad, pad});
    if (r->kind == CONV)
        return lt_conv2d(
            w->tape, x, which == GRAD_X ? w->weight.value : lt_tape_param(w->tape, &w->weight),
            NULL,
            (lt_conv2d_config){.stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad});
    lt_batchnorm2d_args args = {.gamma = lt_tape_param(w->tape, &w->gamma),
                                .beta = lt_tape_param(w->tape, &w->beta),
                                .mean = w->mean.value,
                                .var = w->var.value};
    return lt_batchnorm2d(w->tape, x, args,
                          (lt_batchnorm2d_config){.eps = 1e-5, .momentum = 0.1, .relu = true});
}

/* A convolution by itself, without the statistics that a batch norm behind it would want. */
static lt_status run_once(workload *w, const row *r, const settings *s, direction which,
                          double seconds[2])
{
    lt_pass pass = LT_PASS_TRAIN;
    pass.dtype = s->amp ? LT_BF16 : LT_F32;
    pass.batch_stats = r->kind != CONV;
    lt_tape_reset(w->tape, pass);
    w->weight.has_grad = w->gamma.has_grad = w->beta.has_grad = false;
    const double begin = bench_seconds();
    lt_tensor *y = apply(w, r, which);
    LT_TRY(lt_tensor_materialize(y)); /* a batch norm defers its output */
    LT_TRY(lt_device_sync(w->device));
    seconds[0] = bench_seconds() - begin;
    lt_tensor *loss = lt_sum(w->tape, y, (lt_reduce_config){0});
    LT_TRY(lt_device_sync(w->device));
    const double start = bench_seconds();
    LT_TRY(lt_tape_backward(w->tape, loss, 1));
    LT_TRY(lt_device_sync(w->device));
    seconds[1] = bench_seconds() - start;
    return LT_OK;
}

static bool has_direction(const row *r, direction which)
{
    return r->kind == CONV || which != GRAD_W;
}

/* Repetition i of each direction, below 0: to warm up. */
static lt_status repeat(workload *w, const row *r, const settings *s, int64_t i)
{
    for (direction d = GRAD_X; d < DIRECTIONS; d++) {
        double seconds[2] = {0};
        if (has_direction(r, d))
            LT_TRY(run_once(w, r, s, d, seconds));
        if (i < 0)
            continue;
        w->seconds[d][i] = seconds[1];
        if (d == GRAD_X)
            w->seconds[FORWARD][i] = seconds[0];
    }
    return LT_OK;
}

static void take_medians(workload *w, const row *r, const settings *s, result *out)
{
    const double side = (double)size_behind(r);
    for (int d = 0; d < DIRECTIONS; d++)
        out->ms[d] = 1e3 * bench_median(w->seconds[d], (int)s->steps);
    for (int d = GRAD_X; d <= GRAD_W; d++)
        if (has_direction(r, (direction)d))
            out->ms[d] -= out->ms[WRITE];
    if (r->kind == CONV)
        out->gflop = 2e-9 * (double)(s->batch * r->in * r->out * r->taps * r->taps) * side * side;
}

static const char *const names[] = {"forward", "grad x", "grad w"};

static void print_row(const row *r, const pair *p, bool both)
{
    fprintf(stderr, "%-30s x%d", r->name, r->times);
    for (direction d = FORWARD; d <= GRAD_W; d++) {
        if (!has_direction(r, d))
            continue;
        fprintf(stderr, "  %s %8.3f ms", names[d], p->own.ms[d]);
        if (r->kind == CONV)
            fprintf(stderr, " %5.0f GFLOP/s", 1e3 * p->own.gflop / p->own.ms[d]);
        if (both)
            fprintf(stderr, " (%.2f)", p->other.ms[d] / p->own.ms[d]);
    }
    fprintf(stderr, "\n");
}

/* On one device, or on two by turns. */
static lt_status measure(lt_device *const *devices, const row *r, const settings *s, pair *out)
{
    workload w[2] = {{.device = NULL}};
    const int count = devices[1] ? 2 : 1;
    lt_status st = LT_OK;
    for (int k = 0; k < count && !st; k++)
        st = open_workload(&w[k], devices[k], r, s);
    for (int64_t i = -s->warmup; i < s->steps; i++)
        for (int k = 0; k < count && !st; k++)
            st = repeat(&w[k], r, s, i);
    for (int k = 0; k < count && !st; k++)
        take_medians(&w[k], r, s, k ? &out->other : &out->own);
    if (!st)
        print_row(r, out, count > 1);
    for (int k = 0; k < count; k++)
        close_workload(&w[k]);
    return st;
}

/* Of a network's convolutions among the rows, each as often as it has it. */
static void print_sums(const char *network, bool small, const pair *results)
{
    for (direction d = FORWARD; d <= GRAD_W; d++) {
        double own = 0, other = 0;
        for (int i = 0; i < ROWS; i++)
            if (rows[i].kind == CONV && small == !strncmp(rows[i].name, "small", strlen("small"))) {
                own += rows[i].times * results[i].own.ms[d];
                other += rows[i].times * results[i].other.ms[d];
            }
        if (own > 0)
            fprintf(stderr, "%s, %s: %.0f and %.0f ms, faster by %.2f\n", network, names[d], own,
                    other, other / own);
    }
}

static void print_json(const lt_device *device, const settings *s, const pair *results)
{
    double total = 0;
    for (int i = 0; i < ROWS; i++)
        for (direction d = FORWARD; d <= GRAD_W; d++)
            total += rows[i].times * results[i].own.ms[d];
    bench_header header = {"ops", lt_device_name(device), s->amp ? "bf16" : "f32", (int)s->batch,
                           lt_device_threads(device)};
    bench_print_header(&header);
    printf(", \"steps\": %d, \"milliseconds\": %.6g, \"peak_memory_bytes\": %zu, \"ops\": [",
           (int)s->steps, total, lt_device_memory(device).peak);
    for (int i = 0; i < ROWS; i++)
        printf("%s{\"name\": \"%s\", \"count\": %d, \"forward_milliseconds\": %.6g, "
               "\"grad_x_milliseconds\": %.6g, \"grad_w_milliseconds\": %.6g}",
               i ? ", " : "", rows[i].name, rows[i].times, results[i].own.ms[FORWARD],
               results[i].own.ms[GRAD_X], results[i].own.ms[GRAD_W]);
    printf("]}\n");
}

/* The device, and one with the kernels to compare with. */
static lt_status open_devices(lt_device **devices, const settings *s)
{
    const lt_device_config config = {.threads = (int)s->threads};
    LT_TRY(lt_device_open(&devices[0], s->device, &config));
    if (!s->beside)
        return LT_OK;
    if (strcmp(s->device, "cpu") != 0)
        return lt_fail(LT_E_ARG, "--beside %s: of the device cpu, not of %s",
                       beside_names[s->beside], s->device);
    if (setenv("LATHER_CPU_KERNELS", beside_names[s->beside], 1))
        return LT_E_NOMEM;
    return lt_device_open(&devices[1], s->device, &config);
}

lt_status bench_ops(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    lt_device *devices[2] = {NULL};
    static pair results[ROWS];
    lt_status st = open_devices(devices, &s);
    for (int i = 0; i < ROWS && !st; i++)
        if (strstr(rows[i].name, s.filter))
            st = measure(devices, &rows[i], &s, &results[i]);
    if (!st && devices[1]) {
        print_sums("ResNet-50", false, results);
        print_sums("ResNet-18", true, results);
    }
    if (!st && s.json)
        print_json(devices[0], &s, results);
    for (int k = 0; k < 2; k++)
        lt_device_close(&devices[k]);
    return st;
}
