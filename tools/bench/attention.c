/* bench attention: lt_attention() of one size, forward alone and with its gradient, and its memory. */

#include "bench.h"

#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *device;
    int amp;
    int64_t batch, heads, kv_heads, queries, keys, head_size, threads, steps, warmup;
    bool causal, json;
} settings;

#define AT(field) offsetof(settings, field)

/* An option that is a whole number, at least `least`. */
#define COUNT(option, field, usual, least, text)                                          \
    {                                                                                     \
        .group = "Benchmark", .name = option, .type = LT_OPTION_INT, .offset = AT(field), \
        .value = usual, .min = least, .max = 1 << 20, .help = text                        \
    }

/* clang-format off */
static const lt_option table[] = {
    COUNT("batch-size", batch, "4", 1, "sequences"),
    COUNT("heads", heads, "12", 1, "heads of queries"),
    COUNT("kv-heads", kv_heads, "0", 0, "heads of keys and values; 0: as many"),
    COUNT("queries", queries, "256", 1, "queries of a sequence"),
    COUNT("keys", keys, "0", 0, "keys of a sequence; 0: as many"),
    COUNT("head-size", head_size, "64", 1, "features of a head"),
    {.group = "Benchmark", .name = "causal", .type = LT_OPTION_BOOL, .offset = AT(causal),
     .help = "a query sees no later keys"},
    {.group = "Benchmark", .name = "amp", .type = LT_OPTION_CHOICE, .offset = AT(amp),
     .choices = "off|bf16", .help = "dtype of activations; off is f32"},
    COUNT("steps", steps, "20", 1, "measured repetitions"),
    COUNT("warmup", warmup, "2", 0, "repetitions before those"),
    BENCH_MACHINE_OPTIONS(settings),
};
/* clang-format on */

static const lt_program program = {
    .name = "bench attention",
    .summary = "time attention",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

enum { Q, K, V, INPUTS };

typedef struct workload {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *x[INPUTS];
} workload;

static void close_workload(workload *w)
{
    lt_tape_free(&w->tape);
    for (int i = Q; i < INPUTS; i++)
        lt_tensor_free(&w->x[i]);
    lt_device_close(&w->device);
}

static lt_status open_workload(workload *w, const settings *s)
{
    const lt_device_config config = {.threads = (int)s->threads};
    LT_TRY(lt_device_open(&w->device, s->device, &config));
    LT_TRY(lt_tape_new(&w->tape, w->device));
    for (int i = Q; i < INPUTS; i++) {
        const lt_shape shape = LT_SHAPE(s->batch, i == Q ? s->queries : s->keys,
                                        (i == Q ? s->heads : s->kv_heads) * s->head_size);
        lt_tensor *values = NULL;
        LT_TRY(lt_tensor_new(&values, w->device, LT_F32, shape));
        lt_status st = bench_fill_random(values, 1, (uint64_t)i + 1);
        if (!st)
            st = lt_tensor_new(&w->x[i], w->device, s->amp ? LT_BF16 : LT_F32, shape);
        if (!st)
            st = lt_tensor_copy(w->x[i], values);
        lt_tensor_free(&values);
        LT_TRY(st);
    }
    return LT_OK;
}

static lt_tensor *apply(workload *w, const settings *s, bool record)
{
    lt_tensor *in[INPUTS];
    lt_pass pass = record ? LT_PASS_TRAIN : LT_PASS_EVAL;
    pass.dtype = s->amp ? LT_BF16 : LT_F32;
    lt_tape_reset(w->tape, pass);
    for (int i = Q; i < INPUTS; i++)
        in[i] = record ? lt_tape_variable(w->tape, w->x[i]) : w->x[i];
    return lt_attention(w->tape, in[Q], in[K], in[V],
                        (lt_attention_config){.heads = (int)s->heads,
                                              .kv_heads = (int)s->kv_heads,
                                              .causal = s->causal});
}

static lt_status time_forward(workload *w, const settings *s, double *seconds)
{
    const double begin = bench_seconds();
    apply(w, s, false);
    LT_TRY(lt_tape_status(w->tape));
    LT_TRY(lt_device_sync(w->device));
    *seconds = bench_seconds() - begin;
    return LT_OK;
}

/* Forward and backward. The gradient of the output is that of a sum, whose writing is part of the time;
 * the sum itself is not. */
static lt_status time_step(workload *w, const settings *s, double *seconds)
{
    const double begin = bench_seconds();
    lt_tensor *y = apply(w, s, true);
    LT_TRY(lt_device_sync(w->device));
    const double middle = bench_seconds();
    lt_tensor *loss = lt_sum(w->tape, y, (lt_reduce_config){0});
    LT_TRY(lt_device_sync(w->device));
    const double start = bench_seconds();
    LT_TRY(lt_tape_backward(w->tape, loss, 1));
    LT_TRY(lt_device_sync(w->device));
    *seconds = middle - begin + bench_seconds() - start;
    return LT_OK;
}

typedef lt_status time_fn(workload *w, const settings *s, double *seconds);

static lt_status repeat(workload *w, const settings *s, time_fn *time, double *milliseconds)
{
    double *seconds = malloc((size_t)s->steps * sizeof *seconds), ignored;
    lt_status st = seconds ? LT_OK : lt_fail(LT_E_NOMEM, "bench attention: no memory");
    for (int64_t i = 0; i < s->warmup && !st; i++)
        st = time(w, s, &ignored);
    for (int64_t i = 0; i < s->steps && !st; i++)
        st = time(w, s, &seconds[i]);
    if (!st)
        *milliseconds = 1e3 * bench_median(seconds, (int)s->steps);
    free(seconds);
    return st;
}

/* What the process holds above what it held with its inputs. */
static void print(const workload *w, const settings *s, double forward, double step, int64_t bytes)
{
    if (!s->json) {
        printf("%.3f ms forward, %.3f ms with backward, %.1f MB\n", forward, step,
               (double)bytes * 1e-6);
        return;
    }
    const bench_header header = {"attention", lt_device_name(w->device), s->amp ? "bf16" : "f32",
                                 (int)s->batch, lt_device_threads(w->device)};
    bench_print_header(&header);
    printf(", \"forward_milliseconds\": %.6g, \"step_milliseconds\": %.6g, "
           "\"peak_memory_bytes\": %lld}\n",
           forward, step, (long long)bytes);
}

lt_status bench_attention(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    s.keys = s.keys ? s.keys : s.queries;
    s.kv_heads = s.kv_heads ? s.kv_heads : s.heads;
    workload w = {.device = NULL};
    double forward = 0, step = 0;
    lt_status st = open_workload(&w, &s);
    const int64_t before = bench_process_bytes("VmRSS");
    if (!st)
        st = repeat(&w, &s, time_forward, &forward);
    if (!st)
        st = repeat(&w, &s, time_step, &step);
    if (!st)
        print(&w, &s, forward, step, bench_process_bytes("VmHWM") - before);
    close_workload(&w);
    return st;
}
