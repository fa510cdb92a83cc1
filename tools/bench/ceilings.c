/* bench ceilings: what the device's memory and its matrix products reach: the roofs that the time of a
 * step is compared with (Williams, Waterman & Patterson, "Roofline", CACM 2009). */

#include "bench.h"

#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *device;
    int64_t megabytes, side, threads, repeats;
    bool json, tf32;
} settings;

#define AT(field) offsetof(settings, field)

static const lt_option table[] = {
    {.group = "Benchmark",
     .name = "megabytes",
     .type = LT_OPTION_INT,
     .offset = AT(megabytes),
     .value = "256",
     .min = 1,
     .max = 65536,
     .help = "of the tensor that is copied"},
    {.group = "Benchmark",
     .name = "side",
     .type = LT_OPTION_INT,
     .offset = AT(side),
     .value = "2048",
     .min = 1,
     .max = 65536,
     .help = "of the square matrices"},
    {.group = "Benchmark",
     .name = "repeats",
     .type = LT_OPTION_INT,
     .offset = AT(repeats),
     .value = "5",
     .min = 1,
     .max = 1000,
     .help = "measurements; the median counts"},
    {.group = "Benchmark",
     .name = "tf32",
     .type = LT_OPTION_BOOL,
     .offset = AT(tf32),
     .help = "cuda: products of f32 matrices in that precision"},
    BENCH_MACHINE_OPTIONS(settings),
};

static const lt_program program = {
    .name = "bench ceilings",
    .summary = "time copies and matrix products",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

enum { AT_ONCE = 8 }; /* queued before the device is waited for */

/* One measured piece of work. */
typedef struct work {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *a, *b;
    lt_dtype dtype;
} work;

static lt_status copy(work *w)
{
    return lt_tensor_copy(w->b, w->a);
}

static lt_status product(work *w)
{
    lt_pass pass = LT_PASS_EVAL;
    pass.dtype = w->dtype;
    lt_tape_reset(w->tape, pass);
    lt_tensor *a = lt_tape_variable(w->tape, w->a), *b = lt_tape_variable(w->tape, w->b);
    (void)lt_matmul(w->tape, a, b, (lt_matmul_config){0});
    return lt_tape_status(w->tape);
}

/* Median seconds of one. */
static lt_status measure(work *w, lt_status (*run)(work *), int64_t repeats, double *out)
{
    double *seconds = malloc((size_t)repeats * sizeof *seconds);
    lt_status st = seconds ? run(w) : lt_fail(LT_E_NOMEM, "no memory");
    for (int64_t i = 0; i < repeats && !st; i++) {
        st = lt_device_sync(w->device);
        double begin = bench_seconds();
        for (int k = 0; k < AT_ONCE && !st; k++)
            st = run(w);
        if (!st)
            st = lt_device_sync(w->device);
        seconds[i] = (bench_seconds() - begin) / AT_ONCE;
    }
    if (!st)
        *out = bench_median(seconds, (int)repeats);
    free(seconds);
    return st;
}

static lt_status open_pair(work *w, lt_dtype dtype, lt_shape shape)
{
    lt_tensor *random = NULL;
    w->dtype = dtype;
    LT_TRY(lt_tensor_new(&w->a, w->device, dtype, shape));
    LT_TRY(lt_tensor_new(&w->b, w->device, dtype, shape));
    LT_TRY(lt_tensor_new(&random, w->device, LT_F32, shape));
    lt_status st = bench_fill_random(random, 1, 3); /* zeros would be faster */
    if (!st)
        st = lt_tensor_copy(w->a, random);
    if (!st)
        st = lt_tensor_copy(w->b, random);
    lt_tensor_free(&random);
    return st;
}

static void close_pair(work *w)
{
    if (w->tape)
        lt_tape_reset(w->tape, LT_PASS_EVAL);
    lt_tensor_free(&w->a);
    lt_tensor_free(&w->b);
}

static lt_status measure_copy(work *w, const settings *s, double *rate)
{
    double seconds = 0, bytes = (double)s->megabytes * 1e6;
    lt_status st = open_pair(w, LT_F32, LT_SHAPE(s->megabytes * 1000000 / 4));
    if (!st)
        st = measure(w, copy, s->repeats, &seconds);
    *rate = 2 * bytes / seconds / 1e9; /* read and written */
    close_pair(w);
    return st;
}

static lt_status measure_product(work *w, const settings *s, lt_dtype dtype, double *rate)
{
    double seconds = 0, n = (double)s->side;
    lt_status st = open_pair(w, dtype, LT_SHAPE(s->side, s->side));
    if (!st)
        st = measure(w, product, s->repeats, &seconds);
    *rate = 2 * n * n * n / seconds / 1e9;
    close_pair(w);
    return st;
}

static lt_status run(work *w, const settings *s)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    enum { DTYPES = sizeof dtypes / sizeof *dtypes };
    double bytes = 0, flop[DTYPES] = {0};
    LT_TRY(lt_tape_new(&w->tape, w->device));
    LT_TRY(measure_copy(w, s, &bytes));
    for (int i = 0; i < DTYPES; i++)
        if (lt_device_has_fast(w->device, dtypes[i]))
            LT_TRY(measure_product(w, s, dtypes[i], &flop[i]));
    fprintf(stderr, "copy %.1f GB/s, products %s %.0f, bf16 %.0f, f16 %.0f GFLOP/s\n", bytes,
            s->tf32 ? "tf32" : "f32", flop[0], flop[1], flop[2]);
    if (!s->json)
        return LT_OK;
    bench_header header = {"ceilings", lt_device_name(w->device), "f32", 1,
                           lt_device_threads(w->device)};
    bench_print_header(&header);
    printf(", \"copy_gigabytes_per_second\": %.6g, \"%s_gigaflops\": %.6g, "
           "\"bf16_gigaflops\": %.6g, \"f16_gigaflops\": %.6g}\n",
           bytes, s->tf32 ? "tf32" : "f32", flop[0], flop[1], flop[2]);
    return LT_OK;
}

lt_status bench_ceilings(int argc, char *const *argv)
{
    settings s = {0};
    work w = {0};
    bool runs;
    LT_TRY(bench_parse(&program, &s, argc, argv, &runs));
    if (!runs)
        return LT_OK;
    const lt_device_config config = {.threads = (int)s.threads, .tf32 = s.tf32};
    LT_TRY(lt_device_open(&w.device, s.device, &config));
    lt_status st = run(&w, &s);
    close_pair(&w);
    lt_tape_free(&w.tape);
    lt_device_close(&w.device);
    return st;
}
