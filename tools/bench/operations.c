/* bench ops: single operations of ResNet-50 and of ResNet-18 on small images, each direction by itself; by other kernels
 * too, in turn. bench attention: lt_attention() of one size, and its memory. Both are repeated on warm memory.
 *
 * The gradient of an output is that of a sum, whose writing is part of backward's time; the sum itself is not. */

#include "bench.h"

#include "lather/detail/view.h"
#include "lather/ops.h"
#include "lather/param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings of ops and attention; each benchmark has options for some of them. */
typedef struct settings {
    bench_common common;
    const char *filter;
    int other; /* kernels to compare with: index of other_names */
    int64_t heads, queries, keys;
    bool causal;
} settings;
static settings s;

#define BATCH  INT("batch-size", common.model.batch, 1, 1 << 20), .alias = 'b'
#define AMP    PICK("amp", common.amp, "off|bf16"), .help = "dtype of activations; off is f32"
#define FILTER TEXT("filter", filter), .value = "", .help = "rows to run, by a part of their name"

/* clang-format off */
static const lt_option ops_options[] = {
    {"Benchmark", FILTER},
    {"Benchmark", BATCH, .value = "32", .help = "images per step"},
    {"Benchmark", AMP},
    {"Benchmark", PICK("beside", other, "none|auto|builtin|onednn"), .help = "compare with the kernels that LATHER_CPU_KERNELS selects by this name"},
    {"Benchmark", STEPS, .value = "5", .help = "measured repetitions, of which the median counts"},
    {"Benchmark", WARMUP, .value = "1", .help = "repetitions before those"},
};
static const lt_option attention_options[] = {
    {"Benchmark", BATCH, .value = "4", .help = "sequences"},
    {"Benchmark", INT("heads", heads, 1, 1 << 20), .value = "12", .help = "heads of queries"},
    {"Benchmark", INT("queries", queries, 1, 1 << 20), .value = "256", .help = "queries of a sequence"},
    {"Benchmark", INT("keys", keys, 0, 1 << 20), .value = "0", .help = "keys of a sequence; 0: as queries"},
    {"Benchmark", FLAG("causal", causal), .help = "a query sees no later keys"},
    {"Benchmark", AMP},
    {"Benchmark", STEPS, .value = "20", .help = "measured repetitions"},
    {"Benchmark", WARMUP, .value = "2", .help = "repetitions before those"},
};
/* clang-format on */

static const char *const other_names[] = {"none", "auto", "builtin", "onednn"};

enum { HEAD_SIZE = 64 }; /* features of a head of attention */

typedef enum kind { CONV, BATCHNORM, MAXPOOL, ATTENTION } kind;

/* One operation. times: occurrences in ResNet-50, in rows @32 and below in ResNet-18 with the small stem. */
typedef struct row {
    const char *name;
    kind kind;
    int64_t in, size, out, taps, stride; /* size: side of images */
    int times;
} row;

static const row layers[] = {
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

static const row attention = {"attention", ATTENTION, 0, 0, 0, 0, 0, 1};

/* Gradients that backward computes. WRITE: that of the sum alone. */
typedef enum direction { FORWARD, GRAD_X, GRAD_W, WRITE, GRAD_ALL } direction;

enum { GAMMA, BETA, MEAN, VAR, WEIGHT, PARAMS };

/* Operands of a row; NULL where the row does not need one. */
typedef struct workload {
    const row *row;
    lt_device *device;
    lt_tape *tape;
    lt_tensor *x[3]; /* queries, keys, values; else the input, and a tensor as the output */
    lt_param param[PARAMS];
} workload;

static void close_workload(workload *w)
{
    lt_tape_free(&w->tape);
    for (size_t i = 0; i < sizeof w->x / sizeof(lt_tensor *); i++)
        lt_tensor_free(&w->x[i]);
    for (int i = 0; i < PARAMS; i++)
        lt_param_clear(&w->param[i]);
}

static int64_t size_after(const row *r)
{
    return (r->size + r->stride - 1) / r->stride;
}

static lt_status open_image_layer(workload *w, lt_dtype dtype)
{
    static const char *const names[] = {"gamma", "beta", "mean", "var"};
    const row *r = w->row;
    const int64_t size = size_after(r), batch = s.common.model.batch;
    LT_TRY(bench_random(&w->x[0], w->device, dtype, LT_SHAPE(batch, r->in, r->size, r->size),
                        LT_FORMAT_CHANNELS_LAST, 1));
    LT_TRY(bench_random(&w->x[1], w->device, dtype, LT_SHAPE(batch, r->out, size, size),
                        LT_FORMAT_CHANNELS_LAST, 1));
    LT_TRY(lt_param_init_filter(&w->param[WEIGHT], w->device, "", "weight",
                                LT_SHAPE(r->out, r->in, r->taps, r->taps)));
    LT_TRY(bench_fill_random(w->param[WEIGHT].value, 0.1, 2));
    for (int i = GAMMA; i <= VAR; i++)
        LT_TRY(lt_param_init_kind(&w->param[i], w->device, "", names[i], LT_SHAPE(r->in),
                                  i == GAMMA || i == VAR,
                                  i < MEAN ? LT_PARAM_NORM : LT_PARAM_STAT));
    return LT_OK;
}

static lt_status open_attention(workload *w, lt_dtype dtype)
{
    for (int i = 0; i < 3; i++)
        LT_TRY(bench_random(
            &w->x[i], w->device, dtype,
            LT_SHAPE(s.common.model.batch, i ? s.keys : s.queries, s.heads * HEAD_SIZE),
            LT_FORMAT_CONTIGUOUS, (uint64_t)i + 1));
    return LT_OK;
}

static lt_status open_workload(workload *w, lt_device *device, const row *r)
{
    const lt_dtype dtype = bench_amp_dtypes[s.common.amp];
    *w = (workload){.row = r, .device = device};
    LT_TRY(lt_tape_new(&w->tape, device));
    return r->kind == ATTENTION ? open_attention(w, dtype) : open_image_layer(w, dtype);
}

/* Runs the operation with the gradients of this direction recorded. */
static lt_tensor *apply(workload *w, direction which)
{
    const row *r = w->row;
    lt_tape *tape = w->tape;
    lt_param *p = w->param;
    const int stride = (int)r->stride, taps = (int)r->taps, pad = taps / 2;
    if (which == WRITE)
        return lt_tape_variable(tape, w->x[1]);
    if (r->kind == ATTENTION) {
        lt_tensor *in[3];
        for (int i = 0; i < 3; i++)
            in[i] = which == FORWARD ? w->x[i] : lt_tape_variable(tape, w->x[i]);
        return lt_attention(tape, in[0], in[1], in[2],
                            (lt_attention_config){.heads = (int)s.heads,
                                                  .kv_heads = (int)s.heads,
                                                  .causal = s.causal});
    }
    lt_tensor *x = which == GRAD_W ? w->x[0] : lt_tape_variable(tape, w->x[0]);
    if (r->kind == MAXPOOL)
        return lt_maxpool2d(tape, x, (lt_pool2d_config){taps, taps, stride, stride, pad, pad});
    if (r->kind == CONV)
        return lt_conv2d(
            tape, x, which == GRAD_X ? p[WEIGHT].value : lt_tape_param(tape, &p[WEIGHT]), NULL,
            (lt_conv2d_config){.stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad});
    const lt_batchnorm2d_args args = {.gamma = lt_tape_param(tape, &p[GAMMA]),
                                      .beta = lt_tape_param(tape, &p[BETA]),
                                      .mean = p[MEAN].value,
                                      .var = p[VAR].value};
    return lt_batchnorm2d(tape, x, args,
                          (lt_batchnorm2d_config){.eps = 1e-5, .momentum = 0.1, .relu = true});
}

/* Seconds of forward and of backward. A convolution is measured without the statistics of a following batch norm. */
static lt_status run_once(workload *w, direction which, double seconds[2])
{
    lt_pass pass = which == FORWARD ? LT_PASS_EVAL : LT_PASS_TRAIN;
    pass.dtype = bench_amp_dtypes[s.common.amp];
    pass.batch_stats = pass.record && w->row->kind != CONV;
    lt_tape_reset(w->tape, pass);
    for (int i = 0; i < PARAMS; i++)
        w->param[i].has_grad = false;
    const double begin = bench_seconds();
    lt_tensor *y = apply(w, which);
    LT_TRY(lt_tensor_materialize(y)); /* a batch norm defers its output */
    LT_TRY(lt_device_sync(w->device));
    seconds[0] = bench_seconds() - begin;
    if (which == FORWARD)
        return lt_tape_status(w->tape);
    lt_tensor *loss = lt_sum(w->tape, y, (lt_reduce_config){0});
    LT_TRY(lt_device_sync(w->device));
    const double start = bench_seconds();
    LT_TRY(lt_tape_backward(w->tape, loss, 1));
    LT_TRY(lt_device_sync(w->device));
    seconds[1] = bench_seconds() - start;
    return LT_OK;
}

/* --- bench ops --- */

enum { OWN, OTHER }; /* kernels: the device's own choice, --beside's */
typedef enum network { RESNET50, RESNET18, NETWORKS } network;
/* Milliseconds of a network's convolutions by direction, each counted as often as the network contains it. */
static double sums[NETWORKS][WRITE][2];
static double total; /* milliseconds of all rows and directions */

static const char *const names[] = {"forward", "grad x", "grad w"};

static bool has_direction(const row *r, direction which)
{
    return r->kind == CONV || which != GRAD_W;
}

/* An operation on one device, or on two alternately. */
typedef struct match {
    workload w[2];
    int count;
} match;

/* Runs all directions; forward is measured with the gradient of x. */
static lt_status run_match(void *context, int64_t round, double *found)
{
    match *m = context;
    (void)round;
    for (int k = 0; k < m->count; k++, found += WRITE + 1)
        for (direction d = GRAD_X; d <= WRITE; d++) {
            double seconds[2] = {0};
            if (has_direction(m->w[k].row, d))
                LT_TRY(run_once(&m->w[k], d, seconds));
            found[d] = 1e3 * seconds[1];
            found[FORWARD] = d == GRAD_X ? 1e3 * seconds[0] : found[FORWARD];
        }
    return LT_OK;
}

/* ms: by direction, WRITE's subtracted from gradients. */
static void print_layer(const row *r, double ms[2][WRITE + 1])
{
    const double side = (double)size_after(r);
    const double gflop =
        2e-9 * (double)(s.common.model.batch * r->in * r->out * r->taps * r->taps) * side * side;
    const network of = strncmp(r->name, "small", strlen("small")) ? RESNET50 : RESNET18;
    fprintf(stderr, "%-30s x%d", r->name, r->times);
    for (direction d = FORWARD; d <= GRAD_W; d++) {
        total += r->times * ms[OWN][d];
        for (int k = OWN; k <= OTHER && r->kind == CONV; k++)
            sums[of][d][k] += r->times * ms[k][d];
        if (!has_direction(r, d))
            continue;
        fprintf(stderr, "  %s %8.3f ms", names[d], ms[OWN][d]);
        if (r->kind == CONV)
            fprintf(stderr, " %5.0f GFLOP/s", 1e3 * gflop / ms[OWN][d]);
        if (s.other)
            fprintf(stderr, " (%.2f)", ms[OTHER][d] / ms[OWN][d]);
    }
    fprintf(stderr, "\n");
    bench_print_row("name %s count %d forward_milliseconds %g grad_x_milliseconds %g "
                    "grad_w_milliseconds %g",
                    r->name, r->times, ms[OWN][FORWARD], ms[OWN][GRAD_X], ms[OWN][GRAD_W]);
}

/* other: a device with other kernels, or NULL. */
static lt_status measure_layer(lt_device *device, lt_device *other, const row *r)
{
    double ms[2][WRITE + 1] = {{0}};
    match m = {.count = other ? 2 : 1};
    lt_status st = open_workload(&m.w[0], device, r);
    if (!st && other)
        st = open_workload(&m.w[1], other, r);
    if (!st)
        st = bench_rounds(&s.common, run_match, &m, m.count * (WRITE + 1), ms[0]);
    for (int k = 0; k < m.count; k++)
        for (direction d = GRAD_X; d <= GRAD_W; d++)
            ms[k][d] -= has_direction(r, d) ? ms[k][WRITE] : 0;
    if (!st)
        print_layer(r, ms);
    for (int k = 0; k < m.count; k++)
        close_workload(&m.w[k]);
    return st;
}

static void print_sums(void)
{
    static const char *const networks[] = {"ResNet-50", "ResNet-18"};
    for (network n = RESNET50; n < NETWORKS; n++)
        for (direction d = FORWARD; d <= GRAD_W; d++)
            if (sums[n][d][OWN] > 0)
                fprintf(stderr, "%s, %s: %.0f and %.0f ms, faster by %.2f\n", networks[n], names[d],
                        sums[n][d][OWN], sums[n][d][OTHER], sums[n][d][OTHER] / sums[n][d][OWN]);
}

/* A device with the kernels to compare with. */
static lt_status open_other(lt_device **out)
{
    const lt_device_config config = {.threads = (int)s.common.threads};
    if (!s.other)
        return LT_OK;
    if (strcmp(s.common.device, "cpu") != 0)
        return lt_fail(LT_E_ARG, "--beside %s: needs --device cpu, got %s", other_names[s.other],
                       s.common.device);
    if (setenv("LATHER_CPU_KERNELS", other_names[s.other], 1))
        return LT_E_NOMEM;
    return lt_device_open(out, s.common.device, &config);
}

static lt_status run_ops(lt_device *device, lt_comm *comm)
{
    lt_device *other = NULL;
    (void)comm;
    LT_TRY(open_other(&other));
    bench_print_head("ops", device, bench_amp_names[s.common.amp], s.common.model.batch);
    bench_print_open("ops", '[');
    lt_status st = LT_OK;
    for (size_t i = 0; i < sizeof layers / sizeof *layers && !st; i++)
        if (strstr(layers[i].name, s.filter))
            st = measure_layer(device, other, &layers[i]);
    bench_print_close(']');
    bench_print_fields("steps %d milliseconds %g peak_memory_bytes %zu", (int)s.common.steps, total,
                       lt_device_memory(device).peak);
    if (!st && other)
        print_sums();
    lt_device_close(&other);
    return st;
}

BENCH_COMMAND(ops, BENCH_DEVICE, ops_options, "time single operations, forward and backward");

/* --- bench attention: forward, and a step, which is forward with backward --- */

enum { ALONE, STEP, PASSES };

static lt_status run_forward(void *context, int64_t round, double *found)
{
    double seconds[2];
    (void)round;
    LT_TRY(run_once(context, FORWARD, seconds));
    *found = 1e3 * seconds[0];
    return LT_OK;
}

static lt_status run_step(void *context, int64_t round, double found[PASSES])
{
    double seconds[2];
    (void)round;
    LT_TRY(run_once(context, GRAD_ALL, seconds));
    found[ALONE] = 1e3 * seconds[0];
    found[STEP] = 1e3 * (seconds[0] + seconds[1]);
    return LT_OK;
}

static lt_status run_attention(lt_device *device, lt_comm *comm)
{
    workload w;
    double ms[PASSES];
    (void)comm;
    s.keys = s.keys ? s.keys : s.queries;
    lt_status st = open_workload(&w, device, &attention);
    const int64_t before = bench_process_bytes("VmRSS");
    if (!st)
        st = bench_rounds(&s.common, run_step, &w, PASSES, ms);
    if (!st) /* forward alone, no gradients */
        st = bench_rounds(&s.common, run_forward, &w, 1, &ms[ALONE]);
    close_workload(&w);
    LT_TRY(st);
    const int64_t bytes = bench_process_bytes("VmHWM") - before; /* with only the inputs: before */
    fprintf(stderr, "%.3f ms forward, %.3f ms with backward, %.1f MB\n", ms[ALONE], ms[STEP],
            (double)bytes * 1e-6);
    bench_print_head("attention", device, bench_amp_names[s.common.amp], s.common.model.batch);
    bench_print_fields("forward_milliseconds %g step_milliseconds %g peak_memory_bytes %lld",
                       ms[ALONE], ms[STEP], (long long)bytes);
    return LT_OK;
}

BENCH_COMMAND(attention, BENCH_DEVICE, attention_options, "time attention, forward and backward");
