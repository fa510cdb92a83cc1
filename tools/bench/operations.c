/* bench ops: single operations of ResNet-50 and of ResNet-18 on small images, each direction by itself; by other kernels
 * too, in turn. bench linear: the products in which transformers spend their time, by lt_linear() with a bias; weights
 * are f32, as in training. bench attention: lt_attention() of one size, and its memory. All are repeated on warm memory.
 *
 * The gradient of an output is that of a sum, whose writing is part of backward's time; the sum itself is not. */

#include "bench.h"

#include "lather/detail/view.h"
#include "lather/ops.h"
#include "lather/param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings of ops, linear and attention; each benchmark has options for some of them. */
typedef struct settings {
    bench_common common;
    const char *filter;
    int other; /* kernels to compare with: index of other_names */
    int64_t heads, kv_heads, queries, keys, head_size;
    bool causal;
} settings;

#define BATCH  INT("batch-size", common.model.batch, 1, 1 << 20), .alias = 'b'
#define AMP    PICK("amp", common.amp, "off|bf16"), .help = "dtype of activations; off is f32"
#define FILTER TEXT("filter", filter), .value = "", .help = "rows to run, by a part of their name"

/* clang-format off */
static const lt_option ops_options[] = {
    {"Benchmark", FILTER},
    {"Benchmark", BATCH, .value = "32", .help = "images per step"},
    {"Benchmark", AMP},
    {"Benchmark", PICK("beside", other, "none|auto|own|onednn"), .help = "compare with the kernels that LATHER_CPU_KERNELS selects by this name"},
    {"Benchmark", STEPS, .value = "5", .help = "measured repetitions, of which the median counts"},
    {"Benchmark", WARMUP, .value = "1", .help = "repetitions before those"},
};
static const lt_option linear_options[] = {
    {"Benchmark", FILTER},
    {"Benchmark", AMP},
    {"Benchmark", STEPS, .value = "5", .help = "measured repetitions"},
    {"Benchmark", WARMUP, .value = "1", .help = "repetitions before those"},
};
static const lt_option attention_options[] = {
    {"Benchmark", BATCH, .value = "4", .help = "sequences"},
    {"Benchmark", INT("heads", heads, 1, 1 << 20), .value = "12", .help = "heads of queries"},
    {"Benchmark", INT("kv-heads", kv_heads, 0, 1 << 20), .value = "0", .help = "heads of keys and values; 0: as many as of queries"},
    {"Benchmark", INT("queries", queries, 1, 1 << 20), .value = "256", .help = "queries of a sequence"},
    {"Benchmark", INT("keys", keys, 0, 1 << 20), .value = "0", .help = "keys of a sequence; 0: as queries"},
    {"Benchmark", INT("head-size", head_size, 1, 1 << 20), .value = "64", .help = "features of a head"},
    {"Benchmark", FLAG("causal", causal), .help = "a query sees no later keys"},
    {"Benchmark", AMP},
    {"Benchmark", STEPS, .value = "20", .help = "measured repetitions"},
    {"Benchmark", WARMUP, .value = "2", .help = "repetitions before those"},
};
/* clang-format on */

static const char *const other_names[] = {"none", "auto", "own", "onednn"};

typedef enum kind { CONV, BATCHNORM, MAXPOOL, LINEAR, ATTENTION } kind;

/* One operation. times: occurrences in ResNet-50, in rows @32 and below in ResNet-18 with the small stem, for products in
 * their model. */
typedef struct row {
    const char *name;
    kind kind;
    int64_t in, size, out, taps, stride; /* size: side of images, or rows of a product */
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
enum { LAYERS = sizeof layers / sizeof *layers };

static const row products[] = {
    {"ViT-S/16 qkv", LINEAR, 384, 6304, 1152, 0, 0, 12},
    {"ViT-S/16 out", LINEAR, 384, 6304, 384, 0, 0, 12},
    {"ViT-S/16 mlp.0", LINEAR, 384, 6304, 1536, 0, 0, 12},
    {"ViT-S/16 mlp.3", LINEAR, 1536, 6304, 384, 0, 0, 12},
    {"GPT-2 qkv", LINEAR, 768, 1024, 2304, 0, 0, 12},
    {"GPT-2 out", LINEAR, 768, 1024, 768, 0, 0, 12},
    {"GPT-2 fc", LINEAR, 768, 1024, 3072, 0, 0, 12},
    {"GPT-2 proj", LINEAR, 3072, 1024, 768, 0, 0, 12},
    {"GPT-2 head", LINEAR, 768, 1024, 50257, 0, 0, 1},
};
enum { PRODUCTS = sizeof products / sizeof *products };

static const row attention = {"attention", ATTENTION, 0, 0, 0, 0, 0, 1};

/* Gradients that backward computes. WRITE: that of the sum alone. */
typedef enum direction { FORWARD, GRAD_X, GRAD_W, WRITE, GRAD_ALL } direction;

enum { GAMMA, BETA, MEAN, VAR, WEIGHT, BIAS, PARAMS };

/* Operands of a row; NULL where the row does not need one. */
typedef struct workload {
    const settings *s;
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
    const int64_t size = size_after(r), batch = w->s->common.model.batch;
    LT_TRY(bench_random(&w->x[0], w->device, dtype, LT_SHAPE(batch, r->in, r->size, r->size),
                        LT_FORMAT_CHANNELS_LAST, 1));
    LT_TRY(bench_random(&w->x[1], w->device, dtype, LT_SHAPE(batch, r->out, size, size),
                        LT_FORMAT_CHANNELS_LAST, 1));
    LT_TRY(lt_param_init_filter(&w->param[WEIGHT], w->device, "", "weight",
                                LT_SHAPE(r->out, r->in, r->taps, r->taps)));
    LT_TRY(bench_fill_random(w->param[WEIGHT].value, 0.1, 2));
    for (int i = GAMMA; i <= VAR; i++)
        LT_TRY(lt_param_init_role(&w->param[i], w->device, "", names[i], LT_SHAPE(r->in),
                                  i == GAMMA || i == VAR, i < MEAN ? LT_ROLE_NORM : LT_ROLE_STAT));
    return LT_OK;
}

static lt_status open_product(workload *w, lt_dtype dtype)
{
    const row *r = w->row;
    LT_TRY(bench_random(&w->x[0], w->device, dtype, LT_SHAPE(r->size, r->in), LT_FORMAT_CONTIGUOUS,
                        1));
    LT_TRY(lt_param_init(&w->param[WEIGHT], w->device, "", "weight", LT_SHAPE(r->out, r->in), 0));
    LT_TRY(bench_fill_random(w->param[WEIGHT].value, 0.1, 2));
    return lt_param_init_role(&w->param[BIAS], w->device, "", "bias", LT_SHAPE(r->out), 0,
                              LT_ROLE_BIAS);
}

static lt_status open_attention(workload *w, lt_dtype dtype)
{
    const settings *s = w->s;
    for (int i = 0; i < 3; i++)
        LT_TRY(bench_random(&w->x[i], w->device, dtype,
                            LT_SHAPE(s->common.model.batch, i ? s->keys : s->queries,
                                     (i ? s->kv_heads : s->heads) * s->head_size),
                            LT_FORMAT_CONTIGUOUS, (uint64_t)i + 1));
    return LT_OK;
}

static lt_status open_workload(workload *w, lt_device *device, const row *r, const settings *s)
{
    const lt_dtype dtype = bench_amp_dtypes[s->common.amp];
    *w = (workload){.s = s, .row = r, .device = device};
    LT_TRY(lt_tape_new(&w->tape, device));
    return r->kind == ATTENTION ? open_attention(w, dtype)
           : r->kind == LINEAR  ? open_product(w, dtype)
                                : open_image_layer(w, dtype);
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
                            (lt_attention_config){.heads = (int)w->s->heads,
                                                  .kv_heads = (int)w->s->kv_heads,
                                                  .causal = w->s->causal});
    }
    lt_tensor *x = which == GRAD_W ? w->x[0] : lt_tape_variable(tape, w->x[0]);
    if (r->kind == LINEAR)
        return lt_linear(tape, x, lt_tape_param(tape, &p[WEIGHT]), lt_tape_param(tape, &p[BIAS]));
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

/* Seconds of forward and of backward. A convolution is measured without the statistics of a following batch norm. The
 * weight has a new version each time, as after an update in training. */
static lt_status run_once(workload *w, direction which, double seconds[2])
{
    lt_pass pass = which == FORWARD ? LT_PASS_EVAL : LT_PASS_TRAIN;
    pass.dtype = bench_amp_dtypes[w->s->common.amp];
    pass.batch_stats = pass.record && w->row->kind != CONV;
    if (w->row->kind == LINEAR)
        lt_tensor_touch(w->param[WEIGHT].value);
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

/* Milliseconds by direction, WRITE's subtracted from gradients. */
typedef struct result {
    double ms[2][WRITE + 1]; /* with the device's own choice of kernels, and with --beside's */
} result;

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

static void print_layer(const row *r, const settings *s, const result *p)
{
    const double side = (double)size_after(r);
    const double gflop =
        2e-9 * (double)(s->common.model.batch * r->in * r->out * r->taps * r->taps) * side * side;
    fprintf(stderr, "%-30s x%d", r->name, r->times);
    for (direction d = FORWARD; d <= GRAD_W; d++) {
        if (!has_direction(r, d))
            continue;
        fprintf(stderr, "  %s %8.3f ms", names[d], p->ms[0][d]);
        if (r->kind == CONV)
            fprintf(stderr, " %5.0f GFLOP/s", 1e3 * gflop / p->ms[0][d]);
        if (s->other)
            fprintf(stderr, " (%.2f)", p->ms[1][d] / p->ms[0][d]);
    }
    fprintf(stderr, "\n");
}

/* other: a device with other kernels, or NULL. */
static lt_status measure_layer(lt_device *device, lt_device *other, const row *r, const settings *s,
                               result *out)
{
    match m = {.count = other ? 2 : 1};
    lt_status st = open_workload(&m.w[0], device, r, s);
    if (!st && other)
        st = open_workload(&m.w[1], other, r, s);
    if (!st)
        st = bench_rounds(&s->common, run_match, &m, m.count * (WRITE + 1), &out->ms[0][0]);
    for (int k = 0; k < m.count; k++)
        for (direction d = GRAD_X; d <= GRAD_W; d++)
            out->ms[k][d] -= has_direction(r, d) ? out->ms[k][WRITE] : 0;
    if (!st)
        print_layer(r, s, out);
    for (int k = 0; k < m.count; k++)
        close_workload(&m.w[k]);
    return st;
}

/* Prints sums over a network's convolutions, each counted as often as the network contains it. */
static void print_sums(const char *network, bool small, const result *results)
{
    for (direction d = FORWARD; d <= GRAD_W; d++) {
        double own = 0, other = 0;
        for (int i = 0; i < LAYERS; i++)
            if (layers[i].kind == CONV
                && small == !strncmp(layers[i].name, "small", strlen("small"))) {
                own += layers[i].times * results[i].ms[0][d];
                other += layers[i].times * results[i].ms[1][d];
            }
        if (own > 0)
            fprintf(stderr, "%s, %s: %.0f and %.0f ms, faster by %.2f\n", network, names[d], own,
                    other, other / own);
    }
}

static void print_layers(const lt_device *device, const bench_common *c, const result *results)
{
    double total = 0;
    for (int i = 0; i < LAYERS; i++)
        for (direction d = FORWARD; d <= GRAD_W; d++)
            total += layers[i].times * results[i].ms[0][d];
    bench_print_head("ops", device, bench_amp_names[c->amp], c->model.batch);
    printf(", \"steps\": %d, \"milliseconds\": %.6g, \"peak_memory_bytes\": %zu, \"ops\": [",
           (int)c->steps, total, lt_device_memory(device).peak);
    for (int i = 0; i < LAYERS; i++)
        printf("%s{\"name\": \"%s\", \"count\": %d, \"forward_milliseconds\": %.6g, "
               "\"grad_x_milliseconds\": %.6g, \"grad_w_milliseconds\": %.6g}",
               i ? ", " : "", layers[i].name, layers[i].times, results[i].ms[0][FORWARD],
               results[i].ms[0][GRAD_X], results[i].ms[0][GRAD_W]);
    printf("]}\n");
}

/* A device with the kernels to compare with. */
static lt_status open_other(lt_device **out, const settings *s)
{
    const lt_device_config config = {.threads = (int)s->common.threads};
    if (!s->other)
        return LT_OK;
    if (strcmp(s->common.device, "cpu") != 0)
        return lt_fail(LT_E_ARG, "--beside %s: needs --device cpu, got %s", other_names[s->other],
                       s->common.device);
    if (setenv("LATHER_CPU_KERNELS", other_names[s->other], 1))
        return LT_E_NOMEM;
    return lt_device_open(out, s->common.device, &config);
}

static lt_status run_ops(lt_device *device, lt_comm *comm, const void *values)
{
    static result results[LAYERS];
    const settings *s = values;
    lt_device *other = NULL;
    (void)comm;
    lt_status st = open_other(&other, s);
    for (int i = 0; i < LAYERS && !st; i++)
        if (strstr(layers[i].name, s->filter))
            st = measure_layer(device, other, &layers[i], s, &results[i]);
    if (!st && other) {
        print_sums("ResNet-50", false, results);
        print_sums("ResNet-18", true, results);
    }
    if (!st && s->common.json)
        print_layers(device, &s->common, results);
    lt_device_close(&other);
    return st;
}

BENCH_COMMAND(ops, BENCH_DEVICE, ops_options, "time single operations, forward and backward");

/* --- bench linear and bench attention: forward, and a step, which is forward with backward --- */

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

static lt_status measure_product(lt_device *device, const row *r, const settings *s,
                                 double ms[PASSES])
{
    workload w;
    lt_status st = open_workload(&w, device, r, s);
    if (!st)
        st = bench_rounds(&s->common, run_step, &w, PASSES, ms);
    if (!st)
        fprintf(stderr,
                "%-15s %lldx%lldx%lld x%d %9.3f ms forward %9.3f ms with backward %7.1f GFLOP/s\n",
                r->name, (long long)r->size, (long long)r->in, (long long)r->out, r->times,
                ms[ALONE], ms[STEP], 6e-6 * (double)(r->size * r->in * r->out) / ms[STEP]);
    close_workload(&w);
    return st;
}

static lt_status run_linear(lt_device *device, lt_comm *comm, const void *values)
{
    const settings *s = values;
    double ms[PRODUCTS][PASSES] = {{0}}, total = 0;
    (void)comm;
    for (int i = 0; i < PRODUCTS; i++)
        if (strstr(products[i].name, s->filter)) {
            LT_TRY(measure_product(device, &products[i], s, ms[i]));
            total += products[i].times * ms[i][STEP];
        }
    if (!s->common.json)
        return LT_OK;
    bench_print_head("linear", device, bench_amp_names[s->common.amp], 0);
    printf(", \"steps\": %d, \"milliseconds\": %.6g, \"ops\": [", (int)s->common.steps, total);
    for (int i = 0; i < PRODUCTS; i++)
        printf("%s{\"name\": \"%s\", \"shape\": [%lld, %lld, %lld], \"count\": %d, "
               "\"forward_milliseconds\": %.6g, \"step_milliseconds\": %.6g}",
               i ? ", " : "", products[i].name, (long long)products[i].size,
               (long long)products[i].in, (long long)products[i].out, products[i].times,
               ms[i][ALONE], ms[i][STEP]);
    printf("]}\n");
    return LT_OK;
}

BENCH_COMMAND(linear, BENCH_DEVICE, linear_options, "time matrix products of transformers");

/* bytes: peak memory of the process beyond that with only the inputs allocated. */
static void print_attention(const lt_device *device, const bench_common *c, const double *ms,
                            int64_t bytes)
{
    if (!c->json) {
        printf("%.3f ms forward, %.3f ms with backward, %.1f MB\n", ms[ALONE], ms[STEP],
               (double)bytes * 1e-6);
        return;
    }
    bench_print_head("attention", device, bench_amp_names[c->amp], c->model.batch);
    printf(", \"forward_milliseconds\": %.6g, \"step_milliseconds\": %.6g, "
           "\"peak_memory_bytes\": %lld}\n",
           ms[ALONE], ms[STEP], (long long)bytes);
}

static lt_status run_attention(lt_device *device, lt_comm *comm, const void *values)
{
    settings s = *(const settings *)values;
    workload w;
    double ms[PASSES];
    (void)comm;
    s.keys = s.keys ? s.keys : s.queries;
    s.kv_heads = s.kv_heads ? s.kv_heads : s.heads;
    lt_status st = open_workload(&w, device, &attention, &s);
    const int64_t before = bench_process_bytes("VmRSS");
    if (!st)
        st = bench_rounds(&s.common, run_step, &w, PASSES, ms);
    if (!st) /* forward alone, no gradients */
        st = bench_rounds(&s.common, run_forward, &w, 1, &ms[ALONE]);
    if (!st)
        print_attention(device, &s.common, ms, bench_process_bytes("VmHWM") - before);
    close_workload(&w);
    return st;
}

BENCH_COMMAND(attention, BENCH_DEVICE, attention_options, "time attention, forward and backward");
