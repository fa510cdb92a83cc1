/* bench ceilings: rates of the device's memory and matrix products, the roofs of a step's time
 * (Williams, Waterman & Patterson, "Roofline", CACM 2009). */

#include "bench.h"

#include "lather/ops.h"

#include <stdio.h>

typedef struct settings {
    bench_common common;
    int64_t megabytes, side;
} settings;
static settings s;

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", INT("megabytes", megabytes, 1, 65536), .value = "256", .help = "size of the tensor that is copied"},
    {"Benchmark", INT("side", side, 1, 65536), .value = "2048", .help = "side of the square matrices"},
    {"Benchmark", INT("repeats", common.steps, 1, 1000), .value = "5", .help = "measurements; the median counts"},
    {"Benchmark", FLAG("tf32", common.tf32), .help = "cuda: compute products of f32 matrices in TF32"},
};
/* clang-format on */

enum { AT_ONCE = 8 }; /* queued before the device is waited for */

/* Two tensors and the operation to time on them. */
typedef struct work {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *a, *b;
    lt_status (*run)(struct work *);
} work;

static lt_status copy(work *w)
{
    return lt_tensor_copy(w->b, w->a);
}

static lt_status product(work *w)
{
    lt_pass pass = LT_PASS_EVAL;
    pass.dtype = lt_tensor_dtype(w->a);
    lt_tape_reset(w->tape, pass);
    lt_tensor *a = lt_tape_variable(w->tape, w->a), *b = lt_tape_variable(w->tape, w->b);
    (void)lt_matmul(w->tape, a, b, (lt_matmul_config){0});
    return lt_tape_status(w->tape);
}

/* Measures the seconds of one operation. */
static lt_status run_several(void *context, int64_t round, double *found)
{
    work *w = context;
    (void)round;
    LT_TRY(lt_device_sync(w->device));
    const double begin = bench_seconds();
    for (int k = 0; k < AT_ONCE; k++)
        LT_TRY(w->run(w));
    LT_TRY(lt_device_sync(w->device));
    *found = (bench_seconds() - begin) / AT_ONCE;
    return LT_OK;
}

/* Measures *rate, in billions of `amount` per second. Inputs are random, since zeros would be faster. */
static lt_status measure(work *w, lt_dtype dtype, lt_shape shape, double amount, double *rate)
{
    double seconds = 0;
    lt_status st = bench_random(&w->a, w->device, dtype, shape, LT_FORMAT_CONTIGUOUS, 3);
    if (!st)
        st = bench_random(&w->b, w->device, dtype, shape, LT_FORMAT_CONTIGUOUS, 3);
    if (!st)
        st = w->run(w);
    if (!st)
        st = bench_rounds(&s.common, run_several, w, 1, &seconds);
    *rate = 1e-9 * amount / seconds;
    lt_tape_reset(w->tape, LT_PASS_EVAL);
    lt_tensor_free(&w->a);
    lt_tensor_free(&w->b);
    return st;
}

static lt_status run_ceilings(lt_device *device, lt_comm *comm)
{
    const char *f32 = s.common.tf32 ? "tf32" : "f32";
    const double n = (double)s.side;
    double bytes = 0, flop[3] = {0}; /* f32, bf16, f16 */
    work w = {.device = device, .run = copy};
    (void)comm;
    LT_TRY(lt_tape_new(&w.tape, device));
    lt_status st = measure(&w, LT_F32, LT_SHAPE(s.megabytes * 1000000 / 4),
                           2e6 * (double)s.megabytes, &bytes); /* bytes read and written */
    w.run = product;
    for (int i = 0; i < 3 && !st; i++)
        if (lt_device_has_fast_dtype(device, bench_amp_dtypes[i]))
            st =
                measure(&w, bench_amp_dtypes[i], LT_SHAPE(s.side, s.side), 2 * n * n * n, &flop[i]);
    lt_tape_free(&w.tape);
    LT_TRY(st);
    fprintf(stderr, "copy %.1f GB/s, products %s %.0f, bf16 %.0f, f16 %.0f GFLOP/s\n", bytes, f32,
            flop[0], flop[1], flop[2]);
    bench_print_head("ceilings", device, "f32", 1);
    bench_print_number(s.common.tf32 ? "tf32_gigaflops" : "f32_gigaflops", flop[0]);
    bench_print_fields("copy_gigabytes_per_second %g bf16_gigaflops %g f16_gigaflops %g", bytes,
                       flop[1], flop[2]);
    return LT_OK;
}

BENCH_COMMAND(ceilings, BENCH_DEVICE, table,
              "time copies and matrix products: what the device can reach");
